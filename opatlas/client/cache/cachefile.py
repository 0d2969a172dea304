"""The file of a machine's cache: one SQLite file that all of a user's processes share.

It must never break a job: unreadable rows count as unknown, and failed writes are dropped. A damaged or
foreign file is renamed, and a new one begun. SQLite uses a rollback journal (the WAL of Debian's 3.40.1 can
corrupt a file) and does not wait for the disk: a killed process loses nothing, a power cut may damage the
file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from opatlas.own_folder import own_folder

T = TypeVar("T")
log = logging.getLogger("opatlas")

FORMAT = 1
"""Each format has its own file: versions of the client never read each other's."""
SCHEMA = 2
"""Tables added within a format: older files get them, and an older client still works."""
APPLICATION = 0x6F706174  # "opat"
BUSY_S = 0.25
"""Longer than any of our writes; a process that waits longer goes on without the file,"""
LEFT_ALONE_S = 2.0
"""and does not use it for so long."""
ROOM = 0.9
"""The share of the limit that is left after dropping the least used entries."""
MOST_REPORTS = 10_000

TABLES = """
CREATE TABLE IF NOT EXISTS entries (
  place BLOB NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, digest BLOB NOT NULL,
  stored_at REAL NOT NULL, until REAL NOT NULL, used_at REAL NOT NULL,
  PRIMARY KEY (place, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_used ON entries (used_at);
CREATE TABLE IF NOT EXISTS aliases (
  alias BLOB PRIMARY KEY, body BLOB NOT NULL, digest BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS manifests (
  service BLOB NOT NULL, artifact TEXT NOT NULL, document BLOB NOT NULL,
  PRIMARY KEY (service, artifact)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS signers (
  service BLOB NOT NULL, sha256 TEXT NOT NULL, document BLOB NOT NULL,
  PRIMARY KEY (service, sha256)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reports (
  name TEXT PRIMARY KEY, service BLOB NOT NULL, body BLOB NOT NULL, kept_at REAL NOT NULL,
  claimed_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revoked (
  service BLOB NOT NULL, artifact TEXT NOT NULL, told_at REAL NOT NULL,
  PRIMARY KEY (service, artifact)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS told (service BLOB PRIMARY KEY, until TEXT NOT NULL) WITHOUT ROWID;
"""
COLUMNS = {"entries": 7, "aliases": 3, "manifests": 3, "signers": 3, "reports": 5, "revoked": 3, "told": 2}


class NotOurs(Exception):
    """A file of another program."""


