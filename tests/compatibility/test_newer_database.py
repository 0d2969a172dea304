"""A service that is started on a database of another version: one sentence, and nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection

from catalog.versions import NewerDatabase, refuse_newer_database
from tests.compatibility.old_home import unpack
from tests.databases import ROOT

STARTS = {
    "serve": ["manage.py", "serve", "--port", "0"],
    "worker": ["-m", "celery", "-A", "tuning", "--quiet", "worker", "--loglevel", "warning"],
    "web": ["-c", "import dashboard.wsgi"],
}


def migrated(app: str, name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, CURRENT_TIMESTAMP)",
            [app, name],
        )


@pytest.mark.django_db
def test_a_migration_that_this_version_does_not_know_is_refused() -> None:
    refuse_newer_database()
    migrated("gone", "0001_of_an_app_that_was_taken_out")
    refuse_newer_database()
    migrated("catalog", "9999_what_is_to_come")
    with pytest.raises(NewerDatabase, match=r"does not know catalog\.9999_what_is_to_come: start"):
        refuse_newer_database()
    with pytest.raises(NewerDatabase):
        call_command("migrate", verbosity=0, interactive=False)


def written(home: Path) -> dict[str, bytes]:
    """Every file with something in it, but the index that SQLite keeps for readers."""
    files = (path for path in home.rglob("*") if path.is_file() and path.suffix != ".sqlite3-shm")
    return {str(path.relative_to(home)): text for path in files if (text := path.read_bytes())}


@pytest.mark.slow
def test_who_starts_on_it_says_so_and_writes_nothing(tmp_path: Path) -> None:
    """On a home of 7fa76a5, whose migrations are not known here either."""
    home = unpack(tmp_path)
    before = written(home)
    environment = {
        name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "BROKER_URL")
    } | {"OPATLAS_HOME": str(home), "DJANGO_SETTINGS_MODULE": "dashboard.settings"}  # fmt: skip
    processes = {
        name: subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for name, command in STARTS.items()
    }  # fmt: skip
    for name, process in processes.items():
        _, said = process.communicate(timeout=120)
        assert process.returncode == (os.EX_CONFIG if name == "worker" else 1), (name, said)
        assert "The database belongs to another version, since" in said, (name, said)
        assert "Traceback" not in said, (name, said)
    assert written(home) == before
