"""The machine's cache: what was found, in one SQLite file that all of a user's processes share.

Nothing here may break a job: what cannot be read is not known, what cannot be written is not kept. A file
that is damaged, or is somebody else's, is set aside and begun anew.

SQLite keeps a rollback journal (the WAL of Debian's 3.40.1 can corrupt a file) and does not wait for the
disk: a process that is killed loses nothing, a machine that loses power may leave a damaged file. So each row
that answers a job has a digest of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from opatlas.identity.operator import canonical_json

T = TypeVar("T")
log = logging.getLogger("opatlas")

FORMAT = 1
"""Another format has another file: two versions of the client never read each other's."""
APPLICATION = 0x6F706174  # "opat"
BUSY_S = 0.25
"""Longer than any write of ours takes; who waits longer goes on without,"""
LEFT_ALONE_S = 2.0
"""and leaves the file alone for so long."""
ROOM = 0.9
"""Of what it may hold, once the least used have been dropped."""
MOST_REPORTS = 10_000

_TABLES = """
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
"""
_COLUMNS = {"entries": 7, "aliases": 3, "manifests": 3, "signers": 3, "reports": 5, "revoked": 3}
EVERYTHING = ""
"""Stands for an artifact among those revoked: all that was kept before is."""


class StoredEntry(NamedTuple):
    """An answer's JSON as it was kept. ``until``: seconds of the wall's clock."""

    body: Mapping[str, Any]
    stored_at: float
    until: float

    def left_s(self, now: float) -> float:
        """How long it may be used; 0 where it has expired, or a clock was set back since."""
        return max(self.until - now, 0.0) if self.stored_at <= now else 0.0


class NotOurs(Exception):
    """A file that another program wrote."""


