"""Keeping a trained network: its file in the artifact store, and who vouches for it."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import Max

from catalog.best.artifacts import file_path, store_file
from catalog.best.signers import register_signer
from catalog.errors import StoreError
from catalog.models import SHARED, Organisation, PredictorNetwork
from opatlas.client.predict.network import FORMAT, OperatorNetwork
from opatlas.load.signing import public_bytes, sign_network

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEPT = 3
"""Versions of a scope: a client that fetches one just now gets it to its end."""


def publish_network(
    data: bytes, owner: Organisation | None, signing_key: Ed25519PrivateKey
) -> PredictorNetwork:
    """Sign and keep a network as the newest: of its owner, or shared. Raises :class:`StoreError`, and
    :class:`opatlas.errors.LoadError` for one that clients would refuse."""
    keys = OperatorNetwork.read(data).keys
    sha256 = hashlib.sha256(data).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "predictor.onnx").write_bytes(data)
        store_file(Path(folder), "predictor.onnx", sha256)
    signer = register_signer(public_bytes(signing_key))
    if signer.retired_at is not None:
        raise StoreError(f"The signing key {signer} was retired: give this worker another one.")
    scope = SHARED if owner is None else f"org:{owner.pk}"
    with transaction.atomic():
        mine = PredictorNetwork.objects.select_for_update().filter(scope=scope)
        version = (mine.aggregate(last=Max("version"))["last"] or 0) + 1
        document = {
            "format": FORMAT,
            "scope": scope,
            "version": version,
            "sha256": sha256,
            "size_bytes": len(data),
            "operators": len(keys),
        }
        row = PredictorNetwork.objects.create(
            scope=scope,
            owner=owner,
            version=version,
            sha256=sha256,
            size_bytes=len(data),
            document=document,
            signature=sign_network(document, signing_key).hex(),
            signer=signer.sha256,
        )
        old = list(mine.filter(version__lte=version - KEPT))
        mine.filter(version__lte=version - KEPT).delete()
    for gone in {one.sha256 for one in old}:
        if not PredictorNetwork.objects.filter(sha256=gone).exists():
            file_path(gone).unlink(missing_ok=True)
    return row
