"""What tables and folders take, once a day: the courier's chore.

Of PostgreSQL every table, with its indexes and what it keeps aside, partitions counted to their parent. Of
SQLite the whole file: the library that the service brings cannot tell its tables apart. Folders are those of
the machine that the courier runs on.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.db import connection
from django.utils import timezone

from catalog.conf import conf, journal_folder
from catalog.steps import each
from dashboard.operation.models import SizeSample

EVERY = timedelta(days=1)
KEPT = timedelta(days=400)
FOLDER_S = 5.0
"""The longest time for one folder: other chores wait meanwhile."""

DATABASE, STORE, JOURNAL, STATE = "database", "artifact store", "journal", "other state"
FOLDERS = (STORE, JOURNAL, STATE)

_BLOCK_BYTES = 512  # of which st_blocks counts, whatever the file system's are
_TABLES = """
SELECT root.relname,
       COALESCE(SUM(pg_total_relation_size(part.oid)), 0)::bigint,
       SUM(part.reltuples) FILTER (WHERE part.relkind = 'r' AND part.reltuples >= 0)::bigint
FROM pg_class part JOIN pg_class root ON root.oid = COALESCE(pg_partition_root(part.oid), part.oid)
WHERE part.relkind IN ('r', 'p')
  AND root.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
GROUP BY root.relname
"""


def sample_when_due() -> None:
    """Once a day; forgets what is older than anybody looks at."""
    last = SizeSample.objects.order_by("-at").values_list("at", flat=True).first()
    now = timezone.now()
    if last is None or now - last >= EVERY:
        SizeSample.objects.filter(at__lt=now - KEPT).delete()
        SizeSample.objects.bulk_create(sampled(now))


def sampled(now: datetime) -> list[SizeSample]:
    """Everything, as it is now."""
    disks = _Disks()
    rows = list(_tables(now) if connection.vendor == "postgresql" else _sqlite(now, disks))
    elsewhere = {str(path.resolve()) for path in (conf().store, journal_folder(), *_sqlite_files())}
    folders: tuple[tuple[str, Path, Collection[str]], ...] = (
        (STORE, conf().store, ()),
        (JOURNAL, journal_folder(), ()),
        (STATE, conf().home, elsewhere),
    )
    there = {name: (folder, without) for name, folder, without in folders if folder.is_dir()}

    def measured(name: str) -> SizeSample:
        folder, without = there[name]
        size = folder_bytes(folder.resolve(), without)
        return SizeSample(at=now, name=name, bytes=size, **disks.of(folder))

    return rows + each("measuring a folder", there, measured)


def folder_bytes(folder: Path, without: Collection[str] = (), limit_s: float = FOLDER_S) -> int:
    """Disk use of the files below. When the time is up, the remaining entries count as the mean of the
    others: a store's folders are alike, since digests name their content."""
    with os.scandir(folder) as found:
        entries = [entry for entry in found if entry.path not in without]
    taken, until = 0, time.monotonic() + limit_s
    for number, entry in enumerate(entries):
        if number and time.monotonic() > until:
            return taken * len(entries) // number
        taken += _entry_bytes(entry, without)
    return taken


def _entry_bytes(entry: os.DirEntry[str], without: Collection[str]) -> int:
    try:
        if not entry.is_dir(follow_symlinks=False):
            return entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
        with os.scandir(entry) as inside:
            return sum(_entry_bytes(one, without) for one in inside if one.path not in without)
    except OSError:  # taken away meanwhile, or not ours to look into
        return 0


@dataclass
class _Disks:
    """Disks by their number: two folders may lie on one that is mounted in two places."""

    names: dict[int, str] = field(default_factory=dict)

    def of(self, path: Path) -> dict[str, Any]:
        """The disk of an existing path, as a sample has it."""
        name = self.names.setdefault(path.stat().st_dev, str(_mount_of(path)))
        return {"disk": name, "free_bytes": shutil.disk_usage(path).free}


def _mount_of(path: Path) -> Path:
    path = path.resolve()
    return next((one for one in (path, *path.parents) if one.is_mount()), path)


def _tables(now: datetime) -> Iterator[SizeSample]:
    with connection.cursor() as cursor:
        cursor.execute(_TABLES)
        for name, size, rows in cursor.fetchall():
            yield SizeSample(at=now, name=name, bytes=size, rows=rows)


def _sqlite_files() -> list[Path]:
    """The database and what is beside it; none where the database is not a file."""
    if connection.vendor != "sqlite":
        return []
    path = Path(str(connection.settings_dict["NAME"]))
    return [path.with_name(path.name + end) for end in ("", "-wal", "-shm")]


def _sqlite(now: datetime, disks: _Disks) -> Iterator[SizeSample]:
    if found := [path for path in _sqlite_files() if path.exists()]:
        size = sum(path.stat().st_size for path in found)
        yield SizeSample(at=now, name=DATABASE, bytes=size, **disks.of(found[0]))
