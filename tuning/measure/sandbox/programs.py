"""The system's programs that make sandboxes: found once, by an absolute path that nobody else can write
to."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from opatlas.own_folder import why_others_write

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
    if why := why_others_write(path):
        raise NoProgram(f"{path} is not used: {why}")
    return str(path)
