"""Arrays that lie on a device, as their owners describe them: capsules of NumPy and PyTorch, said to be
there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity.operator import Value
from opatlas.load.cuda.resident import is_resident, resident_array
from tests.opatlas.load.cuda.simulated import SimulatedDriver
from tests.opatlas.load.cuda.simulated_arrays import ArrayThere, told_by

torch = pytest.importorskip("torch")


class SaidToBeThere:
    """An array of the host's, whose capsule is changed to say that it lies on a device."""

    def __init__(self, array: Any, kind: int = 2) -> None:
        self.array, self.kind = array, kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0

    def __dlpack__(self, *, stream: Any = None) -> Any:
        capsule = self.array.__dlpack__()
        told_by(capsule).device.device_type = self.kind
        return capsule


@pytest.mark.parametrize(
    "name",
    [
        *("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool", "complex64"),
        "bfloat16",
    ],
)
def test_what_a_library_says_of_its_array_is_read(name: str) -> None:
    tensor = torch.zeros(3, 5, dtype=getattr(torch, name))
    found = resident_array(SaidToBeThere(tensor), Value(name, (3, 5)), "input 0", 0)
    assert (found.address, found.dtype.name, found.shape) == (tensor.data_ptr(), name, (3, 5))
    size = tensor.element_size()
    assert (found.strides, found.device, found.unordered) == ((5 * size, size), 0, False)


def test_strides_and_offsets_are_read() -> None:
    array = np.zeros((4, 6), np.float32)[1:].T
    found = resident_array(SaidToBeThere(array), Value("float32", (6, 3), strides=(1, 6)), "input 0", 0)
    assert (found.address, found.strides) == (array.ctypes.data, (4, 24))
    scalar = resident_array(SaidToBeThere(np.zeros((), np.float32)), Value("float32", ()), "input 0", 0)
    assert (scalar.shape, scalar.strides) == ((), ())
    there = ArrayThere(SimulatedDriver(), np.zeros((2, 3), np.float32), skip=64)
    found = resident_array(there, Value("float32", (2, 3)), "input 0", 0, 64)
    assert (found.address, found.strides) == (there.address, (12, 4))


def test_its_owner_is_told_which_stream_comes_after_it() -> None:
    there = ArrayThere(SimulatedDriver(), np.zeros(3, np.float32))
    for stream in (None, 77):
        resident_array(there, Value("float32", (3,)), "input 0", 0, stream=stream)
    assert there.waited == [1, 77], "1 is the default stream"


def test_a_tensor_that_wants_a_gradient_is_read_too() -> None:
    class Tensor(SaidToBeThere):
        def detach(self) -> SaidToBeThere:
            return SaidToBeThere(self.array.detach())

    wants = torch.zeros(3, requires_grad=True)
    assert resident_array(Tensor(wants), Value("float32", (3,)), "input 0", 0).address == wants.data_ptr()


def test_types_that_only_ml_dtypes_has_are_known_by_their_size() -> None:
    class There:
        __cuda_array_interface__ = {"typestr": "<V2", "shape": (3,), "data": (64, False), "strides": None}

    assert resident_array(There(), Value("bfloat16", (3,)), "input 0", 0).dtype.name == "bfloat16"
    with pytest.raises(LoadError, match=r"element type .V2, the operator says float16"):
        resident_array(There(), Value("float16", (3,)), "input 0", 0)


def test_where_it_lies() -> None:
    array = np.zeros(3, np.float32)
    assert not is_resident(array)
    assert not is_resident(torch.zeros(3))
    assert not is_resident([1.0])
    assert not is_resident(SaidToBeThere(array, kind=3)), "page-locked memory is the host's"
    assert is_resident(SaidToBeThere(array))
    assert is_resident(SaidToBeThere(array, kind=13)), "managed memory"
    assert is_resident(SimpleNamespace(is_cuda=True))
    with pytest.raises(LoadError, match="neither a NumPy array nor one on the device: Tensor"):
        resident_array(torch.zeros(3), Value("float32", (3,)), "input 0", 0)


def test_what_cannot_be_read_where_it_lies_says_why() -> None:
    class Refuses(SaidToBeThere):
        def __dlpack__(self, *, stream: Any = None) -> Any:
            raise BufferError("it is nobody's business")

    with pytest.raises(LoadError, match="input 2 cannot be read where it lies: it is nobody's business"):
        resident_array(Refuses(None), Value("float32", (3,)), "input 2", 0)
    of_another_vendor = SaidToBeThere(np.zeros(3, np.float32), kind=10)
    of_another_vendor.is_cuda = True  # type: ignore[attr-defined]  # PyTorch's word for those, too
    with pytest.raises(LoadError, match=r"input 0 cannot be read .* it lies on no device of CUDA's"):
        resident_array(of_another_vendor, Value("float32", (3,)), "input 0", 0)
    elsewhere = ArrayThere(SimulatedDriver(), np.zeros(3, np.float32), number=1)
    with pytest.raises(LoadError, match="input 0 lies on cuda:1, and what reads it runs on cuda:0"):
        resident_array(elsewhere, Value("float32", (3,)), "input 0", 0)
