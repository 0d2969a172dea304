import errno
import hashlib
import os

import pytest

from catalog import models
from catalog.best import artifacts
from catalog.best.artifacts import artifact_files, file_path, store_artifact, take_artifact
from catalog.best.signers import retire_signer
from catalog.errors import DamagedArtifact, StoreError, UnvouchedArtifact
from opatlas.load import Manifest
from opatlas.load.signing import new_key, public_bytes, verify
from tests.catalog.making import write_file

pytestmark = pytest.mark.django_db


def manifest_of(files):
    return Manifest(kind="c-abi", route="tvm", operator={}, setting={}, files=files)


def stored_files():
    from catalog.conf import conf

    return sorted(path.name for path in conf().store.rglob("*") if path.is_file())


def test_files_lie_under_their_content_and_the_same_artifact_is_one_row(tmp_path):
    manifest = manifest_of(write_file(tmp_path, "kernel.so", b"code"))
    row = store_artifact(manifest, tmp_path)
    assert store_artifact(manifest, tmp_path) == row
    digest = hashlib.sha256(b"code").hexdigest()
    assert artifact_files(row) == {"kernel.so": file_path(digest)}
    assert file_path(digest).read_bytes() == b"code"
    assert stored_files() == [digest]
    assert row.size_bytes == 4 + len(manifest.to_bytes())


def test_the_manifest_comes_back_exactly(tmp_path):
    manifest = Manifest(
        kind="recipe", route="x", operator={"a": [1e22, -0.0, 1.0, 2**60]}, setting={}, recipe={"é": "\u2028"}
    )
    store_artifact(manifest, tmp_path)
    again = Manifest.from_json(models.Artifact.objects.get().manifest)
    assert again.to_bytes() == manifest.to_bytes()
    assert again.sha256 == models.Artifact.objects.get().sha256


def test_it_is_signed_by_the_workers_key(tmp_path):
    key = new_key(tmp_path / "key.pem")
    manifest = manifest_of({})
    row = store_artifact(manifest, tmp_path, key)
    verify(manifest, bytes.fromhex(row.signature), [public_bytes(key)])
    assert row.signer == hashlib.sha256(public_bytes(key)).hexdigest()


def test_a_file_that_is_not_what_the_manifest_says_is_refused(tmp_path):
    files = write_file(tmp_path, "kernel.so", b"code")
    (tmp_path / "kernel.so").write_bytes(b"other code")
    with pytest.raises(StoreError, match="SHA-256"):
        store_artifact(manifest_of(files), tmp_path)
    assert stored_files() == []
    assert not models.Artifact.objects.exists()


@pytest.mark.parametrize("name", ["../kernel.so", "/etc/passwd", ".hidden", "a/b", "", "a\0b", "x" * 200])
def test_only_plain_names_are_stored(tmp_path, name):
    with pytest.raises(StoreError, match="plain name"):
        store_artifact(manifest_of({name: "0" * 64}), tmp_path)


def test_a_symbolic_link_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    folder = tmp_path / "build"
    folder.mkdir()
    (folder / "kernel.so").symlink_to(secret)
    with pytest.raises(StoreError):
        store_artifact(manifest_of({"kernel.so": hashlib.sha256(b"secret").hexdigest()}), folder)
    assert stored_files() == []


def test_a_full_disk_is_said_clearly_and_loses_nothing(tmp_path, monkeypatch):
    first = store_artifact(manifest_of(write_file(tmp_path, "a.so", b"first")), tmp_path)
    kept = stored_files()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(artifacts.os, "fsync", full)
    files = write_file(tmp_path, "b.so", b"second")
    with pytest.raises(StoreError, match="No space left"):
        store_artifact(manifest_of(files), tmp_path)
    assert stored_files() == kept
    assert artifact_files(first)["a.so"].read_bytes() == b"first"


@pytest.fixture
def signed(tmp_path):
    """``signed()``: an artifact of one file in the store, signed; and the key."""
    key = new_key(tmp_path / "key.pem")
    manifest = manifest_of(write_file(tmp_path, "kernel.so", b"code"))
    return store_artifact(manifest, tmp_path, key)


def flip_a_byte(row):
    (path,) = artifact_files(row).values()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_what_verifies_is_taken_whole(signed, tmp_path):
    manifest = take_artifact(signed, tmp_path / "out")
    assert manifest.sha256 == signed.sha256
    assert (tmp_path / "out" / "kernel.so").read_bytes() == b"code"


def test_a_flipped_byte_is_not_taken_and_is_repaired_when_it_is_stored_again(signed, tmp_path):
    flip_a_byte(signed)
    with pytest.raises(DamagedArtifact, match=r"artifact is damaged: kernel\.so has the SHA-256"):
        take_artifact(signed, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    store_artifact(Manifest.from_json(signed.manifest), tmp_path)
    assert take_artifact(signed, tmp_path / "out").files == signed.manifest["files"]


def test_a_file_that_is_a_link_in_the_store_is_not_followed(signed, tmp_path):
    (path,) = artifact_files(signed).values()
    path.unlink()
    path.symlink_to(tmp_path / "kernel.so")  # the very same bytes
    with pytest.raises(StoreError, match="cannot be read"):
        take_artifact(signed, tmp_path / "out")


def test_a_manifest_that_was_changed_is_not_believed(signed, tmp_path):
    other = write_file(tmp_path, "other.so", b"evil")
    signed.manifest = {**signed.manifest, "files": other}
    with pytest.raises(DamagedArtifact, match="its manifest is not the one"):
        take_artifact(signed, tmp_path / "out")
    signed.sha256 = Manifest.from_json(signed.manifest).sha256  # the address changed with it
    with pytest.raises(DamagedArtifact, match="signature"):
        take_artifact(signed, tmp_path / "out")
    signed.manifest = {"kind": "c-abi"}
    with pytest.raises(DamagedArtifact, match="cannot be read"):
        take_artifact(signed, tmp_path / "out")


@pytest.mark.parametrize("how", ["unsigned", "a retired key", "a signature of nothing"])
def test_what_nobody_vouches_for_is_not_taken(signed, tmp_path, how):
    if how == "unsigned":
        signed.signature, signed.signer = "", ""
    elif how == "a retired key":
        retire_signer(signed.signer)
    else:
        signed.signature = "00" * 64
    expected = DamagedArtifact if how == "a signature of nothing" else UnvouchedArtifact
    with pytest.raises(expected):
        take_artifact(signed, tmp_path / "out")
