"""API keys: random, shown once, kept as a SHA-256, scoped, revocable; if wanted for a time, from networks."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from catalog import models
from catalog.errors import RequestError
from catalog.people.addresses import are_within, is_within, networks_of
from catalog.selectors.rows import row_by

if TYPE_CHECKING:
    from django.contrib.auth.models import User

SCOPES = ("lookup", "models", "operate", "kernels", "approve", "billing", "admin")
"""``lookup`` asks, ``models`` uploads models, ``operate`` steers queues, ``kernels`` submits kernels,
``approve`` decides on them, ``billing`` sees and sets prices and credit, ``admin`` may do all of it. Kernels
need a key that belongs to a user."""

NOT_KNOWN = "This API key is not known: ask your administrator for one."
_LAST_USED_EVERY = timedelta(minutes=1)
_PREFIX_CHARACTERS = "abcdefghjkmnpqrstuvwxyz23456789"


class KeyRefused(RequestError):
    """A key that opens nothing: missing, malformed, unknown, revoked, expired, or from elsewhere."""

    status = 401


def create_api_key(
    organisation: models.Organisation,
    name: str,
    scopes: Sequence[str],
    *,
    user: User | None = None,
    made_by: User | None = None,
    made_by_key: models.ApiKey | None = None,
    max_queued_misses: int = 10_000,
    expires_at: datetime | None = None,
    addresses: Sequence[str] = (),
) -> tuple[models.ApiKey, str]:
    """A new key and its text ``opk_<prefix>_<secret>``, which cannot be had a second time. ``made_by``: who
    makes one that is no person's. ``addresses``: the networks that it is used from; none: from anywhere."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise RequestError(f"Scopes must be some of {', '.join(SCOPES)}, not {', '.join(unknown) or 'none'}.")
    if expires_at is not None and expires_at <= timezone.now():
        raise RequestError("A key expires in the future, or never.", "expires_at")
    prefix = "".join(secrets.choice(_PREFIX_CHARACTERS) for _ in range(12))
    secret = secrets.token_urlsafe(32)
    key = models.ApiKey.objects.create(
        organisation=organisation,
        user=user,
        made_by=None if user else made_by,
        made_by_key=made_by_key,
        name=name[:200],
        prefix=prefix,
        secret_sha256=_digest(secret),
        scopes=sorted(set(scopes)),
        max_queued_misses=max_queued_misses,
        expires_at=expires_at,
        addresses=networks_of(addresses) or None,
    )
    return key, f"opk_{prefix}_{secret}"


def make_key_by(
    asking: models.ApiKey,
    name: str,
    scopes: Sequence[str],
    *,
    personal: bool,
    expires_at: datetime | None,
    addresses: Sequence[str],
) -> tuple[models.ApiKey, str]:
    """A key that another one asks for: it ends no later than that one, and is used from no other networks."""
    if asking.expires_at is not None:
        if expires_at is not None and expires_at > asking.expires_at:
            raise RequestError(
                f"A key ends no later than the one that makes it, on {asking.expires_at:%Y-%m-%d %H:%M} UTC.",
                "expires_at",
            )
        expires_at = expires_at or asking.expires_at
    if asking.addresses is not None:
        addresses = addresses or asking.addresses
        if not are_within(addresses, asking.addresses):
            raise RequestError(
                "A key is used from no other networks than the one that makes it: "
                f"{', '.join(asking.addresses)}.",
                "addresses",
            )
    return create_api_key(
        asking.organisation,
        name,
        scopes,
        user=asking.user if personal else None,
        made_by=asking.user or asking.made_by,
        made_by_key=asking,
        expires_at=expires_at,
        addresses=addresses,
    )


def expiry_of(text: str) -> datetime | None:
    """``2027-01-31`` (its beginning) or with a time, of UTC where no zone is named; empty: None."""
    try:
        given = datetime.fromisoformat(text.strip()) if text.strip() else None
        return given and (given if given.tzinfo else given.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise RequestError("An end is a day or a time: 2027-01-31, 2027-01-31T18:00.", "expires_at") from None


def key_of_text(text: str) -> models.ApiKey:
    """The key whose text it is, whatever it opens now; raises :class:`KeyRefused` where it is nobody's."""
    parts = text.split("_", 2)
    if len(parts) != 3 or parts[0] != "opk" or not parts[1].isascii() or not 0 < len(parts[1]) <= 16:
        raise KeyRefused("This is no API key: one looks like opk_<prefix>_<secret>.")
    key = row_by(models.ApiKey, "prefix", parts[1].replace("\0", ""), related="organisation")
    # Compared in constant time, and for an unknown prefix too, so that time tells nothing.
    expected = key.secret_sha256 if key else "0" * 64
    matches = hmac.compare_digest(_digest(parts[2]), expected)
    if key is None or not matches:
        raise KeyRefused(NOT_KNOWN)
    return key


def authenticate(
    text: str, address: str = "", read: Callable[[str], models.ApiKey] = key_of_text
) -> models.ApiKey:
    """The key that this text opens for who comes from ``address``, its use noted; raises
    :class:`KeyRefused`. Limits are told to who has the whole key alone. ``read``: how its row is had."""
    key = read(text)
    if key.revoked_at is not None:
        raise KeyRefused(f"This API key was revoked on {key.revoked_at:%Y-%m-%d}: use another one.")
    if key.expired:
        raise KeyRefused(f"This API key expired on {key.expires_at:%Y-%m-%d %H:%M} UTC: ask for another one.")
    if key.addresses is not None and not is_within(address, key.addresses):
        raise KeyRefused(f"This API key is not for use from {address or 'there'}: ask where it is.")
    _touch(key)
    return key


def revoke_api_key(prefix: str) -> models.ApiKey:
    """Close a key at once; closing it twice changes nothing."""
    models.ApiKey.objects.filter(prefix=prefix, revoked_at=None).update(revoked_at=timezone.now())
    key = models.ApiKey.objects.filter(prefix=prefix).first()
    if key is None:
        raise RequestError(f"No API key has the prefix {prefix!r}.")
    return key


def open_keys_made_with(key: models.ApiKey) -> list[models.ApiKey]:
    """Keys that were made with this one, or with one of those, and are open: closing it closes none of them,
    since keys are exchanged so; whoever closes one that others know should know of them."""
    found: dict[int, models.ApiKey] = {}
    makers = {key.pk}
    while makers:
        made = models.ApiKey.objects.filter(made_by_key__in=makers).exclude(pk__in=[key.pk, *found])
        new = {one.pk: one for one in made.order_by("pk")}
        found |= new
        makers = set(new)
    return [one for one in found.values() if one.revoked_at is None and not one.expired]


def facts_of(key: models.ApiKey) -> dict[str, Any]:
    """What the audit log says of a new key: what it opens, and its limits."""
    facts: dict[str, Any] = {"scopes": key.scopes}
    if key.expires_at is not None:
        facts["expires_at"] = key.expires_at.isoformat()
    return facts | ({"addresses": key.addresses} if key.addresses else {})


def has_scope(key: models.ApiKey, scope: str) -> bool:
    return scope in key.scopes or "admin" in key.scopes


def _touch(key: models.ApiKey) -> None:
    """Note that the key was used, once a minute at most: a lookup stays free of writes."""
    now = timezone.now()
    if key.last_used_at is None or now - key.last_used_at > _LAST_USED_EVERY:
        models.ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)
        key.last_used_at = now  # requests of one look share the row


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
