"""Memory on a device: a kernel's own, or memory of others that it reads and writes."""

from __future__ import annotations

import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from opatlas.identity.operator import Value
from opatlas.load.buffers import storage_bytes
from opatlas.load.cuda.driver import CudaDriver, DeviceFailed
from opatlas.load.cuda.resident import resident_array
from opatlas.load.dtypes import numpy_dtype

POISON = 0xFF  # in every byte: NaN in every floating type
GUARD = 0xA5


class DeviceBuffer:
    """Bytes on the device: freed with this object, or somebody else's and kept alive by it. ``host``: the
    array to copy from or to. ``spoilt``: overwrite the old content, in the default stream."""

    def __init__(
        self,
        driver: CudaDriver,
        nbytes: int,
        host: np.ndarray | None = None,
        guard_bytes: int = 0,
        spoilt: bool = True,
    ) -> None:
        self.driver = driver
        self.nbytes = nbytes
        self.address = 0
        self._host = host
        self._owner: Any = None
        self._guards: list[tuple[int, int]] = []
        if nbytes:
            start = driver.allocate(nbytes + 2 * guard_bytes)
            weakref.finalize(self, _give_back, driver, start)
            self.address = start + guard_bytes
            if spoilt:  # what lay there before, perhaps in another process, tells nobody anything
                self.spoil()
            if guard_bytes:
                self._guards = [(start, guard_bytes), (self.address + nbytes, guard_bytes)]
                for address, size in self._guards:
                    driver.fill(address, size, GUARD)

    @classmethod
    def of_resident(
        cls, driver: CudaDriver, given: Any, value: Value, name: str, alignment: int, stream: Any = None
    ) -> DeviceBuffer:
        """See :func:`~opatlas.load.cuda.resident.resident_array`; for a kernel in this stream."""
        found = resident_array(given, value, name, driver.number, alignment, stream)
        if found.unordered:
            driver.synchronize()  # what is still written there, in whichever stream, is there then
        made = cls(driver, 0)
        made.nbytes, made.address, made._owner = storage_bytes(value), found.address, found
        return made

    def spoil(self) -> None:
        if self.nbytes:
            self.driver.fill(self.address, self.nbytes, POISON)

    def intact(self) -> bool:
        """Whether its guard bytes are unchanged."""
        for address, size in self._guards:
            found = np.empty(size, np.uint8)
            self.driver.to_host(found, address)
            if (found != GUARD).any():
                return False
        return True

    def upload(self) -> None:
        if self._host is not None and self.nbytes:
            self.driver.to_device(self.address, flat(self._host, self.nbytes))

    def download(self) -> np.ndarray:
        assert self._host is not None
        if self.nbytes:
            self.driver.to_host(flat(self._host, self.nbytes), self.address)
        return self._host


def _give_back(driver: CudaDriver, address: int) -> None:
    with suppress(DeviceFailed):  # what a device that has failed does not take back goes with the process
        driver.free(address)


def flat(array: np.ndarray, nbytes: int) -> np.ndarray:
    """All ``nbytes`` of an array, with the gaps between its elements."""
    return np.lib.stride_tricks.as_strided(array, (nbytes // array.itemsize,), (array.itemsize,))


@dataclass(frozen=True)
class DeviceArray:
    """An output on the device that can be read without a copy."""

    buffer: DeviceBuffer
    value: Value

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        dtype = numpy_dtype(self.value.dtype)
        strides = self.value.strides
        return {
            "version": 3,
            "typestr": dtype.str,
            "shape": self.value.shape,
            "strides": strides and tuple(stride * dtype.itemsize for stride in strides),
            "data": (self.buffer.address, False),
            "stream": None,
        }
