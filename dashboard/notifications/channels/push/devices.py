"""Browsers that take Web Push: remembered with the keys that they gave."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric import ec
from django.contrib.auth.models import User

from catalog.errors import RequestError
from dashboard.notifications.models import PushDevice
from dashboard.webhooks import guard

MOST_DEVICES = 20
_POINT_BYTES, _SECRET_BYTES = 65, 16


@dataclass(frozen=True)
class PushOffer:
    """What ``PushManager.subscribe`` gave: an address and two keys, base64url."""

    endpoint: str
    p256dh: str
    auth: str
    name: str = ""


def remember(user: User, offer: PushOffer) -> PushDevice:
    """The device's row; one that is known goes over to whoever uses it now. Refuses what is no push
    service on the internet, and keys that nothing can be encrypted for."""
    if len(offer.endpoint) > 1000:
        raise RequestError("The push service's address is too long.", where="endpoint")
    parts, host, port = guard.check_url(offer.endpoint)
    if not guard.allowed(host, port):
        if parts.scheme != "https":
            raise RequestError("A push service's address begins with https://.", where="endpoint")
        guard.check_literal(host)
    _check_keys(offer)
    digest = hashlib.sha256(offer.endpoint.encode()).hexdigest()
    others = PushDevice.objects.filter(user=user).exclude(endpoint_sha256=digest)
    if others.count() >= MOST_DEVICES:
        raise RequestError(f"You have {MOST_DEVICES} devices: remove one first.", where="endpoint")
    values = {
        "user": user,
        "endpoint": offer.endpoint,
        "p256dh": offer.p256dh,
        "auth": offer.auth,
        "name": offer.name[:200],
        "error": "",
    }
    return PushDevice.objects.update_or_create(endpoint_sha256=digest, defaults=values)[0]


def _check_keys(offer: PushOffer) -> None:
    point, secret = _bytes(offer.p256dh, "p256dh"), _bytes(offer.auth, "auth")
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
    except ValueError as error:
        raise RequestError("p256dh is no public key of a browser.", where="p256dh") from error
    if len(point) != _POINT_BYTES or len(secret) != _SECRET_BYTES:
        raise RequestError("The keys have not the length of a browser's.", where="auth")


def _bytes(text: str, where: str) -> bytes:
    try:
        if len(text) > 120:
            raise ValueError("too long")
        return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (ValueError, binascii.Error) as error:
        raise RequestError(f"{where} must be base64url.", where=where) from error


def browser_name(user_agent: str) -> str:
    """``Firefox on Android``, from what a browser calls itself; enough to recognise a device by."""
    browsers = (("Edg", "Edge"), ("OPR", "Opera"), ("Firefox", "Firefox"), ("Chrome", "Chrome"))
    systems = (
        ("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Windows", "Windows"),
        ("Mac OS", "macOS"), ("CrOS", "ChromeOS"), ("Linux", "Linux"),
    )  # fmt: skip
    browser = next(
        (name for sign, name in (*browsers, ("Safari", "Safari")) if sign in user_agent), "Browser"
    )
    system = next((name for sign, name in systems if sign in user_agent), "")
    return f"{browser} on {system}" if system else browser
