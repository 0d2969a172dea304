"""The artifact store: files by their SHA-256, below ``OPATLAS_STORE/aa/bb/<sha256>``.

A file appears at its address complete or not at all: it is written beside it, flushed to the disk, and
renamed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from catalog import failpoints, models
from catalog.best.damage import DAMAGED, mend
from catalog.best.signers import counts, register_signer
from catalog.conf import conf
from catalog.errors import DISK_FULL, DamagedArtifact, StoreError, UnvouchedArtifact, is_full
from catalog.own_files import share_file, store_folder
from opatlas.errors import LoadError
from opatlas.load import Manifest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
_CHUNK_BYTES = 1 << 20
_SHELF = re.compile(r"[0-9a-f]{2}")


def store_artifact(
    manifest: Manifest, folder: Path | str, signing_key: Ed25519PrivateKey | None = None
) -> models.Artifact:
    """Keep a manifest and its files (in ``folder``). The same artifact twice is one row, and repairs a
    damaged one. The signing key is entered among the signers. Raises :class:`StoreError` if a file differs
    from the manifest, the disk is full, or the key is retired; nothing stored before is touched then, and
    nothing half-written stays."""
    sizes = [store_file(Path(folder), name, sha256) for name, sha256 in sorted(manifest.files.items())]
    failpoints.at("store-kept")
    signature, signer = _sign(manifest, signing_key)
    row, made = models.Artifact.objects.get_or_create(
        sha256=manifest.sha256,
        defaults={
            "kind": manifest.kind,
            "manifest": manifest.to_json(),
            "signature": signature,
            "signer": signer,
            "size_bytes": sum(sizes) + len(manifest.to_bytes()),
        },
    )
    if not made and (row.damaged_at or row.manifest != manifest.to_json()):
        row.manifest = manifest.to_json()
        if signature:
            row.signature, row.signer = signature, signer
        row.save(update_fields=["manifest", "signature", "signer"])
        mend(row)
    elif not made and signature and row.signer != signer and not counts(row.signer):
        row.signature, row.signer = signature, signer
        row.save(update_fields=["signature", "signer"])
    return row


def sign_again(signing_key: Ed25519PrivateKey) -> int:
    """Sign every artifact that is unsigned or whose signer was retired; returns how many."""
    fine = models.Signer.objects.filter(retired_at=None).values("sha256")
    signed = 0
    for row in models.Artifact.objects.exclude(signer__in=fine).iterator(chunk_size=500):
        row.signature, row.signer = _sign(Manifest.from_json(row.manifest), signing_key)
        row.save(update_fields=["signature", "signer"])
        signed += 1
    return signed


def file_path(sha256: str) -> Path:
    """Where the file with this content lies, or would lie."""
    return conf().store / sha256[:2] / sha256[2:4] / sha256


def store_is_there() -> bool:
    """Whether the store holds anything. An empty folder is a disk that was not mounted: it proves nothing
    about stored artifacts."""
    try:
        with os.scandir(conf().store) as entries:
            return any(_SHELF.fullmatch(entry.name) for entry in entries)
    except OSError:
        return False


def begin_empty() -> None:
    """The store's disk is lost for good: missing files count as gone from now on."""
    store_folder(conf().store / "00")


def damage_of(artifact: models.Artifact, public_keys: Mapping[str, bytes]) -> str:
    """Why an artifact is damaged; empty if it is not. Reads every byte. ``public_keys``: raw, by the signer's
    SHA-256; without a signature by one of these, the signature is not judged. Raises :class:`StoreError` if
    the store cannot be read at all."""
    try:
        manifest = _sound_manifest(artifact)
        if (key := public_keys.get(artifact.signer)) is not None:
            _check_signature(manifest, artifact, key)
        for name, sha256 in sorted(manifest.files.items()):
            check_file(name, sha256)
    except DamagedArtifact as error:
        return str(error)
    return ""


def check_file(name: str, sha256: str) -> None:
    """Raises :class:`DamagedArtifact` unless the store's file has this content."""
    try:
        digest = _digest(file_path(sha256))
    except OSError as error:
        if not store_is_there():
            raise StoreError(f"The artifact store at {conf().store} holds nothing: is it mounted?") from error
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EIO, errno.EISDIR):
            why = os.strerror(error.errno or 0)
            raise StoreError(f"The artifact store cannot be read ({why}).") from error
        raise DamagedArtifact(f"{DAMAGED}: {name} is gone from the store") from error
    if digest != sha256:
        raise DamagedArtifact(
            f"{DAMAGED}: {name} has the SHA-256 {digest[:12]}…, its manifest says {sha256[:12]}…"
        )


