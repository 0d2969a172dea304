"""The signed link of every mail: ends its mails without a login (RFC 8058)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.core import signing
from django.urls import reverse

_SALT = "dashboard.notifications.unsubscribe"
_MOST = 40  # a link must not grow beyond what mailboxes keep; past it a link means every subscription


@dataclass(frozen=True)
class Link:
    """Whose mails, of which subscriptions; none named: of all of them."""

    user_id: int
    subscriptions: tuple[int, ...]


def path_for(user_id: int, subscriptions: Sequence[int]) -> str:
    """The address that a mail carries. It does not expire: mails are kept for years."""
    named = list(subscriptions) if len(subscriptions) <= _MOST else []
    token = signing.dumps([user_id, named], salt=_SALT)
    return reverse("notification-unsubscribe", args=[token])


def read(token: str) -> Link | None:
    """What a link says; None where it was not made by us."""
    try:
        user_id, named = signing.loads(token, salt=_SALT)
        return Link(int(user_id), tuple(int(one) for one in named))
    except (signing.BadSignature, ValueError, TypeError):
        return None
