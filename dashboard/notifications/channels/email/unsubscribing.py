"""The signed link of every mail: ends its mails without a login (RFC 8058)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.core import signing
from django.db import transaction
from django.urls import reverse

from dashboard.notifications.models import NotificationDelivery, Subscription

NAME = "email"
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


def told_by_mail(link: Link) -> tuple[list[Subscription], list[Subscription]]:
    """The person's subscriptions that send mails: those that the link names, and the others."""
    mine = [row for row in Subscription.objects.filter(user=link.user_id) if NAME in row.told_by]
    named = {row.pk for row in mine if not link.subscriptions or row.pk in link.subscriptions}
    return [row for row in mine if row.pk in named], [row for row in mine if row.pk not in named]


def end_mail(link: Link) -> int:
    """What an unsubscribe link does: no more mails of its subscriptions; gives how many had any.

    A subscription that was told by mail alone stays, without a channel, so that it can be switched on again.
    """
    with transaction.atomic():
        named, _ = told_by_mail(link)
        NotificationDelivery.objects.filter(
            notification__subscription__in=named, channel=NAME, message=None
        ).delete()
        for row in named:
            row.told_by.remove(NAME)
            row.save(update_fields=["told_by", "changed_at"])
    return len(named)
