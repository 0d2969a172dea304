"""Private servers for tests (:mod:`bench.servers`), with migrated databases that are copied."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from bench import servers
from bench.servers import NOT_TESTED, MissingProgram, PrivateRedis, checked
from tests.databases import ROOT, kept, migrate, migrated_sqlite

__all__ = [
    "NOT_TESTED", "MissingProgram", "PrivatePostgres", "PrivateRedis",
    "make_migrated", "once_more_on_postgres", "or_skip",
]  # fmt: skip
T = TypeVar("T")
MIGRATED = "migrated"
"""The database of each server that others are copies of."""


def or_skip(start: Callable[[], T]) -> T:
    """What ``start`` gives. Without its program the test is skipped, or fails where services are required."""
    try:
        return start()
    except MissingProgram as missing:
        if os.environ.get("OPATLAS_REQUIRE_SERVICES") == "1":
            pytest.fail(f"{missing} and OPATLAS_REQUIRE_SERVICES=1 forbids to go without", pytrace=False)
        pytest.skip(str(missing))


class PrivatePostgres(servers.PrivatePostgres):
    """Its data is a copy of what was made and migrated once for all servers."""

    def new_database(self, *, migrated: bool = False) -> str:
        """The DATABASE_URL of a new database, empty or migrated."""
        self._databases += 1
        return self.create(f"opatlas_{self._databases}", MIGRATED if migrated else "template1")

    def new_tested_database(self) -> str:
        """The DATABASE_URL of a new database beside which Django's test database lies, migrated."""
        url = self.new_database()
        self.create(f"test_opatlas_{self._databases}", MIGRATED)
        return url

    def _make(self, data: Path) -> None:
        with _migrated_postgres(self.programs).open("rb") as packed:
            checked(["tar", "-C", data.parent, "-xf", "-"], user=self._user, stdin=packed)


def _migrated_postgres(programs: Path) -> Path:
    """The data of a server with a migrated database, for servers of this version."""

    def make(path: Path) -> None:
        server = servers.PrivatePostgres()
        try:
            migrate(server.create(MIGRATED))
            server.pack(path)
        finally:
            server.stop()

    said = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, check=True)
    return kept(f"postgres-{said.stdout.split()[2]}.tar", make)


def once_more_on_postgres(server: PrivatePostgres, *tests: str, nightly: bool = True) -> str:
    """Run tests that are neither slow nor need a service in a pytest of their own, on PostgreSQL.

    They must pass; what pytest printed is returned. --reuse-db takes the copy of a migrated database as it
    is. It cannot be stale: this run's own server made it, from the migrations of this tree.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--reuse-db",
         "-m", "not services and not slow" + ("" if nightly else " and not nightly"), *tests],
        env={**os.environ, "DATABASE_URL": server.new_tested_database()},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=580,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
    return done.stdout


def make_migrated() -> None:
    """The databases that tests copy, before they ask for them, where they are not kept already."""
    migrated_sqlite()
    if programs := servers.postgres_folder():
        with contextlib.suppress(MissingProgram):
            _migrated_postgres(programs)
