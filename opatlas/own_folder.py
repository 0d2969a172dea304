"""A folder in which a job finds what it runs: nobody else may write there."""

from __future__ import annotations

import os
import stat
from pathlib import Path


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
    raise PermissionError(f"the folder {path} is {why}: name one of your own (OPATLAS_CACHE, chmod go-w)")
