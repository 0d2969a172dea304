"""Arrays on a device, read in place: by DLPack, else by ``__cuda_array_interface__``.

PyTorch, CuPy and JAX have the first, Numba and PyCUDA the second.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from opatlas.errors import LoadError, first_line
from opatlas.identity.operator import Value
from opatlas.identity.strides import dense_strides
from opatlas.load.buffers import check_layout, storage_bytes
from opatlas.load.dtypes import numpy_dtype

DEFAULT_STREAM = 1
"""What DLPack calls the default stream, where the driver says 0."""
_CUDA, _CUDA_MANAGED = 2, 13
_TYPES = {
    0: "int{}", 1: "uint{}", 2: "float{}", 4: "bfloat{}", 5: "complex{}", 6: "bool",
    10: "float8_e4m3fn", 11: "float8_e4m3fnuz", 12: "float8_e5m2", 13: "float8_e5m2fnuz",
}  # fmt: skip
"""DLPack's codes; what is missing has no array here."""


@dataclass(frozen=True)
class ResidentArray:
    """``strides`` in bytes; ``device``: its number among the visible ones, None if unknown. ``unordered``:
    its owner may still be writing it, and no stream waits for that. Keeps the memory alive."""

    address: int
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int | None
    unordered: bool
    owner: Any


def is_resident(given: Any) -> bool:
    """Whether it is an array in a CUDA device's memory. Page-locked memory is the host's."""
    if isinstance(given, np.ndarray):
        return False
    there = getattr(given, "is_cuda", None)  # PyTorch's own word: DLPack's takes it microseconds
    if there is not None:
        return bool(there)
    if ask := getattr(given, "__dlpack_device__", None):
        return int(ask()[0]) in (_CUDA, _CUDA_MANAGED)
    return isinstance(getattr(given, "__cuda_array_interface__", None), dict)


def resident_array(
    given: Any, value: Value, name: str, device: int, alignment: int = 1, stream: int | None = None
) -> ResidentArray:
    """The array, to be read in place by ``stream`` (None: the default one) of that ``device``. Raises
    :class:`LoadError` unless it is exactly what the operator states, on that device, at a multiple of
    ``alignment`` bytes."""
    if not is_resident(given):
        raise LoadError(f"{name} is neither a NumPy array nor one on the device: {type(given).__name__}")
    try:
        found = _read(given, value, stream)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise LoadError(f"{name} cannot be read where it lies: {first_line(error)}") from error
    if found.device not in (None, device):
        raise LoadError(f"{name} lies on cuda:{found.device}, and what reads it runs on cuda:{device}")
    check_layout(found.dtype, found.shape, found.strides, value, name)
    if storage_bytes(value) and found.address % alignment:
        raise LoadError(f"{name} does not lie on a multiple of {alignment} bytes on the device")
    return found


def _read(given: Any, value: Value, stream: int | None) -> ResidentArray:
    if hasattr(given, "__dlpack__"):
        if hasattr(given, "detach"):
            given = given.detach()  # PyTorch hands on nothing that wants a gradient
        return _by_dlpack(given.__dlpack__(stream=stream or DEFAULT_STREAM))
    said, wanted = given.__cuda_array_interface__, numpy_dtype(value.dtype)
    # Types that only ml_dtypes knows have no name of their own there: they are so many bytes.
    dtype = wanted if said["typestr"] == wanted.str else np.dtype(said["typestr"])
    shape, strides = tuple(said["shape"]), said.get("strides")
    strides = _dense(shape, dtype) if strides is None else tuple(strides)
    unordered = said.get("stream") is not None
    return ResidentArray(int(said["data"][0]), dtype, shape, strides, None, unordered, given)


def _dense(shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, ...]:
    return tuple(stride * dtype.itemsize for stride in dense_strides(shape))


class _Tensor(ctypes.Structure):
    """``DLTensor``, with which a ``DLManagedTensor`` begins."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _by_dlpack(capsule: Any) -> ResidentArray:
    """The capsule is kept but not consumed: the memory is freed with it."""
    told = ctypes.cast(_pointer_of(capsule, b"dltensor"), ctypes.POINTER(_Tensor)).contents
    if told.device_kind not in (_CUDA, _CUDA_MANAGED):
        raise TypeError("it lies on no device of CUDA's")
    if told.lanes != 1 or told.code not in _TYPES:
        raise TypeError(f"DLPack's type {told.code} of {told.bits} bits in {told.lanes} lanes is not known")
    dtype = numpy_dtype(_TYPES[told.code].format(told.bits))
    axes = range(told.dimensions)
    shape = tuple(told.shape[axis] for axis in axes)
    strides = tuple(told.strides[axis] * dtype.itemsize for axis in axes) if told.strides else None
    address, strides = (told.data or 0) + told.byte_offset, strides or _dense(shape, dtype)
    return ResidentArray(address, dtype, shape, strides, int(told.device), False, capsule)
