"""One flag that Celery's main process and its pool children share: the worker was told to stop.

A warm shutdown waits for the running task, which would explore until nothing is left, and a signal to the
pool child would kill it. So one byte of memory shared by the fork is the signal.
"""

from __future__ import annotations

import mmap

_flag = mmap.mmap(-1, 1)


def ask() -> None:
    """Ask this process and all that were forked from it to stop soon."""
    _flag[0] = 1


def is_asked() -> bool:
    return _flag[0] == 1


def forget() -> None:
    """For tests, which stop more than once in one process."""
    _flag[0] = 0
