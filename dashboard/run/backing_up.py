"""A backup of everything that a service has: rows, stored files, this machine's journal, its keys.

It is made while the service runs. Everything that rows name must be in the copy of the store: files are
copied before the database, and new ones after it. The journal is cut where it stood right before the database
was copied: each of its lines is either counted in the rows, or will be once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from catalog.conf import conf
from catalog.usage import journal
from dashboard.run.dumps import FILES, DumpError, dump
from dashboard.run.keys import copy_private, key_places
from opatlas.identity.operator import canonical_json

FORMAT = 1
MANIFEST = "backup.json"
STORE, JOURNAL, KEYS = "store", "journal", "keys"
TAR = ".tar"
_CHUNK_BYTES = 1 << 20


class NotBackedUp(Exception):
    """One sentence that says why; nothing was written."""


def back_up(destination: Path) -> str:
    """Into a new folder, or a new file that ends in ``.tar``; says what it holds. There whole or not at all.

    Files are for their owner's eyes only: they hold keys and the digests of passwords.
    """
    if destination.exists() and not (destination.is_dir() and not any(destination.iterdir())):
        raise NotBackedUp(
            f"{destination} is there already: name a new folder, or a new file ending in {TAR}."
        )
    if not destination.parent.is_dir():
        raise NotBackedUp(f"There is no folder {destination.parent}.")
    beside = destination.with_name(f".{destination.name}.{uuid.uuid4().hex[:8]}")
    packed = beside.with_name(f"{beside.name}{TAR}")
    try:
        beside.mkdir(mode=0o700)
        manifest = _write(beside)
        if destination.suffix == TAR:
            _pack(beside, packed)
            packed.rename(destination)
        else:
            beside.rename(destination)
    except (OSError, DumpError) as error:
        raise NotBackedUp(f"Nothing was backed up: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        packed.unlink(missing_ok=True)
    sizes = [size for _, size in manifest["files"].values()]
    return f"{len(sizes)} files, {sum(sizes) / 1e6:.1f} MB"


def _write(folder: Path) -> dict[str, Any]:
    """Everything, and the manifest that names each file with its digest."""
    files = _copy_store(folder, {})
    database = FILES[connection.vendor]
    with ExitStack() as stack:
        segments = _open_segments(stack)
        dump(folder / database)
        files |= {
            f"{JOURNAL}/{name}": _cut(opened, size, folder / JOURNAL / name)
            for name, opened, size in segments
        }
    files |= _copy_store(folder, files)
    files |= _copy_keys(folder)
    files[database] = digest_of(folder / database)
    manifest = {
        "format": FORMAT,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "node": conf().node,
        "database": connection.vendor,
        "migrations": sorted(map(list, MigrationRecorder(connection).applied_migrations())),
        "files": files,
    }
    path = folder / MANIFEST
    path.touch(mode=0o600)
    path.write_text(json.dumps(manifest | {"sha256": seal(manifest)}, indent=1, sort_keys=True))
    return manifest


def seal(manifest: dict[str, Any]) -> str:
    """The digest of a manifest, so that a change of its own is seen too."""
    return hashlib.sha256(canonical_json(manifest)).hexdigest()


def stored_files(folder: Path) -> Iterator[Path]:
    """The store's files, which are named by their content; ``tmp`` has none."""
    return (path for path in folder.glob("??/??/*") if path.is_file())


def digest_of(path: Path) -> tuple[str, int]:
    """SHA-256 and bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest(), path.stat().st_size


def _copy_store(folder: Path, had: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """Copy what is not there yet. Damaged files are left out: they are built again after a restore."""
    files = {}
    for path in stored_files(conf().store):
        name = f"{STORE}/{path.relative_to(conf().store)}"
        if name in had:
            continue
        try:
            with path.open("rb") as opened:
                copied = _cut(opened, path.stat().st_size, folder / name)
        except FileNotFoundError:  # taken away meanwhile: no row names it any more
            continue
        if copied[0] == path.name:
            files[name] = copied
        else:
            (folder / name).unlink()
    return files


def _copy_keys(folder: Path) -> dict[str, tuple[str, int]]:
    files = {}
    for name, path in key_places().items():
        if path.exists():
            copy_private(path, folder / KEYS / name)
            files[f"{KEYS}/{name}"] = digest_of(folder / KEYS / name)
    return files


def _open_segments(stack: ExitStack) -> list[tuple[str, BinaryIO, int]]:
    """The journal's files as they stand now: opened, since who drains one takes it away."""
    found = list[tuple[str, BinaryIO, int]]()
    for path in journal.segments():
        try:
            opened = stack.enter_context(path.open("rb"))
        except FileNotFoundError:
            continue
        found.append((path.name, opened, os.fstat(opened.fileno()).st_size))
    return found


def _cut(source: BinaryIO, size: int, destination: Path) -> tuple[str, int]:
    """Copy so many bytes; their digest and how many they were."""
    destination.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    destination.touch(mode=0o600)
    digest, left = hashlib.sha256(), size
    with destination.open("wb") as writer:
        while left and (chunk := source.read(min(left, _CHUNK_BYTES))):
            digest.update(chunk)
            left -= writer.write(chunk)
    return digest.hexdigest(), size - left


def _pack(folder: Path, path: Path) -> None:
    """One file of it, the manifest first."""
    path.touch(mode=0o600)
    with tarfile.open(path, "w") as packed:
        packed.add(folder / MANIFEST, MANIFEST)
        for entry in sorted(folder.iterdir()):
            if entry.name != MANIFEST:
                packed.add(entry, entry.name)
