"""The machine's measurement lock: a measurement excludes builds and other measurements in all workers.

Two advisory file locks. ``gate`` is held while waiting for ``floor``, so that a measurement which waits for
running builds is not overtaken for ever by new ones. A worker of a device holds one more for its life.
"""

from __future__ import annotations

import fcntl
import os
import re
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

    @contextmanager
    def alone_meanwhile(self) -> Iterator[None]:
        """For who is ``building``: alone on the machine for a while, then beside other builds again. What is
        held is given back first: whoever waits to measure waits for it."""
        fcntl.flock(self._floor, fcntl.LOCK_UN)
        try:
            with self.measuring():
                yield
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_EX)
            try:
                fcntl.flock(self._floor, fcntl.LOCK_SH)
            finally:
                fcntl.flock(self._gate, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._gate)
        os.close(self._floor)


class DeviceTaken(Exception):
    """Another worker of this machine serves the device: one sentence."""


_devices: dict[Path, int] = {}  # locks that this process, or the one that forked it, holds for its life


def take_device(name: str, identity: str, path: Path | None = None) -> None:
    """Be the only one who serves a device of this machine, until this process and its forks end; again is
    harmless. Its measurements hold the machine's lock too: what is launched is launched by a processor.

    ``identity`` is what all who see the device call it. Raises :class:`DeviceTaken`.
    """
    path = path or conf().lock
    path = path.with_name(f"{path.name}.{re.sub('[^A-Za-z0-9-]', '-', identity)}")
    if path in _devices:
        return
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DeviceTaken(f"{name} is served by another worker of this machine already.") from None
    _devices[path] = descriptor


def _open(path: Path) -> int:
    # Workers of several users share one machine: the lock must be theirs too, whatever the umask.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    if os.fstat(fd).st_uid == os.geteuid():
        os.fchmod(fd, 0o666)
    return fd
