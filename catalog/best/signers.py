"""Who may sign artifacts. Public keys only: workers alone read a private one (``tuning.explore.signing``)."""

from __future__ import annotations

import hashlib

from django.utils import timezone

from catalog import models
from catalog.errors import RequestError


def register_signer(public_key: bytes) -> models.Signer:
    """The signer with this raw public key (32 bytes), made on its first sight."""
    row, _ = models.Signer.objects.get_or_create(
        sha256=hashlib.sha256(public_key).hexdigest(), defaults={"public_key": public_key.hex()}
    )
    return row


def counts(sha256: str) -> bool:
    """Whether signatures of this signer are accepted."""
    return models.Signer.objects.filter(sha256=sha256, retired_at=None).exists()


def retire_signer(beginning: str) -> models.Signer:
    """Let a key's signatures count no longer; retiring it twice changes nothing."""
    found = list(models.Signer.objects.filter(sha256__startswith=beginning)[:2])
    if len(found) != 1 or not beginning:
        which = "More than one signer begins" if found else "No signer begins"
        raise RequestError(f"{which} with {beginning!r}: GET /api/v1/signers/ lists them.")
    models.Signer.objects.filter(pk=found[0].pk, retired_at=None).update(retired_at=timezone.now())
    found[0].refresh_from_db()
    return found[0]
