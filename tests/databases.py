"""Migrated databases for tests whose services are processes of their own: migrated once, then copied."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def migrate(url: str) -> None:
    """Every migration of this tree, on an empty database, in a process of its own (some seconds)."""
    done = subprocess.run(
        [sys.executable, "-m", "django", "migrate", "-v0"],
        env={**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "dashboard.settings_test"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"migrate failed: {done.stderr[-2000:]}")


def new_sqlite(path: Path) -> str:
    """A migrated SQLite database at ``path``; gives its DATABASE_URL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_migrated_sqlite(), path)
    return f"sqlite:///{path}"


@cache
def _migrated_sqlite() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="opatlas-migrated-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "migrated.sqlite3"
    migrate(f"sqlite:///{path}")
    return path
