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


def or_skip(start: Callable[[], T]) -> T:
    """What ``start`` gives. Without its program the test is skipped, or fails where services are required."""
    try:
        return start()
    except MissingProgram as missing:
        if os.environ.get("OPATLAS_REQUIRE_SERVICES") == "1":
            pytest.fail(f"{missing} and OPATLAS_REQUIRE_SERVICES=1 forbids to go without", pytrace=False)
        pytest.skip(str(missing))


class PrivatePostgres(servers.PrivatePostgres):
    def __init__(self) -> None:
        super().__init__()
        self._template = ""

    def new_database(self, *, migrated: bool = False) -> str:
        """The DATABASE_URL of a new database, empty or migrated."""
        self._databases += 1
        return self.create(f"opatlas_{self._databases}", self._migrated() if migrated else "template1")

    def new_tested_database(self) -> str:
        """The DATABASE_URL of a new database beside which Django's test database lies, migrated."""
        url = self.new_database()
        self.create(f"test_opatlas_{self._databases}", self._migrated())
        return url

    def _migrated(self) -> str:
        """The database that copies are made of: migrations run once for all servers, then it is read from
        what was kept."""
        if not self._template:
            dump = kept("postgres", self._dump_migrated)
            url = self.create("migrated")
            checked([self.programs / "pg_restore", "--exit-on-error", "--no-owner", "-d", url, dump])
            self._template = "migrated"
        return self._template

    def _dump_migrated(self, path: Path) -> None:
        migrate(url := self.create("migrating"))
        checked([self.programs / "pg_dump", "-Fc", "--no-owner", "-f", path, url])


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

    def dump(path: Path) -> None:
        server = PrivatePostgres()
        try:
            server._dump_migrated(path)
        finally:
            server.stop()

    migrated_sqlite()
    with contextlib.suppress(MissingProgram):
        kept("postgres", dump)
