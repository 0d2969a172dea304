"""The audit log's old rows, exported into a file and then removed: the one way in which any of them goes.

The file has a line of JSON for each row, in the order of their numbers, and a last one with their count,
first and last number and the SHA-256 of the lines before it. It gets its name when it is whole and on the
disk, and never that of another file. Then it is read back; an entry in the audit log says what leaves it; and
only then rows are removed, batch by batch: those that the file has and that the database still has likewise.

Who is killed before that has removed nothing (a file that is left over begins with a dot: delete it). Who is
killed after it goes on by asking again for the same day and the same file: it is read back again, and what is
left of its rows is removed.

PostgreSQL lets nobody remove rows but the role ``opatlas_archivist`` (migration 0018), which this process
becomes for each batch. SQLite has no roles: there only the model refuses.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import IO, Any

from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from catalog import failpoints
from catalog.errors import DISK_FULL, is_full
from catalog.models import AuditEntry
from catalog.people.audit import record
from opatlas.errors import CallerError
from opatlas.identity.operator import canonical_json

ARCHIVIST = "opatlas_archivist"
LEAST_AGE = timedelta(days=30)
"""Nothing newer is archived: what was done lately is looked at on the page."""

ACTION = "audit.archive"
BATCH = 500
_NEVER_CHANGED = ("at", "actor", "action", "subject", "detail", "request_id", "address")
_NOT_ALLOWED = ("22023", "42501")
"""SQLSTATEs: there is no such role; this one may not."""


class NotArchived(CallerError):
    """What cannot be archived, or is no archive."""


@dataclass(frozen=True)
class ArchiveSummary:
    """An archive's last line."""

    before: str  # the day, ISO 8601, before which (UTC) all of them were written
    count: int
    first_id: int
    last_id: int
    sha256: str  # of the lines before it


def archive(before: date, path: Path) -> tuple[ArchiveSummary, int] | None:
    """Export into a new file what is older than the day (UTC), and remove it; or go on with that file. Gives
    how many rows were removed now, too; None where nothing is so old. Raises :class:`NotArchived`."""
    if before > (latest := (timezone.now() - LEAST_AGE).date()):
        days = LEAST_AGE.days
        raise NotArchived(f"Nothing newer than {days} days is archived: the latest day is {latest}.")
    _try_role()
    if not path.exists() and not _export(before, path):
        return None
    summary = check(path)
    if summary.before != before.isoformat():
        raise NotArchived(f"{path} has what is older than {summary.before}: name that day, or a new file.")
    failpoints.at("audit-exported")
    _leave_trace(path, summary)
    return summary, _remove_all(path)


def check(path: Path) -> ArchiveSummary:
    """The last line of a file, which is true of the others. Raises :class:`NotArchived`."""
    digest, count, first_id, last_id = hashlib.sha256(), 0, 0, 0
    line, newest = b"", ""
    try:
        with path.open("rb") as file:
            for following in file:
                if line:
                    document = json.loads(line)
                    number, newest = document["id"], max(newest, document["at"])
                    if number <= last_id:
                        raise NotArchived(f"{path} is no archive: {number} comes after {last_id}.")
                    digest.update(line)
                    count, first_id, last_id = count + 1, first_id or number, number
                line = following
        said = ArchiveSummary(**json.loads(line))
        true = replace(said, count=count, first_id=first_id, last_id=last_id, sha256=digest.hexdigest())
        if said != true or newest >= said.before:  # both in UTC, ISO 8601
            raise NotArchived(f"{path} is not as its last line says: it was changed, or lacks something.")
    except OSError as error:
        raise NotArchived(f"{path} cannot be read ({os.strerror(error.errno or 0)}).") from error
    except (ValueError, KeyError, TypeError) as error:
        raise NotArchived(f"{path} is no whole archive of the audit log: name a new file.") from error
    return said


