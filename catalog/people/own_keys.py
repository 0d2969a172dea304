"""Keys that members make for themselves: within their role, answered for by them, and gone with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from catalog.errors import RequestError
from catalog.models import ApiKey, Membership, Organisation
from catalog.people.keys import SCOPES, create_api_key
from catalog.viewing import ADMINISTER, APPROVE, BILL, MAY, OPERATE, viewer_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MOST_OWN_KEYS = 5
"""Live ones of one person in one organisation: limits that count by key are not to be multiplied by making
further ones."""

# What a scope asks of its maker's role; one of them is enough. Nothing: every member looks, asks and uploads.
_ASKED: dict[str, frozenset[str]] = {
    "lookup": frozenset(),
    "models": frozenset(),
    "operate": frozenset({OPERATE}),
    "kernels": frozenset({OPERATE, APPROVE}),
    "approve": frozenset({APPROVE}),
    "billing": frozenset({BILL}),
    "admin": frozenset({ADMINISTER}),
}


class OwnKeyRefused(RequestError):
    """A key that this person may not make."""

    status = 403


def scopes_within(allowed: Collection[str]) -> list[str]:
    """The scopes that stand for no more than a role allows (``catalog.viewing.MAY``)."""
    return [scope for scope in SCOPES if not _ASKED[scope] or _ASKED[scope] & set(allowed)]


def own_scopes(user: User, organisation: Organisation) -> list[str]:
    """The scopes that a person's own key may have there; none for who is no member."""
    if viewer_of(user).may(ADMINISTER, organisation.pk):
        return list(SCOPES)
    row = Membership.objects.filter(user=user.pk, organisation=organisation.pk).first()
    return scopes_within(MAY[row.role]) if row else []


def make_own_key(
    user: User,
    organisation: Organisation,
    name: str,
    scopes: Sequence[str],
    *,
    expires_at: datetime | None = None,
    addresses: Sequence[str] = (),
) -> tuple[ApiKey, str]:
    """A key for whoever asks, and its text; raises :class:`OwnKeyRefused` beyond the role."""
    with transaction.atomic():
        # Locked: a role that is taken away meanwhile closes this key too.
        list(Membership.objects.select_for_update().filter(user=user.pk, organisation=organisation.pk))
        may = own_scopes(user, organisation)
        if not may:
            raise OwnKeyRefused(f"You are no member of {organisation}: its members make keys there.")
        if beyond := sorted(set(scopes) & set(SCOPES) - set(may)):
            raise OwnKeyRefused(f"Your role there does not allow the scope {' or '.join(beyond)}.", "scopes")
        if own_keys(user, organisation).exclude(expires_at__lte=timezone.now()).count() >= MOST_OWN_KEYS:
            raise OwnKeyRefused(f"You have {MOST_OWN_KEYS} keys there: revoke one that you no longer use.")
        return create_api_key(
            organisation, name, scopes, user=user, expires_at=expires_at, addresses=addresses
        )


def own_keys(user: User, organisation: Organisation) -> QuerySet[ApiKey]:
    """A person's keys that are not revoked."""
    return ApiKey.objects.filter(user=user.pk, organisation=organisation.pk, revoked_at=None)


def close_keys_beyond(membership: Membership, role: str) -> None:
    """Close the keys of a member with scopes that the role so far allowed and ``role`` does not."""
    lost = set(scopes_within(MAY[membership.role])) - set(scopes_within(MAY[role]))
    live = ApiKey.objects.filter(
        user=membership.user_id, organisation=membership.organisation_id, revoked_at=None
    )
    beyond = [key.pk for key in live if lost & set(key.scopes)]
    ApiKey.objects.filter(pk__in=beyond).update(revoked_at=timezone.now())
