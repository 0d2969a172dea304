"""User ids for sandboxes: a worker that is root lets nothing foreign run as root.

Each zygote gets a user of its own that no account and no process of the machine has, so that neither files
nor limits (RLIMIT_NPROC counts by user) are shared with anybody. A worker that is an ordinary user cannot
become another: its sandboxes keep its id in a user namespace, and see nothing of its files.
"""

from __future__ import annotations

import os
import pwd
import random
import socket
from dataclasses import dataclass
from pathlib import Path

RANGES = ((0x7000_0000, 0x7FFE_FFFF), (61184, 65519))
"""The first that this system has: ids that neither people nor containers are given (systemd's UIDS-GIDS.md:
not assigned), else those of its dynamic users."""
_TRIES = 64


class NoIdentity(Exception):
    """No unused user id can be had: one sentence."""


@dataclass
class Identity:
    """A user id, claimed until :meth:`release` or the end of this process."""

    number: int
    _claim: socket.socket

    def release(self) -> None:
        self._claim.close()


def must_change() -> bool:
    """Whether this process is root and can become somebody else. Root of a namespace that has no other user
    is an ordinary user outside, and treated like one."""
    return os.geteuid() == 0 and _range() is not None


def claim() -> Identity:
    """An id that nobody has; raises :class:`NoIdentity`."""
    bounds = _range()
    if bounds is None:
        raise NoIdentity("this user namespace has no unused user id for a sandbox")
    taken = _running()
    for _ in range(_TRIES):
        number = random.SystemRandom().randint(*bounds)
        if number in taken or _has_account(number):
            continue
        # A name without a file: it is gone with this process, and no sandbox sees it (network namespace).
        holder = socket.socket(socket.AF_UNIX)
        try:
            holder.bind(f"\0opatlas-user-{number}")
        except OSError:
            holder.close()
            continue
        return Identity(number, holder)
    raise NoIdentity("no unused user id is left for a sandbox")


def _range() -> tuple[int, int] | None:
    """The ids to choose from, all of them mapped where this process is in a user namespace."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return None
    mapped = [(int(first), int(first) + int(count) - 1) for first, _, count in map(str.split, lines)]
    for low, high in RANGES:
        if any(start <= low and high <= end for start, end in mapped):
            return low, high
    return None


def _running() -> set[int]:
    """User ids of all processes. (The owner of /proc/<pid> is root's for those that cannot be traced.)"""
    found: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - half the time of iterdir
        try:
            status = Path(f"/proc/{name}/status").read_text()
        except OSError:
            continue
        found.update(map(int, status.partition("\nUid:")[2].partition("\n")[0].split()))
    return found


def _has_account(number: int) -> bool:
    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True
