"""The contents of a machine's cache: answers by place and operator, manifests, aliases, signers, revocations,
and reports to send. Each row that answers a job has a digest."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opatlas.client.cache.cachefile import COLUMNS, CacheFile
from opatlas.identity.operator import canonical_json

_KEEP = """
INSERT INTO entries VALUES (?,?,?,?,?,?,?) ON CONFLICT (place, key) DO UPDATE SET body = excluded.body,
  digest = excluded.digest, stored_at = excluded.stored_at, until = excluded.until,
  used_at = CASE excluded.used_at WHEN 0 THEN used_at ELSE excluded.used_at END
"""
_EXPIRED = """
SELECT key FROM (
  SELECT key, stored_at, until FROM entries WHERE place = ? AND used_at > ? ORDER BY used_at DESC LIMIT ?)
WHERE until <= ? OR stored_at > ?
"""
NEVER_TOLD = "0"
"""The ``revoked_since`` of a client that was never told: from the beginning."""
EVERYTHING = ""
"""Stands for an artifact in the list of revoked ones: everything kept before is revoked."""


class StoredEntry(NamedTuple):
    """A stored answer's JSON. ``until``: seconds of the wall clock."""

    body: Mapping[str, Any]
    stored_at: float
    until: float

    def left_s(self, now: float) -> float:
        """How long it may still be used; 0 if it has expired, or if a clock was set back."""
        return max(self.until - now, 0.0) if self.stored_at <= now else 0.0


