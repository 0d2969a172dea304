"""Checks and allocation of the arrays that go into and come out of kernels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from opatlas.errors import LoadError
from opatlas.identity.operator import Operator, Value
from opatlas.identity.strides import dense_strides, storage_elements
from opatlas.load.dtypes import numpy_dtype


def check_arrays(operator: Operator, numbers: tuple[int, ...], arrays: Mapping[int, np.ndarray]) -> None:
    """Every input in ``numbers`` must be there with the operator's dtype, shape and strides, and no other."""
    check_numbers(numbers, arrays)
    for number in numbers:
        check_array(arrays[number], operator.inputs[number], f"input {number}")


def check_numbers(numbers: tuple[int, ...], given: Mapping[int, object]) -> None:
    """Raise :class:`LoadError` unless exactly these inputs are given."""
    if set(given) != set(numbers):
        raise LoadError(f"inputs {sorted(given)} were given, the operator takes {sorted(numbers)} here")


def check_array(array: np.ndarray, value: Value, name: str) -> None:
    """Raise :class:`LoadError` unless the array is exactly what the operator states."""
    check_layout(array.dtype, array.shape, array.strides, value, name)


def check_layout(
    dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...], value: Value, name: str
) -> None:
    """The same for what is no NumPy array; ``strides`` in bytes."""
    if dtype != numpy_dtype(value.dtype):
        raise LoadError(f"{name} has element type {dtype}, the operator says {value.dtype}")
    if shape != value.shape:
        raise LoadError(f"{name} has shape {list(shape)}, the operator says {list(value.shape)}")
    if not same_strides(strides, dtype.itemsize, value):
        found = [stride // dtype.itemsize for stride in strides]
        raise LoadError(f"{name} has strides {found}, the operator says {list(element_strides(value))}")


def element_strides(value: Value) -> tuple[int, ...]:
    """Strides in elements; row-major and dense where the value states none."""
    return value.strides if value.strides is not None else dense_strides(value.shape)


def same_strides(strides: tuple[int, ...], itemsize: int, value: Value) -> bool:
    """Whether these strides (in bytes) are those of the value, for an array of its shape. The stride of a
    dimension of 1 does not matter."""
    wanted = element_strides(value)
    return 0 in value.shape or all(
        size == 1 or stride == want * itemsize
        for size, stride, want in zip(value.shape, strides, wanted, strict=True)
    )


def empty(value: Value, alignment: int) -> np.ndarray:
    """An uninitialised array with the value's dtype, shape and strides, aligned to ``alignment`` bytes."""
    nbytes = storage_bytes(value)
    raw = np.empty(nbytes + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return laid_out(raw[start : start + nbytes], value)


def storage_bytes(value: Value) -> int:
    """The bytes from the value's first element to its last."""
    if 0 in value.shape:
        return 0
    return storage_elements(value.shape, element_strides(value)) * numpy_dtype(value.dtype).itemsize


def laid_out(memory: np.ndarray, value: Value) -> np.ndarray:
    """These bytes, ``storage_bytes`` of them, as an array with the value's dtype, shape and strides."""
    dtype = numpy_dtype(value.dtype)
    strides = tuple(stride * dtype.itemsize for stride in element_strides(value))
    return np.lib.stride_tricks.as_strided(memory.view(dtype), value.shape, strides)


def is_aligned(array: np.ndarray, alignment: int) -> bool:
    return array.size == 0 or array.ctypes.data % alignment == 0


def aligned(array: np.ndarray, value: Value, alignment: int) -> np.ndarray:
    """The array, or a copy if its address is not aligned."""
    if is_aligned(array, alignment):
        return array
    copy = empty(value, alignment)
    copy[...] = array
    return copy
