"""Scratch folders below OPATLAS_HOME, and what killed workers left of them."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OLD_S = 600.0

_OF_A_PROCESS = re.compile(r"(?:lab|work)-(\d+)-")


@contextmanager
def folder_of_work(home: Path) -> Iterator[Path]:
    """A folder for one piece of work, named by whose it is, and gone after it."""
    works = home / "work"
    works.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=works, prefix=f"work-{os.getpid()}-") as folder:
        yield Path(folder)


def sweep(home: Path) -> int:
    """Remove folders of processes that are gone (laboratories' too); returns how many.

    Only old ones: a folder that is shared with another machine's workers names processes unknown here.
    """
    removed = 0
    for path in [*home.glob("lab-*"), *home.glob("work/work-*")]:
        owner = _OF_A_PROCESS.match(path.name)
        if owner and not Path(f"/proc/{owner[1]}").exists() and time.time() - path.stat().st_mtime > OLD_S:
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
    return removed
