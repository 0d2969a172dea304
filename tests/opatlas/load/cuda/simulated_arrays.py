"""Arrays in a simulated device's memory, as other libraries hand them on: by DLPack, a structure of C's."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tests.opatlas.load.cuda.simulated import SimulatedDriver

CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int), ("device_id", ctypes.c_int32))


class DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class ManagedTensor(ctypes.Structure):
    _fields_ = (("dl_tensor", Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def told_by(capsule: Any) -> Tensor:
    """What a capsule says, to be changed."""
    managed = ctypes.cast(pointer_of(capsule, b"dltensor"), ctypes.POINTER(ManagedTensor)).contents
    return managed.dl_tensor


class ArrayThere:
    """A copy of ``array`` on the device, ``skip`` bytes into its memory. ``waited``: the streams that were to
    come after it."""

    def __init__(self, device: SimulatedDriver, array: np.ndarray, number: int = 0, skip: int = 0) -> None:
        self.device, self.number = device, number
        self.shape, self.dtype = array.shape, array.dtype
        self.address = device.allocate(array.nbytes + skip) + skip
        self.skip = skip
        self.waited: list[Any] = []
        self.write(array)

    def write(self, array: np.ndarray) -> None:
        self.device.to_device(self.address, np.ascontiguousarray(array))

    def read(self) -> np.ndarray:
        found = np.empty(self.shape, self.dtype)
        self.device.to_host(found, self.address)
        return found

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.number

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.waited.append(stream)
        self.told = ManagedTensor(
            Tensor(
                self.address - self.skip,
                Device(2, self.number),
                len(self.shape),
                DataType(CODES[self.dtype.kind], 8 * self.dtype.itemsize, 1),
                (ctypes.c_int64 * len(self.shape))(*self.shape),
                None,
                self.skip,
            )
        )
        return new_capsule(ctypes.addressof(self.told), b"dltensor", None)


def read_there(given: Any, device: SimulatedDriver) -> np.ndarray:
    """What lies on the device by ``__cuda_array_interface__``, dense."""
    said = given.__cuda_array_interface__
    found = np.empty(said["shape"], said["typestr"])
    device.to_host(found, said["data"][0])
    return found
