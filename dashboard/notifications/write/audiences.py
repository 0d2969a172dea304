"""Who may be told what: the rules of ``catalog.viewing``, for many subscriptions in a few statements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from django.contrib.auth import get_user_model

from catalog.models import SHARED, ApiKey, Membership
from catalog.viewing import BILL, MAY
from dashboard.notifications.events import Event
from dashboard.notifications.models import ALERTING, OF_ACCOUNT, Happening, SubjectKind, Subscription


@dataclass(frozen=True)
class Audience:
    """What one subscription may tell beside the shared catalogue."""

    everything: bool = False
    organisations: frozenset[int] = frozenset()
    billed: frozenset[int] = frozenset()  # whose bills the person may see, of those that it is about

    def owns(self, organisation_id: int | None) -> bool:
        return self.everything or organisation_id in self.organisations


def audiences(subscriptions: Collection[Subscription]) -> dict[int, Audience]:
    """By subscription. Asked whenever something is told: who left an organisation hears no more of it."""
    users = {one.user_id for one in subscriptions}
    member_of: dict[int, set[int]] = defaultdict(set)
    everywhere = set(
        get_user_model().objects.filter(pk__in=users, is_superuser=True).values_list("pk", flat=True)
    )
    pays_for: dict[int, set[int]] = defaultdict(set)
    memberships = Membership.objects.filter(user__in=users)
    columns = ("user", "organisation", "organisation__host", "role")
    for user, organisation, host, role in memberships.values_list(*columns):
        member_of[user].add(organisation)
        if BILL in MAY[role]:
            pays_for[user].add(organisation)
        if host:
            everywhere.add(user)
    # Whoever holds an organisation's key reads the same rows with it.
    keys = ApiKey.objects.filter(user__in=users, revoked_at=None)
    for user, organisation in keys.values_list("user", "organisation"):
        member_of[user or 0].add(organisation)
    found = {
        one.pk: _audience(one, one.user_id in everywhere, member_of[one.user_id]) for one in subscriptions
    }
    for one in subscriptions:
        if one.subject == SubjectKind.ACCOUNT and one.organisation_id in pays_for[one.user_id]:
            found[one.pk] = Audience(billed=frozenset({one.organisation_id or 0}))
        elif one.subject == SubjectKind.ACCOUNT:
            found[one.pk] = Audience()
    return found


def _audience(subscription: Subscription, everywhere: bool, member_of: set[int]) -> Audience:
    organisation = subscription.organisation_id
    if organisation is None:
        return Audience(everything=everywhere)
    if everywhere or organisation in member_of:
        return Audience(organisations=frozenset({organisation}))
    return Audience()


def may_hear(subscription: Subscription, audience: Audience, event: Event) -> bool:
    """Whether this event is the subscriber's to know."""
    if subscription.subject in (SubjectKind.JOB, SubjectKind.MODEL):
        owned = subscription.job or subscription.model
        if owned is None or not audience.owns(owned.organisation_id):
            return False
    if event.happening in ALERTING:
        if event.organisation_id is None:
            return audience.everything
        # Its money is told to who may see its bills, of a subscription to that.
        return event.happening in OF_ACCOUNT and event.organisation_id in audience.billed
    if event.happening == Happening.HIT:
        return audience.owns(event.organisation_id)
    if event.scope == SHARED or audience.everything:
        return True
    return event.scope in {f"org:{number}" for number in audience.organisations}
