"""A control group for each zygote, where the system gives one: limits on memory and processes that need no
watching.

Version 2: below a group that was delegated to us (systemd: ``Delegate=memory pids`` with
``DelegateSubgroup=``). Version 1: below our own group of the controllers ``memory`` and ``pids``. Where
neither can be written to, the limits are those of the parent that watches, and of ``setrlimit``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tuning.measure import procfs

MOUNT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
CONTROLLERS = ("memory", "pids")
ENDING_S = 2.0
_ENTER = 'while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'


class Group:
    """The control groups of one zygote: one of version 2, or one of each controller of version 1."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folders)

    def entering(self) -> list[str]:
        """What to put in front of a command so that it and all it starts are in the group from the first
        moment."""
        return ["/bin/sh", "-c", _ENTER, "enter", *map(str, self.folders), "--"]

    def limit(self, memory_bytes: int, processes: int) -> None:
        """Bound all processes of the group together. A limit that the system refuses (below what is in use)
        is left as it was."""
        for folder in self.folders:
            for name, value in (
                ("memory.max", memory_bytes),
                ("memory.swap.max", 0),
                ("memory.limit_in_bytes", memory_bytes),
                ("pids.max", processes),
            ):
                if (folder / name).exists():
                    with contextlib.suppress(OSError):
                        (folder / name).write_text(str(value))

    def killed_for_memory(self) -> int:
        """How many of its processes the system ended for want of memory."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError, ValueError):
                    lines = dict(line.split() for line in (folder / name).read_text().splitlines())
                    return int(lines.get("oom_kill", 0))
        return 0

    def remove(self) -> None:
        """End whoever is left in it, and remove it."""
        deadline = time.monotonic() + ENDING_S
        for folder in self.folders:
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        break
                    _end(folder)
                    time.sleep(0.002)


def create(name: str) -> Group | None:
    """A group of this name, or None where the system gives none."""
    if why_not() is not None:
        return None
    try:
        return _create(name)
    except OSError:
        return None


@cache
def why_not() -> str | None:
    """None where groups can be made and entered here (it is tried); else one sentence."""
    if not _parents():
        return (
            "no control group with memory and pids can be written to"
            " (systemd: Delegate=memory pids, DelegateSubgroup=worker)"
        )
    try:
        group = _create(f"opatlas-try-{os.getpid()}")
    except OSError as error:
        return f"control groups cannot be made here: {error.strerror}"
    try:
        tried = subprocess.run([*group.entering(), "true"], capture_output=True, timeout=10, check=False)
        return None if tried.returncode == 0 else "a control group cannot be entered here"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a control group cannot be entered here: {error}"
    finally:
        group.remove()


def _create(name: str) -> Group:
    made: list[Path] = []
    try:
        for parent in _parents():
            _sweep(parent)
            (parent / name).mkdir()
            made.append(parent / name)
    except OSError:
        Group(made).remove()
        raise
    return Group(made)


def _sweep(parent: Path) -> None:
    """Remove what workers left that were killed: empty groups whose maker (in the name) is gone."""
    for left in parent.glob("opatlas-*-*"):
        maker = left.name.split("-")[-2]
        if maker.isdigit() and not Path(f"/proc/{maker}").exists():
            with contextlib.suppress(OSError):  # not empty, or another worker was faster
                left.rmdir()


def _parents() -> tuple[Path, ...]:
    """The groups below which ours are made; none where the system gives none."""
    own = _own_groups()
    first = [MOUNT / name / own[name].lstrip("/") for name in CONTROLLERS if name in own]
    if len(first) == len(CONTROLLERS):
        return tuple(first) if all(os.access(path, os.W_OK) for path in first) else ()
    if "" not in own or not (MOUNT / "cgroup.controllers").exists():
        return ()
    here = MOUNT / own[""].lstrip("/")
    # With processes of its own a group cannot have limited groups below: then those beside it.
    for parent in (here, here.parent):
        if parent.is_relative_to(MOUNT) and _gives(parent):
            return (parent,)
    return ()


def _gives(parent: Path) -> bool:
    """Whether groups below get both controllers, switched on where that is possible."""
    if not os.access(parent, os.W_OK):
        return False
    control = parent / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        if not set(CONTROLLERS) <= set(control.read_text().split()):
            control.write_text(" ".join(f"+{name}" for name in CONTROLLERS))
        return set(CONTROLLERS) <= set(control.read_text().split())
    return False


def _own_groups() -> dict[str, str]:
    """Controller → our group; version 2's has the empty name."""
    found = {}
    with contextlib.suppress(OSError):
        for line in OWN.read_text().splitlines():
            _, names, path = line.split(":", 2)
            found.update(dict.fromkeys(names.split(","), path))
    return found


def _end(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for number in (folder / "cgroup.procs").read_text().split():
            procfs.kill(int(number))
