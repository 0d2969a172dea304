"""The key that names this service to push services (VAPID, RFC 8292): made once, kept in the state folder."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.hazmat.primitives import serialization
from py_vapid import Vapid02
from py_vapid.utils import b64urlencode

from catalog.conf import conf as catalog_conf
from dashboard.conf import conf
from dashboard.project.secret import made_once

FILE = "vapid.pem"


def key() -> Vapid02:
    """OPATLAS_VAPID_KEY (base64url, of all nodes the same), else the state folder's own."""
    return _key(conf().vapid_key, catalog_conf().home / FILE)


@lru_cache(maxsize=2)
def _key(given: str, path: Path) -> Vapid02:
    if given:
        return Vapid02.from_string(given)
    return Vapid02.from_pem(made_once(path, _pem))


def _pem() -> bytes:
    made = Vapid02()
    made.generate_keys()
    return bytes(made.private_pem())


def public_key() -> str:
    """What a browser subscribes with: the uncompressed point, base64url."""
    point = key().public_key.public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    return str(b64urlencode(point))


def headers(endpoint: str, expires_at: int) -> dict[str, str]:
    """The Authorization header for one push service. ``expires_at``: seconds since 1970."""
    parts = urlsplit(endpoint)
    claims = {"aud": f"{parts.scheme}://{parts.netloc}", "sub": _contact(), "exp": expires_at}
    return dict(key().sign(claims))


def _contact() -> str:
    """Whom a push service asks when something is wrong."""
    address = conf().email_from
    return "mailto:" + (address.split("<")[1].rstrip(">") if "<" in address else address)
