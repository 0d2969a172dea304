"""A pinned snapshot: a job's choices in one signed file, so that its numerics can be reproduced.

A zip archive: ``snapshot.json`` (what was chosen for each operator, with manifests and who signed them),
``signature`` (Ed25519 over its bytes) and ``files/<sha256>``. The same choices give the same bytes.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opatlas.client.answer import Answer
from opatlas.errors import CallerError, LoadError
from opatlas.identity.operator import canonical_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from opatlas.client.client import Client

FORMAT = 1
MOST_JSON_BYTES = 1 << 30
_SIGNED = b"opatlas snapshot 1\n"


@dataclass(frozen=True)
class Snapshot:
    """What was chosen: answers, manifests and signers' keys. ``place``: the target's and setting's keys."""

    place: tuple[str, str]
    answers: Mapping[str, Answer]
    manifests: Mapping[str, Mapping[str, Any]]
    signers: Mapping[str, Mapping[str, Any]]
    path: Path

    @classmethod
    def open(cls, path: Path | str, trusted: Iterable[bytes]) -> Snapshot:
        """Read a snapshot that one of the ``trusted`` public keys (32 raw bytes each) signed. Raises
        :class:`opatlas.errors.LoadError` with what is wrong."""
        try:
            with zipfile.ZipFile(path) as archive:
                if archive.getinfo("snapshot.json").file_size > MOST_JSON_BYTES:
                    raise LoadError(f"snapshot {path} is larger than {MOST_JSON_BYTES >> 20} MiB")
                text, signature = archive.read("snapshot.json"), archive.read("signature")
        except (OSError, KeyError, zipfile.BadZipFile, EOFError) as error:
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
        """An artifact's files into ``folder``, unverified: the loader compares their digests."""
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(self.path) as archive:
            for name, digest in self.manifests[sha256]["manifest"]["files"].items():
                (folder / Path(name).name).write_bytes(archive.read(f"files/{digest}"))


def export_snapshot(
    client: Client, operators: Iterable[Any], path: Path | str, private_key: Ed25519PrivateKey
) -> Snapshot:
    """Write down what ``client`` chooses for these operators (all must hit), with every file, signed.

    Raises :class:`opatlas.errors.CallerError` where one of them is not known: nothing is written.
    """
    from opatlas.client.function import fetch_artifact
    from opatlas.load.signing import public_bytes

    answers = sorted({one.key: one for one in client.lookup_all(list(operators))}.values(), key=_key)
    for answer in answers:
        if not answer.hit:
            raise CallerError(f"Operator {answer.key} is not known ({answer.reason or answer.state}).")
    fetched = {
        str(answer.best["artifact"]): fetch_artifact(client, answer) for answer in answers if answer.best
    }
    signers = {str(found.document["signer"]): dict(found.signer) for found in fetched.values()}
    document = {
        "format": FORMAT,
        "target": answers[0].target if answers else client.rest.target.key,
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
        _add(archive, "signature", private_key.sign(_SIGNED + text))
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


def _verify(text: bytes, signature: bytes, trusted: Iterable[bytes]) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    for key in trusted:
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, _SIGNED + text)
            return
        except (InvalidSignature, ValueError):
            continue
    raise LoadError("the snapshot was signed by none of the trusted keys, or was changed since")