class CacheFile:
    """``folder/entries-1.sqlite``, opened when first needed, and again in a forked process. ``most_bytes``:
    its limit; the entries used longest ago are dropped."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.path = folder / f"entries-{FORMAT}.sqlite"
        self.most_bytes = most_bytes
        self._lock = threading.RLock()  # within a fork's, a client that is collected may note its uses
        self._database: sqlite3.Connection | None = None
        self._left_behind: list[sqlite3.Connection] = []  # the parent's: closing it here would free its locks
        self._version = -1
        self._inode = 0  # of the file that is open
        self._used: dict[tuple[bytes, str], float] = {}  # when entries were, written with the next change
        self._told = False
        self._back_at = 0.0  # on the monotonic clock
        _files.add(self)

    def has_changed(self) -> bool:
        """Whether another process has written since the last call."""
        with contextlib.suppress(OSError):
            if self._inode and self.path.stat().st_ino != self._inode:
                self._reopen()  # another process has set it aside
        rows = self._rows("PRAGMA data_version")
        version = rows[0][0] if rows else -1
        changed, self._version = version != self._version, version
        return changed

    def close(self) -> None:
        """Write uses down, and close the file."""
        if self._used and self._database is not None:
            self._write(lambda database: None)
        self._reopen()

    def leave_behind(self) -> None:
        """In a forked process: the connection and the lock are the parent's."""
        self._lock, self._inode = threading.RLock(), 0
        if self._database is not None:
            self._left_behind.append(self._database)
            self._database = None

    def _rows(self, sql: str, *given: Any) -> list[Any]:
        return self._try(lambda database: database.execute(sql, given).fetchall(), list[Any]())

    def _replace(self, table: str, rows: Sequence[tuple[Any, ...]]) -> bool:
        if not rows:
            return True
        sql = f"REPLACE INTO {table} VALUES ({','.join('?' * COLUMNS[table])})"
        return self._write(lambda database: database.executemany(sql, rows))

    def _write(self, change: Callable[[sqlite3.Connection], Any]) -> bool:
        """Write in one transaction; returns whether it was committed."""

        def write(database: sqlite3.Connection) -> bool:
            database.execute("BEGIN IMMEDIATE")
            try:
                change(database)
                used, self._used = self._used, {}
                database.executemany(
                    "UPDATE entries SET used_at = ? WHERE place = ? AND key = ?",
                    [(at, place, key) for (place, key), at in used.items()],
                )
                self._make_room(database)
                database.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise
            return True

        return self._try(write, False)

    def _make_room(self, database: sqlite3.Connection) -> None:
        (pages,), (size,), (free,) = (
            database.execute(f"PRAGMA {name}").fetchone()
            for name in ("page_count", "page_size", "freelist_count")
        )
        held = (pages - free) * size
        if held <= self.most_bytes:
            return
        share = 1 - ROOM * self.most_bytes / held
        for table, order in (("entries", "used_at"), ("aliases", "alias"), ("manifests", "artifact")):
            (rows,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
            oldest = f"SELECT {order} FROM {table} ORDER BY {order} LIMIT 1 OFFSET ?"
            bound = database.execute(oldest, (int(share * rows),)).fetchone()
            if bound is not None:
                database.execute(f"DELETE FROM {table} WHERE {order} < ?", bound)
        kept = f"SELECT name FROM reports ORDER BY name LIMIT {MOST_REPORTS}"
        database.execute(f"DELETE FROM reports WHERE name NOT IN ({kept})")

    def _try(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        if time.monotonic() < self._back_at:
            return otherwise
        with self._lock:
            try:
                return work(self._open())
            except sqlite3.DatabaseError as error:
                if type(error) is sqlite3.DatabaseError:  # no database, or a damaged one
                    self._set_aside(error)
                else:  # locked, full, read-only: a moment's trouble
                    code = getattr(error, "sqlite_errorcode", 0)  # none where a text is no UTF-8
                    if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                        self._back_at = time.monotonic() + LEFT_ALONE_S
                    self._tell(error)
            except NotOurs as error:
                self._set_aside(error)
            except (OSError, UnicodeError) as error:
                self._tell(error)
            return otherwise

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            own_folder(self.path.parent)
            with contextlib.suppress(FileExistsError):  # never opened: closing it would end SQLite's locks
                os.mknod(self.path, stat.S_IFREG | 0o600)
            database = sqlite3.connect(
                self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=32
            )
            try:
                self._inode = self.path.stat().st_ino
                self._begin(database)
            except BaseException:
                database.close()
                raise
            self._database, self._version = database, -1
        return self._database

    def _begin(self, database: sqlite3.Connection) -> None:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (schema,) = database.execute("PRAGMA user_version").fetchone()
        database.execute("PRAGMA synchronous = OFF")
        if application == APPLICATION and schema >= SCHEMA:
            return
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != APPLICATION and tables:
            raise NotOurs("it is another program's")
        marks = f"PRAGMA application_id = {APPLICATION};PRAGMA user_version = {SCHEMA};"
        database.executescript(f"BEGIN IMMEDIATE;{TABLES}{marks}COMMIT;")

    def _reopen(self) -> None:
        with self._lock:
            if self._database is not None:
                self._database.close()
            self._database, self._inode = None, 0

    def _set_aside(self, error: Exception) -> None:
        """Rename the damaged file, so that the next use begins a new one with all revocations that can be
        read."""
        revoked = list[Any]()
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                revoked = self._database.execute("SELECT * FROM revoked").fetchall()
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
        inode, self._inode, self._database = self._inode, 0, None
        aside = self.path.with_suffix(f".damaged-{time.time_ns()}")
        with contextlib.suppress(OSError):
            if inode and self.path.stat().st_ino != inode:
                return  # another process did so already: what lies there now is a new one
            self.path.rename(aside)
            self.path.with_name(self.path.name + "-journal").unlink(missing_ok=True)
            log.warning("The cache %s is set aside as %s: %s.", self.path, aside.name, error)
        with contextlib.suppress(sqlite3.Error, OSError, NotOurs):
            self._open().executemany("REPLACE INTO revoked VALUES (?,?,?)", revoked)

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            log.warning("The cache %s is not used: %s.", self.path, error)


_files: weakref.WeakSet[CacheFile] = weakref.WeakSet()
_forking = threading.local()


def _before_fork() -> None:
    """Keep all threads out of SQLite during a fork: the child would inherit a lock of the library that nobody
    ever releases."""
    locks = [file._lock for file in list(_files)]
    # A job's fork is not held up by a disk that hangs.
    _forking.held = [lock for lock in locks if lock.acquire(timeout=2 * BUSY_S)]


def _after_fork_in_parent() -> None:
    for lock in _forking.held:
        lock.release()
    _forking.held = []


def _after_fork_in_child() -> None:
    for file in list(_files):
        file.leave_behind()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
