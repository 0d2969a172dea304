"""A pinned snapshot: a job's choices in one signed file, so that its numerics can be reproduced.

A zip archive: ``snapshot.json`` (what was chosen for each operator, with manifests and who signed them),
``signature`` (Ed25519 over its bytes) and ``files/<sha256>``. The same choices give the same bytes.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opatlas.client.answer import Answer
from opatlas.errors import LoadError
from opatlas.load.files import MAX_FILE_BYTES

FORMAT = 1
MOST_JSON_BYTES = 256 << 20
_UNREADABLE = (OSError, LookupError, ValueError, zipfile.BadZipFile, EOFError, zlib.error, RuntimeError)
SIGNED = b"opatlas snapshot 1\n"


@dataclass(frozen=True)
class Snapshot:
    """The choices: answers, manifests and signers' keys. ``place``: the target's and setting's keys."""

    place: tuple[str, str]
    answers: Mapping[str, Answer]
    manifests: Mapping[str, Mapping[str, Any]]
    signers: Mapping[str, Mapping[str, Any]]
    path: Path

    @classmethod
    def open(cls, path: Path | str, trusted: Iterable[bytes]) -> Snapshot:
        """Read a snapshot signed by one of the ``trusted`` public keys (32 raw bytes each). Raises
        :class:`opatlas.errors.LoadError` with what is wrong."""
        try:
            with zipfile.ZipFile(path) as archive:
                text = _member(archive, "snapshot.json", MOST_JSON_BYTES)
                signature = _member(archive, "signature", 64)
        except _UNREADABLE as error:
            raise LoadError(f"snapshot {path} cannot be read: {error}") from error
        _verify(text, signature, trusted)
        document = json.loads(text)  # signed: it is what one of ours wrote
        if document["format"] != FORMAT:
            raise LoadError(
                f"snapshot {path} has the format {document['format']}; this client reads {FORMAT}"
            )
        target, setting = document["target"], document["setting"]
        answers = {
            item["key"]: replace(Answer.from_json(item, target, setting), source="snapshot")
            for item in document["entries"]
        }
        return cls((target, setting), answers, document["manifests"], document["signers"], Path(path))

    def extract(self, sha256: str, folder: Path) -> None:
        """Put an artifact's files into ``folder``, unverified: the loader compares their digests."""
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with zipfile.ZipFile(self.path) as archive:
                for name, digest in self.manifests[sha256]["manifest"]["files"].items():
                    content = _member(archive, f"files/{digest}", MAX_FILE_BYTES)
                    part = folder / f"{name}.{os.getpid()}.part"
                    part.write_bytes(content)
                    part.replace(folder / name)
        except _UNREADABLE as error:
            raise LoadError(f"snapshot {self.path} cannot be read: {error}") from error


def _member(archive: zipfile.ZipFile, name: str, most_bytes: int) -> bytes:
    """A member's content, read up to its limit."""
    if archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"{name} is compressed in another way than snapshots are")
    with archive.open(name) as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise zipfile.BadZipFile(f"{name} has more than {most_bytes} bytes")
    return content


def _verify(text: bytes, signature: bytes, trusted: Iterable[bytes]) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    for key in trusted:
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, SIGNED + text)
            return
        except (InvalidSignature, ValueError):
            continue
    raise LoadError("the snapshot was signed by none of the trusted keys, or was changed since")
