"""Where large tensors are allocated: a setting of the whole process."""

from __future__ import annotations

import ctypes

from opatlas.errors import LoadError

LARGE_BYTES = 31 << 20
"""glibc maps larger allocations anew each time, even in long-running processes (its own bound is 32 MiB)."""

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # malloc.h


def take_large_from_heap() -> None:
    """Take large allocations from the heap from now on, and keep freed memory there.

    Memory that is mapped for each tensor is faulted in page by page in every call, which takes longer than
    most operators: a layer norm over 100 MB took 75 ms, and 24 ms from the heap. In return the process never
    shrinks. Raises :class:`LoadError` without glibc.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "gnu_get_libc_version"):
        raise LoadError("memory 'heap' needs glibc's mallopt")
    if not (libc.mallopt(_MMAP_MAX, 0) and libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)):
        raise LoadError("glibc refused to take large allocations from the heap")
