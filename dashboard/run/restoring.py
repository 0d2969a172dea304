"""Restores a backup into an empty home and database, after comparing all of it with its manifest."""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from catalog.best.artifacts import file_path, store_file
from catalog.best.damage import DAMAGED, note_damage
from catalog.conf import conf, journal_folder
from catalog.errors import StoreError
from catalog.models import Artifact, JournalSegment
from catalog.usage import journal
from dashboard.run.backing_up import FORMAT, JOURNAL, KEYS, MANIFEST, STORE, digest_of, seal, stored_files
from dashboard.run.dumps import FILES, DumpError, fill, tables
from dashboard.run.keys import copy_private, key_places, may_give_way
from dashboard.run.migrating import migrate

_BATCH = 2000


class NotRestored(Exception):
    """One sentence that says why, and what would be right."""


def restore(source: Path) -> str:
    """From a folder or a file that ``manage.py backup`` wrote; says what was restored.

    Everything is compared before anything is written. Refused in one sentence: what is no backup, a damaged
    or a foreign one, and a home or database that holds something. Raises :class:`NotRestored`.
    """
    with _unpacked(source) as folder:
        manifest = _manifest(folder, source)
        _check_files(folder, manifest, source)
        _check_fits(manifest, source)
        _check_empty(folder, manifest)
        try:
            _take(folder, manifest)
        except (OSError, DumpError, StoreError) as error:
            raise NotRestored(
                f"{source} was not restored whole: {error} Empty {conf().home} and the database; try again."
            ) from error
    migrate()
    ContentType.objects.clear_cache()
    _rename_node(manifest)
    lacking = _note_lacking()
    said = f"{len(manifest['files'])} files, as of {manifest['made_at']}"
    return f"{said}; {lacking} artifacts lack files and are built again" if lacking else said


@contextmanager
def _unpacked(source: Path) -> Iterator[Path]:
    if source.is_dir():
        yield source
        return
    if not source.is_file():
        raise NotRestored(f"There is no backup {source}.")
    conf().home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=conf().home, prefix=".restored-") as folder:
        try:
            with tarfile.open(source) as packed:
                packed.extractall(folder, filter="data")  # no way out of the folder, no links, no devices
        except (tarfile.TarError, OSError) as error:
            raise NotRestored(f"{source} cannot be unpacked as a backup: {error}.") from error
        yield Path(folder)


def _manifest(folder: Path, source: Path) -> dict[str, Any]:
    try:
        given = json.loads((folder / MANIFEST).read_text())
        sealed = given.pop("sha256")
    except FileNotFoundError:
        raise NotRestored(f"{source} is no backup of this service: it has no {MANIFEST}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotRestored(f"{source} is damaged: its {MANIFEST} cannot be read.") from error
    if given.get("format") != FORMAT:
        named = repr(given.get("format"))[:60]
        raise NotRestored(f"{source} has the format {named}: this version reads {FORMAT}.")
    if seal(given) != sealed:
        raise NotRestored(f"{source} is damaged: its {MANIFEST} was changed.")
    return dict(given)


def _check_files(folder: Path, manifest: dict[str, Any], source: Path) -> None:
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {MANIFEST}
    if foreign := sorted(there - manifest["files"].keys()):
        raise NotRestored(f"{source} is damaged: its manifest does not name {foreign[0]}.")
    for name, (sha256, size) in manifest["files"].items():
        path = folder / name
        if path.is_symlink() or name not in there:
            raise NotRestored(f"{source} is damaged: {name} is gone from it.")
        if path.stat().st_size != size or digest_of(path)[0] != sha256:
            raise NotRestored(f"{source} is damaged: {name} is not what was backed up.")


def _check_fits(manifest: dict[str, Any], source: Path) -> None:
    vendor, database = manifest["database"], FILES.get(manifest["database"], "")
    if vendor != connection.vendor:
        raise NotRestored(
            f"{source} is of a service on {vendor}, and this one is on {connection.vendor}: name an empty "
            f"database on {vendor} by DATABASE_URL."
        )
    if database not in manifest["files"]:
        raise NotRestored(f"{source} is damaged: it has no {database}.")
    known = set(MigrationLoader(None, ignore_no_migrations=True).disk_migrations or ())
    unknown = sorted({tuple(one) for one in manifest["migrations"]} - known)
    if unknown:
        newer = ".".join(unknown[0])
        raise NotRestored(f"{source} is of another version, which has {newer}: restore it with that one.")


def _check_empty(folder: Path, manifest: dict[str, Any]) -> None:
    if found := tables():
        raise NotRestored(f"The database is not empty (it has {sorted(found)[0]}): name an empty one.")
    stored = next(iter(stored_files(conf().store)), None)
    for path in filter(None, (stored, *journal.segments()[:1])):
        raise NotRestored(f"{conf().home} is not empty (it has {path}): restore into an empty OPATLAS_HOME.")
    for name, path in key_places().items():
        if f"{KEYS}/{name}" in manifest["files"] and not may_give_way(
            path, (folder / KEYS / name).read_bytes()
        ):
            raise NotRestored(f"{path} is another key than the backup's: move it away first.")


def _take(folder: Path, manifest: dict[str, Any]) -> None:
    """The database last: nothing is served before."""
    for name in manifest["files"]:
        place, _, rest = name.partition("/")
        path = folder / name
        if place == STORE:
            store_file(path.parent, path.name, path.name)
        elif place == JOURNAL:
            copy_private(path, journal_folder() / rest)
        elif place == KEYS and rest in key_places():
            copy_private(path, key_places()[rest])
    fill(folder / FILES[manifest["database"]])


def _rename_node(manifest: dict[str, Any]) -> None:
    """A machine's journals are drained under its name, which may differ from the old one's."""
    names = [name.partition("/")[2] for name in manifest["files"] if name.startswith(f"{JOURNAL}/")]
    JournalSegment.objects.filter(node=manifest["node"], segment__in=names).update(node=conf().node)


def _note_lacking() -> int:
    """Artifacts whose files were missing or damaged before the backup."""
    lacking = 0
    for row in Artifact.objects.exclude(kind="recipe").iterator(chunk_size=_BATCH):
        gone = [name for name, sha256 in row.manifest["files"].items() if not file_path(sha256).is_file()]
        if gone:
            note_damage(row, f"{DAMAGED}: {gone[0]} is gone from the store")
            lacking += 1
    return lacking
