"""Keys that members make for themselves: within their role, answered for by them, and gone with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from catalog.errors import RequestError
from catalog.models import ApiKey, Membership, Organisation
from catalog.people.keys import SCOPES, create_api_key
from catalog.viewing import ADMINISTER, APPROVE, BILL, NOBODY, OPERATE, SUBMIT, Viewer, viewer_of

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
    "kernels": SUBMIT,
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
    return _scopes_there(viewer_of(user), organisation.pk)


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


@contextmanager
def closing_keys_beyond(users: Collection[int]) -> Iterator[None]:
    """What happens within may take rights from these people (by id): live keys of theirs or made by them, in
    whichever organisation, with a scope that they could have made before and cannot any more are closed, in
    the same transaction. What somebody else gave a key beyond its person's rights stays."""
    with transaction.atomic():
        before = _rights_of(users)
        yield
        after = _rights_of(users)
        live = ApiKey.objects.filter(Q(user__in=users) | Q(made_by__in=users), revoked_at=None)
        beyond = [
            key.pk
            for key in live
            if set(key.scopes)
            & set(_scopes_there(before.get(key.answerable_id or 0, NOBODY), key.organisation_id))
            - set(_scopes_there(after.get(key.answerable_id or 0, NOBODY), key.organisation_id))
        ]
        ApiKey.objects.filter(pk__in=beyond).update(revoked_at=timezone.now())


def _rights_of(users: Collection[int]) -> dict[int, Viewer]:
    """By id, as they stand in the database; who is switched off has none."""
    found = get_user_model().objects.filter(pk__in=users)
    return {user.pk: viewer_of(user) if user.is_active else NOBODY for user in found}


def _scopes_there(viewer: Viewer, organisation_id: int) -> list[str]:
    """The scopes of a key of their own; none for who is no member."""
    if viewer.may(ADMINISTER, organisation_id):
        return list(SCOPES)
    return scopes_within(viewer.roles[organisation_id]) if organisation_id in viewer.roles else []
