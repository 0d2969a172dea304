"""What one message says: its lines, its subject, where each leads. Read from the database, sent elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.notifications.models import (
    Happening,
    Notification,
    NotificationDelivery,
    NotificationMessage,
    Subscription,
)
from dashboard.notifications.write import wording
from dashboard.notifications.write.audiences import audiences
from opatlas.conf import conf

LINES_SHOWN = 50


@dataclass(frozen=True)
class LetterLine:
    """One notification within a message."""

    happening: str
    key: str
    at: str
    text: str
    url: str
    count: int
    operator_key: str
    facts: dict[str, object]


@dataclass(frozen=True)
class Letter:
    """A message ready to be sent. ``subscriptions``: those it was sent for, to unsubscribe from."""

    message_id: int
    user_id: int
    user_email: str
    organisation_id: int | None
    digest: str
    lines: tuple[LetterLine, ...]
    subscriptions: tuple[int, ...] = ()
    titles: tuple[str, ...] = ()
    reached: tuple[int, ...] = ()

    @property
    def subject(self) -> str:
        return wording.subject_of([line.text for line in self.lines], self.digest)

    @property
    def url(self) -> str:
        """Where to look: what the only line is about, or the inbox."""
        return self.lines[0].url if len(self.lines) == 1 else absolute("/notifications/")


def absolute(path: str) -> str:
    """An address that works outside of the service's own pages."""
    return f"{conf().service_url}{path}"


def letters(messages: Sequence[NotificationMessage]) -> list[Letter]:
    """For each message what it says (some statements for all of them); without lines where nobody wants it
    any more: unsubscribed, or no longer of the organisation."""
    links = (
        NotificationDelivery.objects.filter(message__in=messages)
        .select_related("notification__subscription", "notification__operator")
        .defer("notification__operator__graph")
        .order_by("notification_id")
    )
    by_message: dict[int | None, list[Notification]] = defaultdict(list)
    for link in links:
        by_message[link.message_id].append(link.notification)
    told = (row.subscription for rows in by_message.values() for row in rows)
    welcome = _welcome(list({one.pk: one for one in told if one is not None}.values()))
    return [_letter(one, by_message[one.pk], welcome) for one in messages]


def _welcome(subscriptions: list[Subscription]) -> set[int]:
    """Subscriptions whose person may still hear of their organisation."""
    heard_by = audiences(subscriptions)
    return {
        one.pk
        for one in subscriptions
        if one.organisation_id is None or heard_by[one.pk].owns(one.organisation_id)
    }


def _letter(message: NotificationMessage, rows: list[Notification], welcome: set[int]) -> Letter:
    kept = [row for row in rows if _is_wanted(row, message.channel, welcome)]
    subscriptions = {row.subscription.pk: row.subscription for row in kept if row.subscription is not None}
    return Letter(
        message_id=message.pk,
        user_id=message.user_id,
        user_email=message.user.email,
        organisation_id=message.organisation_id,
        digest=message.digest,
        lines=tuple(_line(row) for row in kept),
        subscriptions=tuple(sorted(subscriptions)),
        titles=tuple(str(one) for _, one in sorted(subscriptions.items())),
        reached=tuple(message.reached),
    )


def _is_wanted(row: Notification, channel: str, welcome: set[int]) -> bool:
    one = row.subscription
    if one is None or one.pk not in welcome:
        return False
    return row.happening == Happening.TEST or channel in one.told_by


def _line(row: Notification) -> LetterLine:
    return LetterLine(
        happening=row.happening,
        key=row.key,
        at=row.at.isoformat(),
        text=row.text,
        url=absolute(row.path),
        count=row.count,
        operator_key=row.operator.key if row.operator else "",
        facts=row.facts,
    )
