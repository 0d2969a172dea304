"""The system's programs that make sandboxes: found once, by an absolute path that nobody else can write
to."""

from __future__ import annotations

import os
import shutil
import stat
from functools import cache
from pathlib import Path

PACKAGES = {"bwrap": "bubblewrap", "unshare": "util-linux", "setpriv": "util-linux", "setarch": "util-linux"}


class NoProgram(Exception):
    """It is not here, or is not to be trusted: one sentence."""


@cache
def program(name: str) -> str:
    """The absolute path of ``name`` on this process's PATH; raises :class:`NoProgram`.

    The path is what is run later: another PATH finds another program.
    """
    found = shutil.which(name)
    if found is None:
        raise NoProgram(f"{name} is not installed (apt-get install {PACKAGES[name]})")
    path = Path(found).resolve()
    for place in (path, *path.parents):
        if why := _others_write(place):
            raise NoProgram(f"{path} is not used: {why}")
    return str(path)


def _others_write(place: Path) -> str:
    """Why others could replace what is here; empty where they cannot."""
    about = place.stat()
    if about.st_uid not in (0, os.geteuid()):
        return f"{place} belongs to another user"
    sticky = stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX
    return f"others may write to {place}" if about.st_mode & 0o022 and not sticky else ""
