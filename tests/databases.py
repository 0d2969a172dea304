"""Migrated databases for tests whose services are processes of their own: migrated once, then copied."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import django

ROOT = Path(__file__).resolve().parents[1]


def migrate(url: str) -> None:
    """Every migration of this tree, on an empty database, in a process of its own (some seconds)."""
    program = "import django; django.setup(); from dashboard.run.migrating import migrate; migrate()"
    done = subprocess.run(
        [sys.executable, "-c", program],
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
    shutil.copyfile(migrated_sqlite(), path)
    return f"sqlite:///{path}"


@cache
def migrated_sqlite() -> Path:
    """A database that is only copied."""
    return kept("sqlite3", lambda new: migrate(f"sqlite:///{new}"))


def kept(kind: str, make: Callable[[Path], None]) -> Path:
    """What ``make`` writes of a migrated database: named by what made it, so that it outlives a run and no
    change to a migration."""
    made_by = hashlib.sha256(django.__version__.encode())
    for package in ("catalog", "tuning", "dashboard"):
        for path in sorted((ROOT / package).rglob("migrations/*.py")):
            made_by.update(path.read_bytes())
    there = ROOT / "var" / "test-databases" / f"{made_by.hexdigest()[:16]}.{kind}"
    if not there.exists():
        there.parent.mkdir(parents=True, exist_ok=True)
        with (there.parent / f"{kind}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one process makes it, others wait
            if not there.exists():
                with tempfile.TemporaryDirectory(dir=there.parent) as folder:
                    make(new := Path(folder) / there.name)
                    new.replace(there)
            for stale in there.parent.glob(f"*.{kind}"):
                if stale != there:
                    stale.unlink(missing_ok=True)
    return there


MIGRATED = {"django_content_type", "auth_permission", "catalog_recall"}
"""Tables whose rows migrating makes, for all there is in the code: no test changes them (some add recalls)"""


def empty(connection: Any) -> None:
    """Delete what tests left, past the triggers that refuse it.

    Django's flush deletes from a hundred tables, of which few have rows, and then makes the rows of
    ``MIGRATED`` anew, both longer than most tests.
    """
    from django.db import transaction

    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    quoted = {name: connection.ops.quote_name(name) for name in sorted(set(names) - MIGRATED)}
    looks = (f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {table})" for name, table in quoted.items())
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(looks))
        filled = [name for (name,) in cursor.fetchall()]
        triggers = []
        if connection.vendor == "sqlite":
            cursor.execute("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'")
            triggers = [(name, sql) for name, table, sql in cursor.fetchall() if table in filled]
        else:
            cursor.execute("SET LOCAL session_replication_role = replica")  # no trigger fires
        for name, _ in triggers:
            cursor.execute(f'DROP TRIGGER "{name}"')
        for name in filled:
            cursor.execute(f"DELETE FROM {quoted[name]}")
            if connection.vendor == "sqlite":  # whose numbers a rollback gives back too
                cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [name])
        for _, sql in triggers:
            cursor.execute(sql)
