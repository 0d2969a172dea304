"""Migrated databases for tests whose services are processes of their own: migrated once, then copied."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import django

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
    """Named by what made it, so that it outlives a run and no change to a migration."""
    made_by = hashlib.sha256(django.__version__.encode())
    for package in ("catalog", "tuning", "dashboard"):
        for path in sorted((ROOT / package).rglob("migrations/*.py")):
            made_by.update(path.read_bytes())
    kept = ROOT / "var" / "test-databases" / f"{made_by.hexdigest()[:16]}.sqlite3"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:  # another process may make it as well
            new = Path(folder) / kept.name
            migrate(f"sqlite:///{new}")
            new.replace(kept)
        for stale in kept.parent.glob("*.sqlite3"):
            if stale != kept:
                stale.unlink(missing_ok=True)
    return kept
