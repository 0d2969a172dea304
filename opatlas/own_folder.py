"""Folders and files in which a job finds what it runs or believes: nobody else may write there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_ADVICE = "name one of your own (OPATLAS_CACHE, chmod go-w)"


def own_folder(path: Path) -> None:
    """Make it for this user alone, where there is none. Raises PermissionError where another user owns it or
    may write into it: whose keys sign kernels is read from there."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = path.stat()
    if found.st_uid != os.geteuid():
        why = "another user's"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = "open for others to write into"
    else:
        return
    raise PermissionError(f"the folder {path} is {why}: {_ADVICE}")


def read_own(path: Path) -> bytes:
    """A file's bytes, where nobody but this user and root can have written them or put the file there: what
    is loaded or believed is these bytes, not whatever lies there later.

    Raises FileNotFoundError where there is none, PermissionError where others could have written it: it is
    another user's, or it or its folder is open for them; OSError for a link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as stream:
        about = os.fstat(descriptor)
        why = "" if stat.S_ISREG(about.st_mode) else f"{path} is no file"
        why = why or _why_open(path, about) or _why_open(path.parent, path.parent.stat())
        if why:
            raise PermissionError(f"{why}: {_ADVICE}")
        return stream.read()


def is_own(path: Path) -> bool:
    """Whether there is a file that :func:`read_own` reads."""
    try:
        read_own(path)
    except OSError:
        return False
    return True


def why_others_write(place: Path) -> str:
    """Why others could replace what is at a path without links, a sentence; empty where they cannot."""
    return next(filter(None, (_why_open(one, one.stat()) for one in (place, *place.parents))), "")


def _why_open(place: Path, about: os.stat_result) -> str:
    if about.st_uid not in (0, os.geteuid()):
        return f"{place} belongs to another user"
    sticky = stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX
    return f"others may write to {place}" if about.st_mode & 0o022 and not sticky else ""