def _export(before: date, path: Path) -> bool:
    """Whether there was anything; then the file is there, whole and on the disk."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as file:  # mode 0600
            if not _write(before, file):
                return False
            file.flush()
            os.fsync(file.fileno())
            os.link(file.name, path)  # where a rename would replace another's export
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        said = f"{DISK_FULL}: " if is_full(error) else ""
        why = os.strerror(error.errno or 0)
        raise NotArchived(f"{said}{path} cannot be written ({why}); nothing was removed.") from error
    return True


def _write(before: date, file: IO[bytes]) -> int:
    """How many rows."""
    digest, count, first_id, last_id = hashlib.sha256(), 0, 0, 0
    for row in _older(before):
        line = canonical_json(_document(row)) + b"\n"
        file.write(line)
        digest.update(line)
        count, first_id, last_id = count + 1, first_id or row.pk, row.pk
    summary = ArchiveSummary(before.isoformat(), count, first_id, last_id, digest.hexdigest())
    file.write(canonical_json(asdict(summary)) + b"\n")
    return count


def _older(before: date) -> Iterator[AuditEntry]:
    """In the order of their numbers; no statement reads for long."""
    midnight, last_id = datetime(before.year, before.month, before.day, tzinfo=UTC), 0
    while rows := list(AuditEntry.objects.filter(at__lt=midnight, pk__gt=last_id).order_by("pk")[:BATCH]):
        yield from rows
        last_id = rows[-1].pk


def _document(row: AuditEntry) -> dict[str, Any]:
    """All that a row has, as JSON knows it."""
    values = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
    return values | {"at": row.at.astimezone(UTC).isoformat()}


def _leave_trace(path: Path, summary: ArchiveSummary) -> None:
    """Once for an archive, however often its removing was gone on with."""
    if not AuditEntry.objects.filter(action=ACTION, detail__sha256=summary.sha256).exists():
        record(ACTION, subject=path.name, detail=asdict(summary))


def _remove_all(path: Path) -> int:
    removed = 0
    with path.open("rb") as file:
        documents = (document for line in file if "id" in (document := json.loads(line)))
        while batch := list(islice(documents, BATCH)):
            began = time.monotonic()
            removed += _remove(path, batch)
            # Others write meanwhile: SQLite has one writer at a time.
            time.sleep(time.monotonic() - began)
    return removed


def _remove(path: Path, documents: Sequence[Mapping[str, Any]]) -> int:
    """Those of one batch that are still there, in one short transaction."""
    archived = {document["id"]: document for document in documents}
    with _as_archivist():
        rows = list(AuditEntry.objects.filter(pk__in=archived))
        for row in rows:
            found = _document(row)
            if any(found[name] != archived[row.pk][name] for name in _NEVER_CHANGED):
                raise NotArchived(f"{path} is of another database: entry {row.pk} is not what it has.")
        gone = AuditEntry.objects.filter(pk__in=[row.pk for row in rows])
        removed = gone._raw_delete(connection.alias) if rows else 0
        failpoints.at("audit-removing")
    return removed


@contextmanager
def _as_archivist() -> Iterator[None]:
    """A transaction in which rows may be removed."""
    roles = connection.vendor == "postgresql"
    with transaction.atomic(), connection.cursor() as cursor:
        if roles:
            cursor.execute(f"SET LOCAL ROLE {ARCHIVIST}")
        yield
        if roles:
            cursor.execute("RESET ROLE")


def _try_role() -> None:
    """Raises :class:`NotArchived` where this process may not remove rows, before anything is written."""
    try:
        with _as_archivist():
            AuditEntry.objects.filter(pk=0)._raw_delete(connection.alias)
    except DatabaseError as error:
        if getattr(error.__cause__, "sqlstate", "") not in _NOT_ALLOWED:
            raise
        raise NotArchived(_what_an_administrator_runs()) from error


def _what_an_administrator_runs() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT session_user")
        name = str(cursor.fetchone()[0])
    user, table = connection.ops.quote_name(name), AuditEntry._meta.db_table
    return (
        f"PostgreSQL lets only the role {ARCHIVIST} remove audit entries, and {name} cannot become it: have "
        f"a database administrator run CREATE ROLE {ARCHIVIST} NOLOGIN; "
        f"GRANT SELECT, DELETE ON {table} TO {ARCHIVIST}; GRANT {ARCHIVIST} TO {user};"
    )
