"""Permissions of the service's files: its own user alone; in a shared store, those that its administrator
allows."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
import sys
from pathlib import Path

from catalog.conf import conf


def keep_to_ourselves() -> None:
    """Called when a process begins, before it reads settings, which make files: its files, and OPATLAS_HOME
    with the database, sessions and keys, are its user's alone. An open home is closed, with one warning; a
    home of another user causes a warning each time."""
    os.umask(0o077)
    home = conf().home
    home.mkdir(parents=True, exist_ok=True)
    about = home.stat()
    if about.st_mode & 0o077:
        _close(home, stat.S_IMODE(about.st_mode))
    if about.st_uid != os.geteuid():
        print(
            f"{home} belongs to {_name_of(about.st_uid)}, who reads and replaces all that this process keeps "
            f"there: run as that user, or give the folder, and what is in it, to {_name_of(os.geteuid())}.",
            file=sys.stderr,
        )


def _close(home: Path, mode: int) -> None:
    try:
        home.chmod(0o700)
    except OSError:
        print(
            f"{home} is open to other users of this machine ({mode:o}), and only its owner can close it: "
            "chmod 700, then end all sessions and exchange its keys.",
            file=sys.stderr,
        )
    else:
        print(
            f"{home} was open to other users of this machine ({mode:o}): it is closed to them now (700). If "
            "they may have read it, end all sessions and exchange its keys.",
            file=sys.stderr,
        )


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # as in a container
        return f"user {user}"


def store_folder(path: Path) -> Path:
    """A folder in the store, made if needed, with the store's own permissions."""
    store = conf().store
    store.mkdir(parents=True, exist_ok=True)
    if not path.is_dir():
        store_folder(path.parent)
        path.mkdir(exist_ok=True)
        _open_as(path, store.stat(), 0o7777)
    return path


def share_file(path: Path) -> None:
    """Let those read a file of the store who can read the store."""
    _open_as(path, conf().store.stat(), 0o666)


def _open_as(path: Path, store: os.stat_result, most: int) -> None:
    with contextlib.suppress(OSError):  # another user's group, or a file system without modes
        os.chown(path, -1, store.st_gid)
    with contextlib.suppress(OSError):
        path.chmod(stat.S_IMODE(store.st_mode) & most)
