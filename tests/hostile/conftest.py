"""A service's state on disk, as processes of its own see it: on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.databases import ROOT, new_sqlite


@dataclass
class Deployment:
    """An empty, migrated database with its folder; ``environment`` is what its processes run in."""

    environment: dict[str, str]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> str:
        """Run a process to its end; gives what it printed."""
        process = self.start(*arguments)
        said, complaints = process.communicate(timeout=120)
        assert process.returncode == 0, complaints[-3000:]
        return said

    def manage(self, *arguments: str) -> str:
        return self.run("manage.py", *arguments)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a query, past the service's own processes."""
        if url := self.environment.get("DATABASE_URL"):
            with psycopg.connect(url) as connection:
                return connection.execute(sql.encode()).fetchall()
        with closing(sqlite3.connect(Path(self.environment["OPATLAS_HOME"]) / "opatlas.sqlite3")) as database:
            return database.execute(sql).fetchall()


@pytest.fixture
def deploy(tmp_path: Path) -> Callable[..., Deployment]:
    """``deploy(DATABASE_URL=…)``: a state folder with a migrated database, SQLite where none is given."""

    def make(**variables: str) -> Deployment:
        inherited = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        environment = inherited | {
            "OPATLAS_HOME": str(tmp_path / "home"),
            "OPATLAS_LOG": "ERROR",
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
            **variables,
        }
        if "DATABASE_URL" not in variables:
            new_sqlite(tmp_path / "home" / "opatlas.sqlite3")
        return Deployment(environment)

    return make


def by_day_on(engine: str) -> pytest.MarkDecorator:
    """A test of ``deployment`` on this database; on the other one nightly."""
    params = [
        pytest.param(
            name,
            marks=[pytest.mark.services] * (name == "postgres") + [pytest.mark.nightly] * (name != engine),
        )
        for name in ("sqlite", "postgres")
    ]
    return pytest.mark.parametrize("deployment", params, indirect=True)


@pytest.fixture
def deployment(request: pytest.FixtureRequest, deploy: Callable[..., Deployment]) -> Iterator[Deployment]:
    """``by_day_on`` says of which database."""
    if request.param == "sqlite":
        yield deploy()
    else:
        yield deploy(DATABASE_URL=request.getfixturevalue("private_postgres").new_database(migrated=True))
