"""What the control groups that this process is in leave it: CPU time and memory.

A container or a systemd unit with a limit has all of the machine's CPUs in its affinity, and all of its
memory in ``/proc/meminfo``: only the control group tells what it may use. A limit of any group above counts
as well.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc/self")
"""Where a process's groups (``cgroup``) and their file systems (``mountinfo``) are told."""

_NO_LIMIT = 1 << 62
"""Version 1 says "no limit" as the most pages that fit into 63 bits."""


class _Mount(NamedTuple):
    """A hierarchy of groups. ``root``: the group at ``folder``, as ``/proc/self/cgroup`` names it."""

    controllers: frozenset[str]  # none: version 2, which has them all
    root: str
    folder: Path


def cpu_quota(proc: Path = PROC) -> float | None:
    """So many CPUs' time, the least of this process's group and those above; None where there is no limit."""
    found = (_cpus(folder) for folder in _folders("cpu", proc))
    return min((cpus for cpus in found if cpus is not None), default=None)


def memory_limit_bytes(proc: Path = PROC) -> int | None:
    """The least limit of this process's group and those above; None where there is none."""
    return min((most for most, _ in _memory_limits(proc)), default=None)


def memory_left_bytes(proc: Path = PROC) -> int | None:
    """What the tightest of these groups has left; None where none has a limit."""
    return min((max(0, most - _held_bytes(folder)) for most, folder in _memory_limits(proc)), default=None)


def _cpus(folder: Path) -> float | None:
    """What one group allows: ``cpu.max`` (version 2) or ``cpu.cfs_quota_us`` (version 1)."""
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    quota = quota or _text(folder / "cpu.cfs_quota_us")
    period = period or _text(folder / "cpu.cfs_period_us")
    try:
        allowed = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):  # "max", no such file
        return None
    return allowed if allowed > 0 else None


def _memory_limits(proc: Path) -> Iterator[tuple[int, Path]]:
    for folder in _folders("memory", proc):
        said = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
        if said.isdigit() and int(said) < _NO_LIMIT:
            yield int(said), folder


def _held_bytes(folder: Path) -> int:
    """What cannot be given back at once: files that were read lately and are mapped nowhere can."""
    held = _text(folder / "memory.current") or _text(folder / "memory.usage_in_bytes")
    told = dict(re.findall(r"^(\w+) (\d+)$", _text(folder / "memory.stat"), re.MULTILINE))
    files = told.get("total_inactive_file") or told.get("inactive_file")  # version 1: with the groups below
    return int(held or 0) - int(files or 0)


def _folders(controller: str, proc: Path) -> tuple[Path, ...]:
    """Of this process's group and those above it, as far as they can be seen; the nearest first."""
    return _folders_said(controller, _text(proc / "cgroup"), _mounts(proc / "mountinfo"))


@lru_cache(maxsize=64)
def _folders_said(controller: str, groups: str, mounts: Sequence[_Mount]) -> tuple[Path, ...]:
    own = {}
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        own.update(dict.fromkeys(names.split(","), path))  # version 2's has the empty name
    found: list[Path] = []
    for mount in mounts:
        group = own.get(controller if mount.controllers else "")
        if group is not None and (not mount.controllers or controller in mount.controllers):
            found += _upwards(mount, group)
    return tuple(found)


@lru_cache(maxsize=64)
def _mounts(mountinfo: Path) -> tuple[_Mount, ...]:
    """Of proc(5): ``36 35 0:28 ROOT FOLDER rw … - TYPE SOURCE OPTIONS``. Read once: where groups are mounted
    does not change, and the kernel takes long to tell it."""
    return tuple(_mounts_said(_text(mountinfo)))


def _mounts_said(text: str) -> Iterator[_Mount]:
    for line in text.splitlines():
        fields, _, kind = line.partition(" - ")
        named, *_, options = kind.split()
        if named in ("cgroup", "cgroup2"):
            _, _, _, root, folder, *_ = fields.split()
            controllers = frozenset(options.split(",")) if named == "cgroup" else frozenset[str]()
            yield _Mount(controllers, _plain(root), Path(_plain(folder)))


def _plain(name: str) -> str:
    """Blanks in names are octal numbers there."""
    return re.sub(r"\\([0-7]{3})", lambda one: chr(int(one[1], 8)), name)


def _upwards(mount: _Mount, path: str) -> list[Path]:
    """The group's folder, and those above it up to where the hierarchy is mounted. A container often sees its
    own group alone, mounted under another name than the group has outside."""
    root = Path(mount.root)
    below = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
    here = mount.folder / below if ".." not in below.parts else mount.folder
    return [here, *(one for one in here.parents if one.is_relative_to(mount.folder))]


def _text(path: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text().strip()
    return ""