class EntryStore(CacheFile):
    """The file's contents. ``service`` stands for a service and who asks it; manifests, signers, revocations
    and reports are kept for each."""

    def __init__(self, folder: Path, service: bytes = b"", most_bytes: int = 256 << 20) -> None:
        super().__init__(folder, most_bytes)
        self.service = service

    # ---- what is known ------------------------------------------------------------------------------

    def entry(self, place: bytes, key: str) -> StoredEntry | None:
        """The stored entry of an operator at a place, expired or not; damaged rows count as none."""
        found = self._entry(place, key)
        if found is not None:
            self._used[place, key] = time.time()
        return found

    def _entry(self, place: bytes, key: str) -> StoredEntry | None:
        """The same without counting a use."""
        sql = "SELECT body, digest, stored_at, until FROM entries WHERE place = ? AND key = ?"
        rows = self._rows(sql, place, key)
        if not rows or (body := _whole(rows[0][0], rows[0][1], place, key)) is None:
            return None
        return StoredEntry(body, rows[0][2], rows[0][3])

    def keep(
        self, place: bytes, entries: Mapping[str, tuple[Mapping[str, Any], float]], idle: Collection[str] = ()
    ) -> None:
        """Store answers by key: their JSON, and for how many seconds. ``idle`` ones were not used just
        now."""
        now = time.time()
        rows = []
        for key, (document, life_s) in entries.items():
            body, used_at = _bytes(document), 0.0 if key in idle else now
            rows.append((place, key, body, _digest(place, key, body), now, now + life_s, used_at))
        if rows:
            self._write(lambda database: database.executemany(_KEEP, rows))

    def expired(self, place: bytes, used_s: float, most: int) -> list[str]:
        """Expired entries among those used last at a place: at most so many, used within so long."""
        now = time.time()
        rows = self._rows(_EXPIRED, place, now - used_s, most, now, now)
        return [key for (key,) in rows]

    def alias(self, alias: bytes) -> tuple[str, tuple[int, ...]] | None:
        """The key of a caller's description, and which of the caller's inputs is each of its tensors."""
        found = self.fact(alias)
        return (str(found["key"]), tuple(found["places"])) if found is not None else None

    def keep_alias(self, alias: bytes, key: str, places: Sequence[int]) -> None:
        self.keep_fact(alias, {"key": key, "places": list(places)})

    def fact(self, name: bytes) -> Mapping[str, Any] | None:
        """A fact that takes time to find out; stored among the aliases."""
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
        """Drop a refused manifest, so that the service is asked again."""
        self._write(
            lambda database: database.execute(
                "DELETE FROM manifests WHERE service = ? AND artifact = ?", (self.service, artifact)
            )
        )

    def artifacts_at(self, place: bytes, keys: Sequence[str]) -> list[str]:
        """Artifacts of these entries, expired ones too, whose manifests are stored."""
        named = [entry for key in keys if (entry := self._entry(place, key)) is not None]
        artifacts = {entry.body["best"]["artifact"] for entry in named if entry.body.get("best")}
        sql = "SELECT 1 FROM manifests WHERE service = ? AND artifact = ?"
        return sorted(one for one in artifacts if self._rows(sql, self.service, one))

    def signer(self, sha256: str) -> Mapping[str, Any] | None:
        """A signer's public key and since when it is retired, from the service's last answer."""
        sql = "SELECT document FROM signers WHERE service = ? AND sha256 = ?"
        return _document(self._rows(sql, self.service, sha256))

    def keep_signers(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        rows = [(self.service, sha256, _bytes(document)) for sha256, document in documents.items()]
        self._replace("signers", rows)

    # ---- what must not be used ----------------------------------------------------------------------

    def revoke(self, artifacts: Iterable[str], since: str = "", until: str = "") -> bool:
        """Store that these must never run again; returns whether that was written. ``until``: the service has
        now reported all revocations up to there, of those after ``since``."""
        now, rows = time.time(), [(self.service, artifact) for artifact in artifacts]
        if not rows and (not until or self.told_until() == until):
            return True

        def revoke(database: sqlite3.Connection) -> None:
            database.executemany("REPLACE INTO revoked VALUES (?,?,?)", [(*row, now) for row in rows])
            # Where it was told from another place on, that was before the file was set aside.
            sql = "REPLACE INTO told SELECT ?, ? WHERE ? = ? OR EXISTS (SELECT 1 FROM told WHERE service = ?)"
            if until:
                database.execute(sql, (self.service, until, since, NEVER_TOLD, self.service))

        return self._write(revoke)

    def told_until(self) -> str:
        """Up to where the service has reported revocations to this machine, in its own words."""
        rows = self._rows("SELECT until FROM told WHERE service = ?", self.service)
        return str(rows[0][0]) if rows else NEVER_TOLD

    def revoke_all(self) -> bool:
        """Store that everything kept before must be asked for again."""
        return self.revoke([EVERYTHING])

    def revoked(self) -> tuple[frozenset[str], float]:
        """Artifacts ever revoked, as any service told this machine; and when this service revoked everything
        (seconds of the wall clock; 0: never)."""
        rows = self._rows("SELECT service, artifact, told_at FROM revoked")
        all_at = [told_at for service, name, told_at in rows if (service, name) == (self.service, EVERYTHING)]
        return frozenset(name for _, name, _ in rows if name != EVERYTHING), max(all_at, default=0.0)

    # ---- what is to be reported ---------------------------------------------------------------------

    def keep_report(self, name: str, report: Mapping[str, Any]) -> bool:
        """Store a report for the service; returns whether that was written."""
        return self._replace("reports", [(name, self.service, _bytes(report), time.time(), 0.0)])

    def change_report(self, name: str, report: Mapping[str, Any]) -> bool:
        """Replace a report; False if somebody has begun to send it."""
        changed = list[int]()

        def change(database: sqlite3.Connection) -> None:
            sql = "UPDATE reports SET body = ? WHERE name = ? AND claimed_at = 0"
            changed.append(database.execute(sql, (_bytes(report), name)).rowcount)

        return self._write(change) and changed == [1]

    def report_age_s(self) -> float:
        """The age of the oldest waiting report; 0 if none waits."""
        rows = self._rows("SELECT min(kept_at) FROM reports WHERE service = ?", self.service)
        return time.time() - rows[0][0] if rows and rows[0][0] is not None else 0.0

    def claim_report(self, leave_s: float) -> tuple[str, Mapping[str, Any]] | None:
        """A report that nobody has claimed within ``leave_s``, with its name."""
        now, found = time.time(), list[Any]()

        def claim(database: sqlite3.Connection) -> None:
            sql = "SELECT name, body FROM reports WHERE service = ? AND NOT (claimed_at BETWEEN ? AND ?)"
            sql += " ORDER BY claimed_at LIMIT 1"  # one that is never taken comes after all others
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
        """Delete everything but revocations and waiting reports."""

        def empty(database: sqlite3.Connection) -> None:
            for table in set(COLUMNS) - {"revoked", "told", "reports"}:
                database.execute(f"DELETE FROM {table}")

        self._write(empty)

    def counts(self) -> dict[str, int]:
        """Rows by table, and the file's bytes."""
        rows = {table: self._rows(f"SELECT count(*) FROM {table}") for table in COLUMNS}
        size = self.path.stat().st_size if self.path.exists() else 0
        return {**{table: found[0][0] if found else 0 for table, found in rows.items()}, "bytes": size}


def digest_of(document: Any) -> bytes:
    """16 bytes that identify a JSON document."""
    return hashlib.blake2b(canonical_json(document), digest_size=16).digest()


def _bytes(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _document(rows: Sequence[Sequence[Any]]) -> dict[str, Any] | None:
    """The JSON object in the only column of the only row; None if there is none."""
    try:
        found = json.loads(rows[0][0]) if rows else None
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def _whole(body: Any, digest: Any, place: bytes, key: str) -> dict[str, Any] | None:
    """A row's JSON, if it is undamaged."""
    if not isinstance(body, bytes) or _digest(place, key, body) != digest:
        return None
    return _document([[body]])


def _digest(place: bytes, key: str, body: bytes) -> bytes:
    person = hashlib.blake2b(key.encode(), digest_size=16).digest() if key else b""
    return hashlib.blake2b(body, digest_size=8, key=place, person=person).digest()
