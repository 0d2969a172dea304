"""Writes a client's choices into a snapshot."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opatlas.client.answer import Answer
from opatlas.client.client import Client
from opatlas.client.snapshot import FORMAT, SIGNED, Snapshot
from opatlas.errors import CallerError
from opatlas.identity.operator import canonical_json
from opatlas.load.signing import public_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def export_snapshot(
    client: Client, operators: Iterable[Any], path: Path | str, private_key: Ed25519PrivateKey
) -> Snapshot:
    """Write what ``client`` chooses for these operators (all must hit), with every file, signed. Raises
    :class:`opatlas.errors.CallerError` if one is unknown, and writes nothing."""
    answers = sorted({one.key: one for one in client.lookup_all(list(operators))}.values(), key=_key)
    for answer in answers:
        if not answer.hit:
            raise CallerError(f"Operator {answer.key} is not known ({answer.reason or answer.state}).")
    fetched = {
        str(answer.best["artifact"]): client.artifacts.fetch(answer, client.revoked)
        for answer in answers
        if answer.best
    }
    signers = {str(found.document["signer"]): dict(found.signer) for found in fetched.values()}
    document = {
        "format": FORMAT,
        "target": answers[0].target if answers else client.target.key,
        "setting": answers[0].setting if answers else "",
        "entries": [answer.to_json() for answer in answers],
        "manifests": {sha256: dict(found.document) for sha256, found in fetched.items()},
        "signers": signers,
    }
    text = canonical_json(document)
    files = {
        digest: (found.folder / name).read_bytes()
        for found in fetched.values()
        for name, digest in found.manifest.files.items()
    }
    part = Path(path).with_name(Path(path).name + ".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "snapshot.json", text)
        _add(archive, "signature", private_key.sign(SIGNED + text))
        for digest, content in sorted(files.items()):
            _add(archive, f"files/{digest}", content)
    part.replace(path)
    return Snapshot.open(path, [public_bytes(private_key)])


def _key(answer: Answer) -> str:
    return answer.key


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # no time of day: the same choices, the same bytes
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, content)
