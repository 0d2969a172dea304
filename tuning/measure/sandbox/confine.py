"""Tier T1's own confinement: what ``unshare`` does not do, done by the zygote once it is inside.

The host's file system becomes read-only but for the work folder, and every capability is dropped, so that
nobody inside can undo it. Needs Linux 5.12 (``mount_setattr``).
"""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

_MS_BIND = 4096
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_ATTR_RDONLY = 1
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522
_PR_CAPBSET_DROP = 24
_MOST_CAPABILITIES = 64


class _MountAttr(ctypes.Structure):
    _fields_ = [
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


def confine(work: Path) -> None:
    """Make everything but ``work`` read-only, then drop all capabilities. Raises OSError where it cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    path = os.fsencode(work)
    # Its own mount, so that it can stay writable when the rest no longer is.
    _ok(libc.mount(path, path, None, _MS_BIND, None))
    _set_attributes(libc, b"/", _AT_RECURSIVE, set_flags=_MOUNT_ATTR_RDONLY)
    _set_attributes(libc, path, 0, clear_flags=_MOUNT_ATTR_RDONLY)
    os.chdir(work)  # through the new mount: the old working folder still leads to the read-only one
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
