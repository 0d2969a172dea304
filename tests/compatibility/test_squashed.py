"""A new database by squashed migrations is what it was by those that they replace, and one that has some of
these goes on by them."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader

from tests.databases import ROOT, migrate
from tests.services import PrivatePostgres

BY_THE_REPLACED = """
import sys
import django
django.setup()
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
executor = MigrationExecutor(connection)
executor.loader = MigrationLoader(connection, replace_migrations=False)
whole = [key for key in executor.loader.graph.leaf_nodes() if "_squashed_" not in key[1]]
executor.migrate([tuple(name.split(".")) for name in sys.argv[1:]] or whole)
"""
HALFWAY = ("catalog.0012_lookups_of_reports", "billing.0005_ended_spendings", "tuning.0008_rechecks_repeated")


def by_the_replaced(url: str, *names: str) -> None:
    """Migrate so far, or to the end, as if there were no squashed ones."""
    environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "dashboard.settings_test"}
    command = [sys.executable, "-c", BY_THE_REPLACED, *names]
    subprocess.run(command, env=environment, cwd=ROOT, check=True)


def sorted_columns(text: str) -> str:
    """A trigger's columns are those of its table, in the order in which that came to them."""
    return re.sub(
        "(UPDATE OF )(.*?)( ON )", lambda of: of[1] + ", ".join(sorted(of[2].split(", "))) + of[3], text
    )


def of_sqlite(url: str) -> set[str]:
    """All that there is, by its text; a table's columns and constraints without their order."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        texts = [text for (text,) in database.execute("SELECT sql FROM sqlite_master WHERE sql > ''")]
        applied = database.execute("SELECT app, name FROM django_migrations").fetchall()
    made = set(map(str, applied))
    for text in texts:
        head, _, body = text.partition("(")
        made |= (
            {head + part for part in parts(body)}
            if text.startswith("CREATE TABLE")
            else {sorted_columns(text)}
        )
    return made


def parts(body: str) -> Iterator[str]:
    """What commas divide that stand in no brackets."""
    depth, began = 0, 0
    for at, sign in enumerate(body):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if depth < 0 or (sign == "," and not depth):
            yield body[began:at].strip()
            began = at + 1


def of_postgres(server: PrivatePostgres, url: str) -> set[str]:
    """Statements of its dump, a table's columns without their order; and which migrations it has."""
    command = [str(server.programs / "pg_dump"), "--no-owner", "--schema-only", url]
    dump = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    dump = sorted_columns(re.sub(r"^(--|\\).*\n", "", dump, flags=re.MULTILINE))
    made = set[str]()
    for statement in dump.split(";\n\n"):
        lines = [line.strip().rstrip(",") for line in statement.strip().splitlines()]
        made |= {f"{lines[0]} {line}" for line in lines} if lines else set()
    command = ["--data-only", "--table=django_migrations", "--column-inserts"]
    rows = subprocess.run(
        [str(server.programs / "pg_dump"), *command, url], capture_output=True, text=True, check=True
    ).stdout
    return made | set(re.findall(r"VALUES \(\d+, ('\w+', '\w+')", rows))


def test_they_make_the_same_models() -> None:
    replaced, squashed = (
        MigrationLoader(None, replace_migrations=by).project_state(
            [key for key in MigrationLoader(None, replace_migrations=by).graph.leaf_nodes()
             if by or "_squashed_" not in key[1]]
        )
        for by in (False, True)
    )  # fmt: skip
    assert replaced.models.keys() == squashed.models.keys()
    assert not MigrationAutodetector(replaced, squashed)._detect_changes()


@pytest.mark.nightly
@pytest.mark.parametrize("far", [(), HALFWAY], ids=["whole", "halfway"])
def test_on_sqlite(tmp_path: Path, far: tuple[str, ...]) -> None:
    old, new = (f"sqlite:///{tmp_path / name}.sqlite3" for name in ("old", "new"))
    by_the_replaced(old, *far)
    migrate(old)
    migrate(new)
    assert of_sqlite(old) == of_sqlite(new)


@pytest.mark.nightly
@pytest.mark.services
def test_on_postgres(private_postgres: PrivatePostgres) -> None:
    old, new = private_postgres.new_database(), private_postgres.new_database()
    by_the_replaced(old, *HALFWAY)
    migrate(old)
    migrate(new)
    assert of_postgres(private_postgres, old) == of_postgres(private_postgres, new)
