"""Tier T1's own confinement: what ``unshare`` does not do, done by the zygote once it is inside.

A root file system is made of the same allow-list as tier T2's, read-only but for the work folder and a
private ``/tmp``; the machine's own is let go, and every capability is dropped, so that nobody inside can
undo it. Needs Linux 5.12 (``mount_setattr``).
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC = 2, 4, 4096, 16384
_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_ATTR_RDONLY = 1
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
_PR_CAPBSET_DROP = 24
_MOST_CAPABILITIES = 64
_DEVICES = ("null", "zero", "full", "random", "urandom")


class _MountAttr(ctypes.Structure):
    _fields_ = [
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


def confine(plan: Mapping[str, Any]) -> None:
    """Enter the root that ``plan`` describes (:meth:`walls.Walls._plan`), then drop all capabilities. Raises
    OSError where it cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    old, new = _step_aside(libc)
    _furnish(libc, old, new, plan)
    os.chdir(new)
    _pivot(libc, b".", b".")
    _ok(libc.umount2(b".", _MNT_DETACH))
    os.chdir("/")
    _set_attributes(libc, b"/", _AT_RECURSIVE, set_flags=_MOUNT_ATTR_RDONLY)
    for path in (plan["work"], "/tmp", "/dev/shm"):
        _set_attributes(libc, os.fsencode(path), 0, clear_flags=_MOUNT_ATTR_RDONLY)
    os.chdir(plan["work"])
    _drop_capabilities(libc)


def _step_aside(libc: ctypes.CDLL) -> tuple[Path, Path]:
    """Go to an empty root; the machine's then lies below it, whole. Returns where, and where the new one
    goes."""
    _mount_tmpfs(libc, Path("/tmp"), "mode=755,size=1m")
    Path("/tmp/old").mkdir()
    Path("/tmp/new").mkdir()
    _pivot(libc, b"/tmp", b"/tmp/old")
    os.chdir("/")
    _mount_tmpfs(libc, Path("/new"), "mode=755,size=1m")
    return Path("/old"), Path("/new")


def _furnish(libc: ctypes.CDLL, old: Path, new: Path, plan: Mapping[str, Any]) -> None:
    for where, target in plan["links"]:
        _inside(new, where).symlink_to(target)
    for path, size in (("/tmp", plan["tmp_bytes"]), ("/dev/shm", plan["shared_memory_bytes"])):
        _inside(new, path).mkdir()
        _mount_tmpfs(libc, _inside(new, path), f"mode=1777,size={size}")
    for device in _DEVICES:
        _bind(libc, old / "dev" / device, _inside(new, f"/dev/{device}"))
    for node in plan["devices"]:
        _bind(libc, _inside(old, node), _inside(new, node))
    _bind(libc, old / "proc", _inside(new, "/proc"))
    for path, source in plan["shown"].items():
        _bind(libc, _inside(old, source), _inside(new, path))
    for path in plan["hidden"]:
        _mount_tmpfs(libc, _inside(new, path), "mode=555,size=4k")
    for path, text in plan["files"].items():
        _inside(new, path).write_text(text)
    _bind(libc, _inside(old, plan["work"]), _inside(new, plan["work"]))


def _bind(libc: ctypes.CDLL, source: Path, place: Path) -> None:
    if source.is_dir():
        place.mkdir(exist_ok=True)
    else:
        place.touch()
    flags = _MS_BIND | _MS_REC  # what is mounted below cannot be left behind in a user namespace
    _ok(libc.mount(os.fsencode(source), os.fsencode(place), None, flags, None))


def _inside(root: Path, path: str) -> Path:
    """The same path below another root; its folders are made where they are missing."""
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _mount_tmpfs(libc: ctypes.CDLL, place: Path, options: str) -> None:
    flags = _MS_NOSUID | _MS_NODEV
    _ok(libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", flags, options.encode()))


def _pivot(libc: ctypes.CDLL, new: bytes, old: bytes) -> None:
    _ok(libc.syscall(_SYS_PIVOT_ROOT[platform.machine()], new, old))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    for capability in range(_MOST_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails above the last one: nothing to drop there
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _ok(libc.syscall(_SYS_CAPSET[platform.machine()], header, (ctypes.c_uint32 * 6)()))


def _set_attributes(
    libc: ctypes.CDLL, path: bytes, flags: int, set_flags: int = 0, clear_flags: int = 0
) -> None:
    attributes = _MountAttr(set_flags, clear_flags, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _ok(libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, path, flags, ctypes.byref(attributes), size))


def _ok(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
