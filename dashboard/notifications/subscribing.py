"""Beginning, changing and ending subscriptions; pages and the API call these."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction

from catalog.errors import RequestError
from catalog.viewing import Viewer
from dashboard.notifications.channels.registry import CHANNELS
from dashboard.notifications.models import (
    EVERY,
    HAPPENINGS,
    OF_ACCOUNT,
    OF_SERVICE,
    Digest,
    Happening,
    NotificationDelivery,
    SubjectKind,
    Subscription,
)
from dashboard.notifications.write.subjects import NamedSubject

MOST_SUBSCRIPTIONS = 1000


@dataclass(frozen=True)
class Wish:
    """What somebody wants to be told of, how, and how often."""

    happenings: frozenset[str]
    channels: frozenset[str]
    digest: str = Digest.AT_ONCE

    def columns(self) -> dict[str, object]:
        return {
            **{f"on_{one.value}": one.value in self.happenings for one in EVERY},
            "told_by": [name for name in CHANNELS if name in self.channels],
            "digest": self.digest,
        }


def happenings_of(subject: str) -> tuple[Happening, ...]:
    """What can be told of such a subject."""
    if subject == SubjectKind.ACCOUNT:
        return OF_ACCOUNT
    return OF_SERVICE if subject == SubjectKind.SERVICE else HAPPENINGS


def begun(subject: str) -> Subscription:
    """A new one (unsaved), as forms begin."""
    if subject not in (SubjectKind.SERVICE, SubjectKind.ACCOUNT):
        return Subscription(subject=subject)
    told = happenings_of(subject)
    return Subscription(subject=subject, **{f"on_{one.value}": one in told for one in EVERY})


def wish(
    subject: str, happenings: Collection[str], channels: Collection[str], digest: str, user: User
) -> Wish:
    """Checked: raises RequestError with what would be right."""
    known = {one.value for one in happenings_of(subject)}
    if not happenings or not set(happenings) <= known:
        raise RequestError(
            f"Choose what to be told of: one or more of {', '.join(sorted(known))}.", where="events"
        )
    if not channels or not set(channels) <= set(CHANNELS):
        raise RequestError(f"Choose how to be told: one or more of {', '.join(CHANNELS)}.", where="channels")
    if digest not in Digest.values:
        raise RequestError(f"digest is one of {', '.join(Digest.values)}.", where="digest")
    for name in channels:
        if missing := CHANNELS[name].why_not(user):
            raise RequestError(missing, where="channels")
    return Wish(frozenset(happenings), frozenset(channels), digest)


def subscribe(user: User, viewer: Viewer, about: NamedSubject, wanted: Wish) -> tuple[Subscription, bool]:
    """The subscription, and whether it is new: whoever watches something already changes how."""
    own = "all" if viewer.focus is None else str(viewer.focus)
    columns = wanted.columns()
    with transaction.atomic():
        if Subscription.objects.filter(user=user).count() >= MOST_SUBSCRIPTIONS:
            raise RequestError(f"You have {MOST_SUBSCRIPTIONS} subscriptions: end some of them first.")
        return Subscription.objects.update_or_create(
            user=user,
            subject_key=f"{own}:{about.key}",
            defaults=columns,
            create_defaults={
                **columns,
                **about.fields,
                "organisation_id": viewer.focus,
                "subject": about.subject,
                "title": about.title,
            },
        )


def change(subscription: Subscription, wanted: Wish) -> Subscription:
    """Other events, channels or another digest. What waits for a channel that is switched off is dropped."""
    for name, value in wanted.columns().items():
        setattr(subscription, name, value)
    subscription.save()
    waiting = NotificationDelivery.objects.filter(notification__subscription=subscription, message=None)
    waiting.exclude(channel__in=wanted.channels).delete()
    return subscription


def end(subscription: Subscription) -> None:
    """No more of it; what was told stays in the inbox, what waits to leave is dropped."""
    with transaction.atomic():
        NotificationDelivery.objects.filter(notification__subscription=subscription, message=None).delete()
        subscription.delete()