def artifact_files(artifact: models.Artifact) -> dict[str, Path]:
    """Plain file name → where its bytes lie; raises :class:`StoreError` when one is gone."""
    paths = {name: file_path(sha256) for name, sha256 in artifact.manifest["files"].items()}
    for name, path in paths.items():
        if not path.is_file():
            raise StoreError(f"The store has lost the file {name} of artifact {artifact.sha256}.")
    return paths


def take_artifact(artifact: models.Artifact, folder: Path) -> Manifest:
    """Copy an artifact's files into ``folder`` to be loaded here, and return its manifest. Checks the
    manifest against its address and its signature, and every copied byte against the manifest. Raises
    :class:`DamagedArtifact` if one differs, :class:`UnvouchedArtifact` if no signature is valid, and
    :class:`StoreError` if a file is gone."""
    manifest = _vouched(artifact)
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in artifact_files(artifact).items():
        if not PLAIN_NAME.fullmatch(name):
            raise DamagedArtifact(f"{DAMAGED}: {name!r} is no plain file name")
        try:
            digest, _ = _copy(path, folder / name)
        except OSError as error:
            raise StoreError(f"{name} of artifact {artifact.sha256} cannot be read: {error}") from error
        if digest != manifest.files[name]:
            (folder / name).unlink()
            wanted = manifest.files[name][:12]
            raise DamagedArtifact(
                f"{DAMAGED}: {name} has the SHA-256 {digest[:12]}…, its manifest says {wanted}…"
            )
    return manifest


def _vouched(artifact: models.Artifact) -> Manifest:
    """The row's manifest, if it matches its address and has a valid signature."""
    manifest = _sound_manifest(artifact)
    signer = models.Signer.objects.filter(sha256=artifact.signer, retired_at=None).first()
    if signer is None:
        raise UnvouchedArtifact("artifact is not signed by a key that counts")
    _check_signature(manifest, artifact, bytes.fromhex(signer.public_key))
    return manifest


def _sound_manifest(artifact: models.Artifact) -> Manifest:
    try:
        manifest = Manifest.from_json(artifact.manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedArtifact(f"{DAMAGED}: its manifest cannot be read") from error
    if manifest.sha256 != artifact.sha256:
        raise DamagedArtifact(f"{DAMAGED}: its manifest is not the one that its address names")
    return manifest


def _check_signature(manifest: Manifest, artifact: models.Artifact, public_key: bytes) -> None:
    from opatlas.load.signing import verify

    try:
        verify(manifest, bytes.fromhex(artifact.signature), [public_key])
    except (LoadError, ValueError) as error:
        raise DamagedArtifact(f"{DAMAGED}: its signature is not its signer's") from error


def store_file(folder: Path, name: str, sha256: str) -> int:
    """Copy one file to its address (once) and give its size in bytes; what was damaged there is replaced."""
    if not PLAIN_NAME.fullmatch(name):
        raise StoreError(f"An artifact's file must have a plain name, not {name!r}.")
    address = file_path(sha256)
    if address.is_file() and _digest(address) == sha256:
        _say_wanted(address)
        return address.stat().st_size
    beside = conf().store / "tmp" / uuid.uuid4().hex
    try:
        store_folder(beside.parent)
        digest, size = _copy(folder / name, beside)
        if digest != sha256:
            raise StoreError(f"{name} has the SHA-256 {digest}, but the manifest says {sha256}.")
        share_file(beside)
        _flush(beside)
        failpoints.at("store-renaming")
        store_folder(address.parent)
        beside.rename(address)
        _flush(address.parent)  # a renamed file is durable only once its folder is
    except OSError as error:
        why = os.strerror(error.errno or 0)
        said = f"{DISK_FULL}: the" if is_full(error) else "The"
        raise StoreError(f"{said} artifact store cannot keep {name} ({why}); nothing was changed.") from error
    finally:
        beside.unlink(missing_ok=True)
    return size


def _say_wanted(address: Path) -> None:
    """Touch the file, so that the clean-up does not delete what was wanted lately and no row names yet. A
    store of another user is left alone."""
    with contextlib.suppress(OSError):
        os.utime(address)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _copy(source: Path, destination: Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    # No symbolic links: what a sandbox left must be the file, not a way out of its folder.
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as reader, destination.open("xb") as writer:
        while chunk := reader.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += writer.write(chunk)
    return digest.hexdigest(), size


def _flush(path: Path) -> None:
    """Return when a file, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sign(manifest: Manifest, key: Ed25519PrivateKey | None) -> tuple[str, str]:
    """Signature (hexadecimal) and the signer: the SHA-256 of its raw public key."""
    if key is None:
        return "", ""
    from opatlas.load.signing import public_bytes, sign

    signer = register_signer(public_bytes(key))
    if signer.retired_at is not None:
        raise StoreError(f"The signing key {signer} was retired: give this worker another one.")
    return sign(manifest, key).hex(), signer.sha256
