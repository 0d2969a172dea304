"""Before a process first serves an artifact it reads all of it: damaged ones are not served. It remembers
whole ones; files that changed since are read again when they are fetched."""

from __future__ import annotations

from collections.abc import Collection
from threading import Lock

from cachetools import LRUCache

from catalog import models
from catalog.best.artifacts import check_file, damage_of, file_path
from catalog.best.damage import note_damage
from catalog.errors import DamagedArtifact

_REMEMBERED = 200_000
_whole: LRUCache[bytes, bool] = LRUCache(_REMEMBERED)  # artifacts
_read: LRUCache[bytes, tuple[int, int, int]] = LRUCache(_REMEMBERED)  # files: inode, size, when written
_lock = Lock()


def forget() -> None:
    """Start as after a restart: for tests."""
    with _lock:
        _whole.clear()
        _read.clear()


def public_keys() -> dict[str, bytes]:
    """Raw keys of all signers, by SHA-256."""
    rows = models.Signer.objects.values_list("sha256", "public_key")
    return {sha256: bytes.fromhex(key) for sha256, key in rows}


def find_damaged(artifacts: Collection[str]) -> set[str]:
    """Those of these (by address) that are damaged; noted, so that they are not served. Reads those that this
    process has not found whole before. Raises :class:`StoreError` if the store cannot be read at all: nothing
    is judged then."""
    with _lock:
        new = {sha256 for sha256 in artifacts if bytes.fromhex(sha256) not in _whole}
    if not new:
        return set()
    keys, gone = public_keys(), set()
    for row in models.Artifact.objects.filter(sha256__in=new):
        if reason := row.damaged_reason if row.damaged_at else damage_of(row, keys):
            note_damage(row, reason)
            gone.add(row.sha256)
        else:
            with _lock:
                _whole[bytes.fromhex(row.sha256)] = True
    return gone


def check_whole(artifact: models.Artifact, file: str = "") -> None:
    """Raises :class:`DamagedArtifact`, and notes it, if a fetched artifact or this file of it is damaged."""
    if artifact.damaged_at is not None:
        raise DamagedArtifact(_not_available(artifact.damaged_reason))
    try:
        if find_damaged([artifact.sha256]):
            artifact.refresh_from_db(fields=["damaged_reason"])
            raise DamagedArtifact(artifact.damaged_reason)
        if file:
            _check_unchanged(file, artifact.manifest["files"][file])
    except DamagedArtifact as error:
        note_damage(artifact, str(error))
        raise DamagedArtifact(_not_available(str(error))) from error


def _not_available(reason: str) -> str:
    return f"Not available: {reason}. It is built again."


def _check_unchanged(name: str, sha256: str) -> None:
    """Read a file again unless it is unchanged since it was read."""
    try:
        found = file_path(sha256).stat()
        now = (found.st_ino, found.st_size, found.st_mtime_ns)
    except OSError:
        now = (0, 0, 0)
    key = bytes.fromhex(sha256)
    with _lock:
        if _read.get(key) == now:
            return
    check_file(name, sha256)
    with _lock:
        _read[key] = now
