"""Signs of life for a supervisor: the parent process, systemd, or a container's.

A part of a process (the threads of one task) touches a file of its name in the folder ``OPATLAS_ALIVE``, once
a second while it makes progress. The supervisor watches the file. systemd is told through its own socket. If
neither is set, a sign of life costs nothing.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

from catalog.conf import conf

EVERY_S = 1.0

_said_at: dict[str, float] = {}


def beat(part: str) -> None:
    """``part`` made progress; shown at most once a second. Errors are ignored."""
    now = time.monotonic()
    if now - _said_at.get(part, -EVERY_S) < EVERY_S:
        return
    _said_at[part] = now
    folder = conf().alive
    if folder is not None:
        with suppress(OSError):
            (folder / part).touch()  # its time alone: nothing is written that a full disk could refuse
    if address := os.environ.get("NOTIFY_SOCKET"):
        with suppress(OSError):
            _notify(address)


def _notify(address: str) -> None:
    """sd_notify(3): the unit's WatchdogSec begins anew."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.connect(f"\0{address[1:]}" if address.startswith("@") else address)
        to.send(b"WATCHDOG=1")
