"""Signatures over manifests."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from opatlas.errors import LoadError
from opatlas.load import Manifest
from opatlas.load.signing import new_key, public_bytes, read_key, sign, verify
from tests.opatlas.load.kernels import add_operator

MANIFEST = Manifest(kind="recipe", route="eager", operator=add_operator().to_json(), setting={"threads": 1})


def test_signature_of_a_trusted_key_passes(tmp_path: Path) -> None:
    key, other = new_key(tmp_path / "key.pem"), new_key(tmp_path / "other.pem")
    signature = sign(MANIFEST, read_key(tmp_path / "key.pem"))
    verify(MANIFEST, signature, [public_bytes(other), public_bytes(key)])
    again = Manifest.from_json(MANIFEST.to_json())
    verify(again, signature, [public_bytes(key)])


def test_what_was_signed_before_provenance_keeps_its_bytes(tmp_path: Path) -> None:
    old = MANIFEST.to_json()
    assert "provenance" not in old and b"provenance" not in MANIFEST.to_bytes()
    assert Manifest.from_json(old).to_bytes() == MANIFEST.to_bytes()
    key = new_key(tmp_path / "key.pem")
    told = replace(MANIFEST, provenance={"who": "acme/relu v1", "versions": {"gcc": "12.2.0"}})
    verify(Manifest.from_json(told.to_json()), sign(told, key), [public_bytes(key)])
    for forged in (replace(told, provenance={"who": "somebody else"}), replace(told, provenance=None)):
        with pytest.raises(LoadError, match="none of the trusted keys"):
            verify(forged, sign(told, key), [public_bytes(key)])


def test_other_key_changed_manifest_and_cut_signature_fail(tmp_path: Path) -> None:
    key, other = new_key(tmp_path / "key.pem"), new_key(tmp_path / "other.pem")
    signature = sign(MANIFEST, key)
    changed = replace(MANIFEST, needs={"torch": "2.13.0"})
    for manifest, made, keys in (
        (MANIFEST, signature, [public_bytes(other)]),
        (MANIFEST, signature, []),
        (changed, signature, [public_bytes(key)]),
        (MANIFEST, signature[:-1], [public_bytes(key)]),
        (MANIFEST, b"", [public_bytes(key)]),
        (MANIFEST, signature, [b"short"]),
    ):
        with pytest.raises(LoadError, match="none of the trusted keys"):
            verify(manifest, made, keys)


def test_key_file_is_private_and_never_overwritten(tmp_path: Path) -> None:
    new_key(tmp_path / "deep" / "key.pem")
    assert stat.S_IMODE((tmp_path / "deep" / "key.pem").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        new_key(tmp_path / "deep" / "key.pem")


def test_unreadable_key_says_why(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="cannot be read"):
        read_key(tmp_path / "absent.pem")
    (tmp_path / "odd.pem").write_text("not a key")
    with pytest.raises(LoadError, match="not an unencrypted PEM private key"):
        read_key(tmp_path / "odd.pem")
