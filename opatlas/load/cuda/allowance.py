"""Limits how much of a device's memory this process's kernels may take: the driver has no such limit."""

from __future__ import annotations

from functools import cache
from typing import Any

from opatlas.load.cuda.driver import CudaDriver, DeviceOutOfMemory, open_driver

_most_bytes = 0  # 0: as much as there is


def allow(most_bytes: int) -> None:
    """Limit all allocations from now on through the driver of :func:`capped_driver`."""
    global _most_bytes
    _most_bytes = most_bytes


_sizes: dict[int, int] = {}
"""Bytes by their address."""


class CappedDriver:
    """A driver that counts its allocations; everything else is passed on."""

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver

    def allocate(self, nbytes: int) -> int:
        """Raises :class:`DeviceOutOfMemory` beyond the limit, like a full device."""
        used = sum(tuple(_sizes.values()))  # at once: another thread may free meanwhile
        if _most_bytes and used + nbytes > _most_bytes:
            raise DeviceOutOfMemory(
                f"asked for {nbytes >> 20} MiB of the device's memory beside {used >> 20}; "
                f"at most {_most_bytes >> 20} MiB are allowed"
            )
        address = self._driver.allocate(nbytes)
        _sizes[address] = nbytes
        return address

    def free(self, address: int) -> None:
        _sizes.pop(address, None)
        self._driver.free(address)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


@cache
def capped_driver() -> CudaDriver:
    """This process's driver, within the allowance, as :func:`~opatlas.load.cuda.driver.open_driver` says."""
    made: Any = CappedDriver(open_driver())
    return made  # its other methods are the driver's
