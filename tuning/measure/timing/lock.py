"""The machine's measurement lock: a measurement excludes builds and other measurements in all workers.

Two advisory file locks. ``gate`` is held while waiting for ``floor``, so that a measurement which waits for
running builds is not overtaken for ever by new ones.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tuning.conf import conf


class MachineLock:
    """Shared for builds, exclusive for measurements. Not reentrant; one per laboratory."""

    def __init__(self, path: Path | None = None) -> None:
        path = path or conf().lock  # one for the whole machine
        self._gate = _open(path.with_name(path.name + ".gate"))
        self._floor = _open(path)

    @contextmanager
    def building(self) -> Iterator[None]:
        """Beside other builds, never beside a measurement."""
        with self._held(fcntl.LOCK_SH):
            yield

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Alone on the machine."""
        with self._held(fcntl.LOCK_EX):
            yield

    @contextmanager
    def _held(self, mode: int) -> Iterator[None]:
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._floor, mode)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._floor, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._gate)
        os.close(self._floor)


def _open(path: Path) -> int:
    # Workers of several users share one machine: the lock must be theirs too, whatever the umask.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    if os.fstat(fd).st_uid == os.geteuid():
        os.fchmod(fd, 0o666)
    return fd
