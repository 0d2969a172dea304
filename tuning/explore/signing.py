"""The key that signs manifests. Workers read it; nothing that answers a web request does.

It lies at OPATLAS_SIGNING_KEY, or below OPATLAS_HOME on a machine that is all of the service. Where web nodes
and workers are different users, give the file to the workers' (mode 0600): the web stack works without it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.conf import conf as catalog_conf
from tuning.conf import conf

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def key_path() -> Path:
    return conf().signing_key or catalog_conf().home / "signing_key.pem"


def signing_key() -> Ed25519PrivateKey:
    """This worker's key, made on first use for its owner's eyes only; read once a process and path."""
    return _key_at(key_path())


@cache
def _key_at(path: Path) -> Ed25519PrivateKey:
    from opatlas.load import signing

    try:
        return signing.new_key(path)
    except FileExistsError:
        return signing.read_key(path)