class EntryStore:
    """``folder/entries-1.sqlite``, opened when it is first needed, and anew in a process that was forked.

    ``service`` stands for a service and who asks it: manifests, signers, revocations and reports are kept for
    each. ``most_bytes`` bounds the file: the entries that were used longest ago make room.
    """

    def __init__(self, folder: Path, service: bytes = b"", most_bytes: int = 256 << 20) -> None:
        self.path = folder / f"entries-{FORMAT}.sqlite"
        self.service = service
        self.most_bytes = most_bytes
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._left_behind: list[sqlite3.Connection] = []  # the parent's: closing it here would free its locks
        self._version = -1
        self._pid = os.getpid()
        self._inode = 0  # of the file that is open
        self._used: dict[tuple[bytes, str], float] = {}
        self._told = False
        self._back_at = 0.0  # on the monotonic clock

    # ---- what is known ------------------------------------------------------------------------------

    def entry(self, place: bytes, key: str) -> StoredEntry | None:
        """What is kept of an operator at a place, expired or not; damaged rows are none."""
        sql = "SELECT body, digest, stored_at, until FROM entries WHERE place = ? AND key = ?"
        rows = self._rows(sql, place, key)
        if not rows or (body := _whole(rows[0][0], rows[0][1], place, key)) is None:
            return None
        self._used[place, key] = time.time()
        return StoredEntry(body, rows[0][2], rows[0][3])

    def keep(self, place: bytes, entries: Mapping[str, tuple[Mapping[str, Any], float]]) -> None:
        """Keep answers by key: their JSON, and for how many seconds."""
        now = time.time()
        rows = []
        for key, (document, life_s) in entries.items():
            body = _bytes(document)
            rows.append((place, key, body, _digest(place, key, body), now, now + life_s, now))
        self._replace("entries", rows)

    def alias(self, alias: bytes) -> tuple[str, tuple[int, ...]] | None:
        """The key that a caller's own description of an operator has, and which of the caller's inputs each
        of its tensors is."""
        found = self.fact(alias)
        return (str(found["key"]), tuple(found["places"])) if found is not None else None

    def keep_alias(self, alias: bytes, key: str, places: Sequence[int]) -> None:
        self.keep_fact(alias, {"key": key, "places": list(places)})

    def fact(self, name: bytes) -> Mapping[str, Any] | None:
        """Something that takes a while to find out; kept among the aliases."""
        rows = self._rows("SELECT body, digest FROM aliases WHERE alias = ?", name)
        return _whole(rows[0][0], rows[0][1], name, "") if rows else None

    def keep_fact(self, name: bytes, document: Mapping[str, Any]) -> None:
        body = _bytes(document)
        self._replace("aliases", [(name, body, _digest(name, "", body))])

    def manifest(self, artifact: str) -> Mapping[str, Any] | None:
        """A manifest with its signature and signer, as the service sent it."""
        sql = "SELECT document FROM manifests WHERE service = ? AND artifact = ?"
        return _document(self._rows(sql, self.service, artifact))

    def keep_manifests(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        rows = [(self.service, artifact, _bytes(document)) for artifact, document in documents.items()]
        self._replace("manifests", rows)

    def forget_manifest(self, artifact: str) -> None:
        """It was refused: the service is asked for it again."""
        self._write(
            lambda database: database.execute(
                "DELETE FROM manifests WHERE service = ? AND artifact = ?", (self.service, artifact)
            )
        )

    def artifacts_at(self, place: bytes, keys: Sequence[str]) -> list[str]:
        """Of entries, expired ones too: which artifacts they name whose manifests are here."""
        named = [entry for key in keys if (entry := self.entry(place, key)) is not None]
        artifacts = {entry.body["best"]["artifact"] for entry in named if entry.body.get("best")}
        sql = "SELECT 1 FROM manifests WHERE service = ? AND artifact = ?"
        return sorted(one for one in artifacts if self._rows(sql, self.service, one))

    def signer(self, sha256: str) -> Mapping[str, Any] | None:
        """A signer's public key and since when it is retired, as the service said last."""
        sql = "SELECT document FROM signers WHERE service = ? AND sha256 = ?"
        return _document(self._rows(sql, self.service, sha256))

    def keep_signers(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        rows = [(self.service, sha256, _bytes(document)) for sha256, document in documents.items()]
        self._replace("signers", rows)

    # ---- what must not be used ----------------------------------------------------------------------

    def revoke(self, artifacts: Iterable[str]) -> bool:
        """Keep that these must never run again; whether that was written."""
        now = time.time()
        return self._replace("revoked", [(self.service, artifact, now) for artifact in artifacts])

    def revoke_all(self) -> bool:
        """Keep that everything which was kept before must be asked for again."""
        return self.revoke([EVERYTHING])

    def revoked(self) -> tuple[frozenset[str], float]:
        """Artifacts that were ever revoked, as far as this machine was told by any service, whoever asked;
        and when this service revoked everything (seconds of the wall's clock; 0: never)."""
        rows = self._rows("SELECT service, artifact, told_at FROM revoked")
        all_at = [told_at for service, name, told_at in rows if (service, name) == (self.service, EVERYTHING)]
        return frozenset(name for _, name, _ in rows if name != EVERYTHING), max(all_at, default=0.0)

    def has_changed(self) -> bool:
        """Whether another process has written since this was last asked."""
        with contextlib.suppress(OSError):
            if self._inode and self.path.stat().st_ino != self._inode:
                self._reopen()  # another process has set it aside
        rows = self._rows("PRAGMA data_version")
        version = rows[0][0] if rows else -1
        changed, self._version = version != self._version, version
        return changed

    # ---- what is to be reported ---------------------------------------------------------------------

    def keep_report(self, name: str, report: Mapping[str, Any]) -> bool:
        """Keep what is to be reported to the service; whether that was written."""
        return self._replace("reports", [(name, self.service, _bytes(report), time.time(), 0.0)])

    def change_report(self, name: str, report: Mapping[str, Any]) -> bool:
        """Replace a report that nobody has begun to send; False where somebody has."""
        changed = list[int]()

        def change(database: sqlite3.Connection) -> None:
            sql = "UPDATE reports SET body = ? WHERE name = ? AND claimed_at = 0"
            changed.append(database.execute(sql, (_bytes(report), name)).rowcount)

        return self._write(change) and changed == [1]

    def report_age_s(self) -> float:
        """Of the oldest that waits; 0 where none does."""
        rows = self._rows("SELECT min(kept_at) FROM reports WHERE service = ?", self.service)
        return time.time() - rows[0][0] if rows and rows[0][0] is not None else 0.0

    def claim_report(self, leave_s: float) -> tuple[str, Mapping[str, Any]] | None:
        """One that nobody else has claimed within ``leave_s``, with its name."""
        now, found = time.time(), list[Any]()

        def claim(database: sqlite3.Connection) -> None:
            sql = "SELECT name, body FROM reports WHERE service = ? AND NOT (claimed_at BETWEEN ? AND ?)"
            sql += " LIMIT 1"
            found.extend(database.execute(sql, (self.service, now - leave_s, now)).fetchall())
            for name, _ in found:
                database.execute("UPDATE reports SET claimed_at = ? WHERE name = ?", (now, name))

        if not self._write(claim) or not found:
            return None
        return found[0][0], _document([found[0][1:]]) or {}

    def drop_report(self, name: str) -> None:
        self._write(lambda database: database.execute("DELETE FROM reports WHERE name = ?", (name,)))

    # ---- all of it ----------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget everything but what was revoked and what is to be reported."""

        def empty(database: sqlite3.Connection) -> None:
            for table in set(_COLUMNS) - {"revoked", "reports"}:
                database.execute(f"DELETE FROM {table}")

        self._write(empty)

    def counts(self) -> dict[str, int]:
        """Rows by table, and the file's bytes."""
        rows = {table: self._rows(f"SELECT count(*) FROM {table}") for table in _COLUMNS}
        size = self.path.stat().st_size if self.path.exists() else 0
        return {**{table: found[0][0] if found else 0 for table, found in rows.items()}, "bytes": size}

    def close(self) -> None:
        """Note what was used, and close the file."""
        if self._pid != os.getpid():
            self.leave_behind()
        if self._used and self._database is not None:
            self._write(lambda database: None)
        self._reopen()

    def leave_behind(self) -> None:
        """In a process that was forked: the parent's connection and lock are the parent's."""
        self._pid, self._lock, self._inode = os.getpid(), threading.Lock(), 0
        if self._database is not None:
            self._left_behind.append(self._database)
            self._database = None

    # ---- the file -----------------------------------------------------------------------------------

    def _rows(self, sql: str, *given: Any) -> list[Any]:
        return self._try(lambda database: database.execute(sql, given).fetchall(), list[Any]())

    def _replace(self, table: str, rows: Sequence[tuple[Any, ...]]) -> bool:
        if not rows:
            return True
        sql = f"REPLACE INTO {table} VALUES ({','.join('?' * _COLUMNS[table])})"
        return self._write(lambda database: database.executemany(sql, rows))

    def _write(self, change: Callable[[sqlite3.Connection], Any]) -> bool:
        """In one transaction; whether it was committed."""

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
        if self._pid != os.getpid():
            self.leave_behind()
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
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
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
        database.execute("PRAGMA synchronous = OFF")
        if application == APPLICATION:
            return
        if database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise NotOurs("it is another program's")
        database.executescript(f"BEGIN IMMEDIATE;{_TABLES}PRAGMA application_id = {APPLICATION};COMMIT;")

    def _reopen(self) -> None:
        with self._lock:
            if self._database is not None:
                self._database.close()
            self._database, self._inode = None, 0

    def _set_aside(self, error: Exception) -> None:
        """The damaged file under another name, so that the next use begins a new one; what was revoked goes
        along as far as it can be read."""
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


def digest_of(document: Any) -> bytes:
    """16 bytes that stand for a JSON document."""
    return hashlib.blake2b(canonical_json(document), digest_size=16).digest()


def _bytes(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _document(rows: Sequence[Sequence[Any]]) -> dict[str, Any] | None:
    """The JSON object in the one column of the one row; None where there is none."""
    try:
        found = json.loads(rows[0][0]) if rows else None
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def _whole(body: Any, digest: Any, place: bytes, key: str) -> dict[str, Any] | None:
    """A row's JSON, where it is what was written."""
    if not isinstance(body, bytes) or _digest(place, key, body) != digest:
        return None
    return _document([[body]])


def _digest(place: bytes, key: str, body: bytes) -> bytes:
    person = hashlib.blake2b(key.encode(), digest_size=16).digest() if key else b""
    return hashlib.blake2b(body, digest_size=8, key=place, person=person).digest()
