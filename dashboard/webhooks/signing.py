"""Standard Webhooks: secrets, how they are kept, and signatures.

A secret is shown once, when it is made. It is kept encrypted by a key derived from SECRET_KEY, so a copy of
the database alone signs nothing; SECRET_KEY_FALLBACKS open what was sealed before SECRET_KEY was changed.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from standardwebhooks import Webhook

PREFIX = "whsec_"
_BYTES = 32


class Unreadable(RuntimeError):
    """A secret that no SECRET_KEY opens any more: the endpoint needs a new one."""


def new_secret() -> str:
    """``whsec_…``, 256 random bits."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode()


def seal(secret: str) -> str:
    return _box().encrypt(secret.encode()).decode()


def unseal(sealed: str) -> str:
    try:
        return _box().decrypt(sealed.encode()).decode()
    except InvalidToken as error:
        raise Unreadable("The secret cannot be read with this SECRET_KEY: rotate it.") from error


def headers(message_id: str, body: str, valid: Iterable[str], at: datetime) -> dict[str, str]:
    """The three headers of a request sent ``at`` this time, with one signature for each valid secret."""
    moment = at.astimezone(UTC)
    signatures = (Webhook(secret).sign(message_id, moment, body) for secret in valid)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def _box() -> MultiFernet:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet([Fernet(_derived(str(key))) for key in keys])


def _derived(key: str) -> bytes:
    derivation = HKDF(hashes.SHA256(), length=32, salt=None, info=b"opatlas webhook secrets")
    return base64.urlsafe_b64encode(derivation.derive(key.encode()))
