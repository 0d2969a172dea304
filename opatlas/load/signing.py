"""Ed25519 signatures over manifests, networks and plans."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from opatlas.errors import LoadError
from opatlas.identity.operator import canonical_json
from opatlas.load.manifest import Manifest

# A signature made for something else can never pass for a manifest's, a network's or a plan's.
_DOMAIN, _NETWORK, _PLAN = b"opatlas manifest 1\n", b"opatlas network 1\n", b"opatlas plan 1\n"


def new_key(path: Path) -> Ed25519PrivateKey:
    """Make a private key and keep it at ``path`` (PEM, mode 0600); never overwrites one."""
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(pem)
    return key


def read_key(path: Path) -> Ed25519PrivateKey:
    """The private key at ``path``; :class:`LoadError` if there is none or it is of another kind."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise LoadError(f"signing key cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise LoadError("signing key is not an unencrypted PEM private key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise LoadError("signing key is not an Ed25519 key")
    return key


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """The public key as 32 raw bytes, for verifying."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def sign(manifest: Manifest, private_key: Ed25519PrivateKey) -> bytes:
    """The 64-byte signature over the manifest's canonical bytes."""
    return private_key.sign(_DOMAIN + manifest.to_bytes())


def verify(manifest: Manifest, signature: bytes, public_keys: Iterable[bytes]) -> None:
    """Raise :class:`LoadError` unless one of the trusted keys (32 raw bytes each) made the signature."""
    _verify(_DOMAIN + manifest.to_bytes(), signature, public_keys, "manifest")


def sign_network(document: Mapping[str, Any], private_key: Ed25519PrivateKey) -> bytes:
    """The 64-byte signature over the description of a predictor's network, with its file's SHA-256."""
    return private_key.sign(_NETWORK + canonical_json(document))


def verify_network(document: Mapping[str, Any], signature: bytes, public_keys: Iterable[bytes]) -> None:
    """See :func:`verify`."""
    _verify(_NETWORK + canonical_json(document), signature, public_keys, "network")


def sign_plan(document: Mapping[str, Any], private_key: Ed25519PrivateKey) -> bytes:
    """The 64-byte signature over a model's plan as JSON (``ModelPlan.to_json()``)."""
    return private_key.sign(_PLAN + canonical_json(document))


def verify_plan(document: Mapping[str, Any], signature: bytes, public_keys: Iterable[bytes]) -> None:
    """See :func:`verify`."""
    _verify(_PLAN + canonical_json(document), signature, public_keys, "plan")


def _verify(signed: bytes, signature: bytes, public_keys: Iterable[bytes], what: str) -> None:
    for public_key in public_keys:
        try:
            Ed25519PublicKey.from_public_bytes(public_key).verify(signature, signed)
            return
        except (InvalidSignature, ValueError):
            continue
    raise LoadError(f"the {what}'s signature was made by none of the trusted keys")
