"""Scratch folders below OPATLAS_HOME, and what killed workers left of them."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

OLD_S = 600.0

_OF_A_PROCESS = re.compile(r"(?:lab|work)-(\d+)-")


def folder(home: Path) -> Path:
    """Where slices have their work folders."""
    path = home / "work"
    path.mkdir(parents=True, exist_ok=True)
    return path


def prefix() -> str:
    """How this process's work folders begin: with whose they are."""
    return f"work-{os.getpid()}-"


def sweep(home: Path) -> int:
    """Remove folders of processes that are gone (laboratories' too); returns how many.

    Only old ones: a folder that is shared with another machine's workers names processes unknown here.
    """
    removed = 0
    for path in [*home.glob("lab-*"), *folder(home).glob("work-*")]:
        owner = _OF_A_PROCESS.match(path.name)
        if owner and not Path(f"/proc/{owner[1]}").exists() and time.time() - path.stat().st_mtime > OLD_S:
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
    return removed
