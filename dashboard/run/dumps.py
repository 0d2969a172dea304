"""Copies a database into one file and back: SQLite's online copy, PostgreSQL's own dump.

PostgreSQL's programs get the database's address by their environment: a password in a command line could be
read by everybody on the machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from django.db import DatabaseError, connection

from dashboard.run.keys import copy_private

FILES = {"sqlite": "database.sqlite3", "postgresql": "database.pgdump"}
_VARIABLES = {
    "HOST": "PGHOST",
    "PORT": "PGPORT",
    "USER": "PGUSER",
    "PASSWORD": "PGPASSWORD",
    "NAME": "PGDATABASE",
}
_SAID_CHARACTERS = 300


class DumpError(Exception):
    """The database cannot be copied or filled, in one sentence."""


def dump(destination: Path) -> None:
    """The whole database as of one moment, while others write. For its owner's eyes only."""
    destination.touch(mode=0o600)
    if connection.vendor == "sqlite":
        copy_sqlite(Path(str(connection.settings_dict["NAME"])), destination)
    else:
        _run("pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={destination}")


def fill(source: Path) -> None:
    """Load a dump into the empty database. On PostgreSQL all of it or nothing."""
    if connection.vendor == "sqlite":
        _fill_sqlite(source)
    else:
        how = ["--exit-on-error", "--no-owner", "--no-privileges", "--single-transaction"]
        _run("pg_restore", *how, f"--dbname={connection.settings_dict['NAME']}", str(source))


def tables() -> list[str]:
    """What the database holds already."""
    try:
        return connection.introspection.table_names()
    except DatabaseError as error:
        raise DumpError(f"The database cannot be read: {error}") from error


def copy_sqlite(source: Path, destination: Path, patience_s: float = 60.0) -> None:
    """In one step: readers do not keep SQLite's writers waiting, and a copy in several begins anew with each
    write."""
    import sqlite3  # pysqlite3, by dashboard.project.sqlite

    until = time.monotonic() + patience_s

    def tried(status: int, remaining: int, total: int) -> None:
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and time.monotonic() > until:
            raise DumpError(f"{source} is locked by another program.")

    address = f"file:{quote(str(source))}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as read, closing(sqlite3.connect(destination)) as copied:
        read.backup(copied, progress=tried)


def _fill_sqlite(source: Path) -> None:
    path = Path(str(connection.settings_dict["NAME"]))
    connection.close()
    for name in (f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
    copy_private(source, path)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA quick_check(1)")
        if (found := cursor.fetchone()) != ("ok",):
            raise DumpError(f"The database in it is damaged: {found}.")


def _run(program: str, *options: str) -> None:
    try:
        done = subprocess.run(
            [_found(program), *options],
            env=_environment(),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise DumpError(f"{program} cannot be run: {error}.") from error
    if done.returncode:
        said = " ".join(done.stderr.split())[-_SAID_CHARACTERS:]
        raise DumpError(f"{program} failed: {said}")


def _found(program: str) -> str:
    """Debian keeps some of these programs out of the PATH; the newest reads every older server."""
    installed = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), key=lambda path: int(path.parts[-3])
    )
    found = str(installed[-1]) if installed else shutil.which(program)
    if found is None:
        raise DumpError(f"There is no {program}: install PostgreSQL's client programs.")
    return found


def _environment() -> dict[str, str]:
    """Where the database is, with its password, as libpq reads it."""
    settings = connection.settings_dict
    said = {variable: str(settings[name]) for name, variable in _VARIABLES.items() if settings.get(name)}
    said |= {
        f"PG{name.upper()}": str(settings["OPTIONS"][name])
        for name in ("sslmode", "sslrootcert", "sslcert", "sslkey")
        if name in settings.get("OPTIONS", {})
    }
    return {**os.environ, **said, "PGCONNECT_TIMEOUT": "10"}
