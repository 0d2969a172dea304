"""The process's thread pools (``pool.c``), built once per machine: one that all C kernels share, and others
for threads that run kernels at the same time."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from opatlas.errors import LoadError
from opatlas.load.built_once import OwnSources
from opatlas.load.toolchain import INCLUDE_FOLDER

_SOURCES = OwnSources("the thread pool", INCLUDE_FOLDER / "pool.c", (INCLUDE_FOLDER / "opatlas_abi.h",))


class ThreadsStruct(ctypes.Structure):
    """``opatlas_threads`` of opatlas_abi.h."""

    _fields_ = [("count", ctypes.c_int32), ("parallel_for", ctypes.c_void_p), ("pool", ctypes.c_void_p)]


class Threads:
    """The ``opatlas_threads`` for a kernel: ``count`` threads of the process's pool, of which at most
    ``most`` work. The kernel must use ``count``, for which its buffers may be made."""

    def __init__(self, count: int, most: int | None = None) -> None:
        library = pool_library()
        self._library = library
        self._handle = library.opatlas_pool_open(count if most is None else min(count, most))
        if not self._handle:
            raise LoadError("no memory for a thread pool's handle")
        entry = ctypes.cast(library.opatlas_pool_parallel_for, ctypes.c_void_p)
        self.struct = ThreadsStruct(count, entry.value, self._handle)

    def close(self) -> None:
        """Release the handle; the pool's threads sleep until the next kernel."""
        if self._handle:
            self._library.opatlas_pool_close(self._handle)
            self._handle = None


@functools.cache
def pool_library() -> ctypes.CDLL:
    """The loaded pool; built first if there is no library of this source."""
    library = _SOURCES.load().handle
    library.opatlas_pool_open.restype = ctypes.c_void_p
    library.opatlas_pool_open.argtypes = [ctypes.c_int32]
    library.opatlas_pool_close.argtypes = [ctypes.c_void_p]
    library.opatlas_pool_close.restype = None
    library.opatlas_pool_enter.argtypes = [ctypes.c_int32, ctypes.c_int32]
    library.opatlas_pool_stop.restype = None
    library.opatlas_pool_workers.restype = ctypes.c_int32
    return library


def enter_pool(number: int, most: int) -> None:
    """Run kernels that this thread calls on a pool of its own from now on, by at most so many threads,
    whatever they are told. ``number``: from 1 on; 0 is the shared pool."""
    if pool_library().opatlas_pool_enter(number, most):
        raise LoadError(f"there is no thread pool {number} for {most} threads")


def ensure_built() -> Path:
    """Path of the pool's library (:meth:`opatlas.load.built_once.OwnSources.ensure_built`)."""
    return _SOURCES.ensure_built()
