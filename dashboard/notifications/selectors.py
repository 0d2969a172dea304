"""What the inbox and the list of subscriptions show."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Case, IntegerField, Q, QuerySet, Value, When

from catalog.selectors.parts import taken
from catalog.viewing import Viewer
from dashboard.notifications.models import (
    Happening,
    MessageState,
    Notification,
    NotificationMessage,
    Subscription,
)

UNREAD_COUNTED = 100
"""The badge says "99+" beyond: nobody reads more, and every page asks."""

_PROBLEMS_SHOWN = 5


@dataclass(frozen=True)
class InboxFilters:
    """``show``: "unread" or "" for all; ``event``: one of :class:`Happening`, or ""."""

    show: str = ""
    event: str = ""

    @property
    def narrowed(self) -> bool:
        return bool(self.show or self.event)


def visible(user: User, viewer: Viewer, *, within: int | None = None) -> QuerySet[Notification]:
    """A person's own, but for those of an organisation that they have left. ``within`` one organisation: an
    API key tells of its own alone."""
    rows = Notification.objects.filter(user=user, shown=True)
    if within is not None:
        return rows.filter(organisation=within)
    if not viewer.sees_all:
        rows = rows.filter(Q(organisation=None) | Q(organisation__in=list(viewer.roles)))
    return rows


def inbox(
    user: User, viewer: Viewer, filters: InboxFilters, *, within: int | None = None
) -> QuerySet[Notification]:
    """Unread first, the newest first among each."""
    rows = visible(user, viewer, within=within).select_related("subscription")
    if filters.show == "unread":
        rows = rows.filter(read_at=None)
    if filters.event in Happening.values:
        rows = rows.filter(happening=filters.event)
    unread_first = Case(When(read_at=None, then=Value(0)), default=Value(1), output_field=IntegerField())
    return rows.order_by(unread_first, "-pk")


class Inbox:
    """The same, to be counted up to a bound and sliced: somebody has tens of thousands, of whom one page is
    shown."""

    def __init__(self, rows: QuerySet[Notification]) -> None:
        self._rows = rows.order_by("-pk")

    def count_up_to(self, bound: int) -> int:
        return self._rows.order_by()[:bound].count()

    def __getitem__(self, places: slice) -> list[Notification]:
        parts = self._rows.filter(read_at=None), self._rows.filter(read_at__isnull=False)
        return taken(parts, places.start, places.stop)


def unread(user: User) -> int:
    """How many are unread, up to a hundred: one short statement on every page."""
    return Notification.objects.filter(user=user, shown=True, read_at=None)[:UNREAD_COUNTED].count()


def subscriptions(user: User) -> QuerySet[Subscription]:
    """A person's own, the newest first."""
    return Subscription.objects.filter(user=user).order_by("-pk")


def problems(user: User) -> list[NotificationMessage]:
    """Messages of this person that did not arrive, the latest first."""
    return list(
        NotificationMessage.objects.filter(user=user)
        .exclude(error="")
        .filter(state__in=(MessageState.FAILED, MessageState.WAITING))
        .order_by("-pk")[:_PROBLEMS_SHOWN]
    )


def watched(user: User, viewer: Viewer, keys: Collection[str]) -> Subscription | None:
    """This person's subscription to one of these subjects, by ``About.key``; the wider one first."""
    own = "all" if viewer.focus is None else str(viewer.focus)
    found = Subscription.objects.filter(user=user, subject_key__in=[f"{own}:{key}" for key in keys])
    return found.order_by("target_id", "pk").first()
