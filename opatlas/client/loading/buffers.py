"""Checks what a caller gives to a function: arrays of the host, or arrays on the kernel's device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from opatlas.errors import CallerError
from opatlas.identity.operator import Operator, Value
from opatlas.load.buffers import check_array
from opatlas.load.cuda.resident import is_resident, resident_array
from opatlas.load.kernel import KernelOnDevice, LoadedKernel, computes_on_device

Named = Sequence[tuple[str, Any, Value]]
"""The caller's name for it, the value, and what the operator requires."""


class CallBuffers(NamedTuple):
    """What a run reads and writes. ``there``: everything is on the kernel's device, as given; otherwise
    ``inputs`` and ``outputs`` are NumPy arrays over the caller's memory. ``outputs`` None: none were given.
    ``addresses``: those of the inputs; if they are unchanged, no new binding is needed."""

    inputs: Mapping[int, Any]
    outputs: Sequence[Any] | None
    addresses: tuple[Any, ...]
    there: bool = False
    stream: Any = None


def call_buffers(
    operator: Operator,
    kernel: LoadedKernel,
    inputs: Mapping[int, Any],
    names: Mapping[int, str],
    outputs: Sequence[Any] | None = None,
    stream: Any = None,
    failure: str = "",
) -> CallBuffers:
    """``inputs`` by the operator's numbers, with the caller's names. Raises :class:`CallerError` or
    :class:`~opatlas.errors.LoadError` unless all are what the operator states and are where this kernel
    computes; ``failure``: why it is not the kernel that was loaded."""
    if any(map(is_resident, inputs.values())) or any(map(is_resident, outputs or ())):
        return _resident_buffers(operator, kernel, inputs, names, outputs, stream, failure)
    if stream is not None:
        raise CallerError("A stream is for arrays that lie on a device, and all of these are the host's.")
    arrays = {
        number: host_array(given, operator.inputs[number], names[number]) for number, given in inputs.items()
    }
    written = None
    if outputs is not None:
        named = _named(outputs, operator.output_values)
        written = [host_array(given, value, name) for name, given, value in named]
    return CallBuffers(arrays, written, tuple([array.ctypes.data for array in arrays.values()]))


def _named(outputs: Sequence[Any], values: Sequence[Value]) -> Named:
    if len(outputs) != len(values):
        raise CallerError(f"The operator has {len(values)} outputs; {len(outputs)} are given.")
    return [(f"output {number}", *one) for number, one in enumerate(zip(outputs, values, strict=True))]


def kernel_on_device(kernel: LoadedKernel, name: str, failure: str = "") -> KernelOnDevice:
    """The kernel as one that accepts arrays on its device; raises :class:`CallerError` if it computes on the
    CPU."""
    if computes_on_device(kernel):
        return kernel
    since = f", since the kernel failed ({failure})" if failure else ""
    raise CallerError(
        f"{name.capitalize()} lies on a device, and the processor computes this operator{since}: give arrays "
        "of the host."
    )


def _resident_buffers(
    operator: Operator,
    kernel: LoadedKernel,
    inputs: Mapping[int, Any],
    names: Mapping[int, str],
    outputs: Sequence[Any] | None,
    stream: Any,
    failure: str,
) -> CallBuffers:
    named = [(names[number], given, operator.inputs[number]) for number, given in inputs.items()]
    if outputs is not None:
        values = kernel.results if computes_on_device(kernel) else operator.output_values
        named += _named(outputs, values)
    where = [is_resident(given) for _, given, _ in named]
    there = named[where.index(True)][0]
    if not all(where):
        raise CallerError(
            f"{there.capitalize()} lies on a device and {named[where.index(False)][0]} on the host: what one "
            "call reads and writes lies on one of them."
        )
    reader, stream = kernel_on_device(kernel, there, failure), stream_of(stream, named[0][1])
    device, alignment = reader.on_device, reader.alignment  # each asks the driver
    assert device is not None
    found = [resident_array(given, value, name, device, alignment, stream) for name, given, value in named]
    return CallBuffers(inputs, outputs, (stream, *(one.address for one in found)), True, stream)


def stream_of(given: Any, like: Any) -> Any:
    """The handle of the given stream (PyTorch's have one), else of PyTorch's current one if the arrays are
    PyTorch's. None: the default stream."""
    if given is None and hasattr(like, "detach"):
        import torch

        given = torch.cuda.current_stream(like.device)
    return getattr(given, "cuda_stream", given) or None


def maker_like(given: Any, kernel: KernelOnDevice, stream: Any) -> Callable[[Value], Any]:
    """Makes arrays on the device like the given ones: PyTorch's tensors, else the kernel's."""
    if not hasattr(given, "detach"):
        return lambda value: kernel.memory(value, stream)
    from opatlas.load.torch.on_device import tensor_for

    return lambda value: tensor_for(value, given.device, stream)


def host_array(given: Any, value: Value, name: str) -> np.ndarray:
    """The given value as an array, as the operator requires."""
    array = given if isinstance(given, np.ndarray) else _in_place(given, value.dtype)
    check_array(array, value, name)
    return array


def _in_place(given: Any, dtype: str) -> np.ndarray:
    """A CPU tensor's memory as an array: PyTorch's, of every type; another library's by DLPack."""
    if not hasattr(given, "detach"):
        return np.from_dlpack(given)
    from opatlas.load.torch.ops.types import to_array

    return to_array(given.detach(), dtype)


def like_given(given: Any, array: np.ndarray) -> Any:
    """A tensor if tensors were given."""
    if not hasattr(given, "detach"):
        return array
    from opatlas.load.torch.ops.types import to_tensor

    return to_tensor(array)
