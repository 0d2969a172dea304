"""Page-locked host memory for copies between host and device, kept by the loader."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from threading import Lock

import numpy as np

from opatlas.load.kernel import KernelFailed

HALF_BYTES = 4 << 20
"""Size of each of the two halves that are filled and copied in turn."""
MOST_LOCKED_BYTES = 256 << 20
"""The most that one process locks, since the host cannot use these pages otherwise; beyond it memory is
ordinary."""

Wait = Callable[[], None]
Begin = Callable[[int, np.ndarray], Wait]
"""Begin a copy between the device, at an offset in bytes, and these bytes of host memory. The returned call
waits for its end, once."""


class PageLocked:
    """Host memory that the device accesses directly. ``lock_pages`` gives so many bytes of it, freed with the
    array, or raises if the host or the driver has no more."""

    def __init__(self, lock_pages: Callable[[int], np.ndarray]) -> None:
        self._lock_pages = lock_pages
        self._known: dict[int, int] = {}  # address: bytes

    @property
    def nbytes(self) -> int:
        return sum(tuple(self._known.values()))  # at once: another thread may free meanwhile

    def memory(self, nbytes: int) -> np.ndarray:
        """Bytes; ordinary memory if no more can be locked."""
        if not 0 < nbytes <= MOST_LOCKED_BYTES - self.nbytes:
            return np.empty(nbytes, np.uint8)
        try:
            made = self._lock_pages(nbytes)
        except (KernelFailed, MemoryError, RuntimeError):
            return np.empty(nbytes, np.uint8)
        address = made.ctypes.data
        self._known[address] = nbytes
        weakref.finalize(made, self._known.pop, address).atexit = False
        return made

    def holds(self, flat: np.ndarray) -> bool:
        """Whether all these bytes are page-locked."""
        first, last = flat.ctypes.data, flat.ctypes.data + flat.nbytes
        known = tuple(self._known.items())
        return any(start <= first and last <= start + nbytes for start, nbytes in known)


class CopyHalves:
    """Copies of any host memory through two page-locked halves: while one is copied, the CPU fills or empties
    the other. One copy at a time."""

    def __init__(self, pages: PageLocked) -> None:
        self._pages = pages
        self._halves: list[np.ndarray] = []
        self._taken = Lock()

    def to_device(self, source: np.ndarray, begin: Begin) -> None:
        """``source`` are bytes, one after another."""
        if self._pages.holds(source):
            begin(0, source)()
            return
        with self._taken:
            copying: list[Wait] = [_nothing, _nothing]
            for number, (start, half) in enumerate(self._parts(source.nbytes)):
                copying[number % 2]()
                half[...] = source[start : start + half.nbytes]
                copying[number % 2] = begin(start, half)
            for wait in copying:
                wait()

    def to_host(self, target: np.ndarray, begin: Begin) -> None:
        """The other way."""
        if self._pages.holds(target):
            begin(0, target)()
            return
        with self._taken:
            arriving: Wait = _nothing
            for start, half in self._parts(target.nbytes):
                next_one = _then(begin(start, half), target[start : start + half.nbytes], half)
                arriving()
                arriving = next_one
            arriving()

    def _parts(self, nbytes: int) -> Iterator[tuple[int, np.ndarray]]:
        if not self._halves:
            self._halves = [self._pages.memory(HALF_BYTES) for _ in range(2)]
        for number, start in enumerate(range(0, nbytes, HALF_BYTES)):
            yield start, self._halves[number % 2][: min(HALF_BYTES, nbytes - start)]


def _then(wait: Wait, target: np.ndarray, half: np.ndarray) -> Wait:
    def finish() -> None:
        wait()
        target[...] = half

    return finish


def _nothing() -> None:
    """There is nothing to wait for."""


class StagedCopies:
    """A driver's copies from and into any host memory, made of three calls."""

    def __init__(self) -> None:
        self._pages = PageLocked(self.lock_pages)
        self._halves = CopyHalves(self._pages)

    def lock_pages(self, nbytes: int) -> np.ndarray:
        """Bytes of page-locked memory, freed with the array."""
        raise NotImplementedError

    def begin_to_device(self, address: int, source: np.ndarray) -> Wait:
        """After all earlier launches."""
        raise NotImplementedError

    def begin_to_host(self, target: np.ndarray, address: int) -> Wait:
        """The same."""
        raise NotImplementedError

    def host_memory(self, nbytes: int) -> np.ndarray:
        return self._pages.memory(nbytes)

    def to_device(self, address: int, source: np.ndarray) -> None:
        self._halves.to_device(
            _bytes(source), lambda start, part: self.begin_to_device(address + start, part)
        )

    def to_host(self, target: np.ndarray, address: int) -> None:
        self._halves.to_host(_bytes(target), lambda start, part: self.begin_to_host(part, address + start))


def _bytes(array: np.ndarray) -> np.ndarray:
    """The memory of a C-contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8)
