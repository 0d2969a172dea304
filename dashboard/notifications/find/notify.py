"""Writing down what people are told: notifications, and by which channels they are to leave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse

from catalog.models import Job, Operator
from dashboard.notifications.channels.page.channel import NAME as PAGE
from dashboard.notifications.channels.registry import CHANNELS
from dashboard.notifications.events import Event, stamp
from dashboard.notifications.find.matching import Pair
from dashboard.notifications.models import (
    ALERTING,
    Digest,
    Happening,
    Notification,
    NotificationDelivery,
    Subscription,
)
from dashboard.notifications.write import wording
from dashboard.notifications.write.digests import due_at
from tuning.queue.clock import database_now

_BATCH = 500


def notify(pairs: Sequence[Pair]) -> int:
    """Write notifications and their deliveries; gives how many are new. Runs inside a transaction.

    What was told already is left as it is; of hits the count goes on.
    """
    if not pairs:
        return 0
    now = database_now()
    drafts = _drafts(pairs, now)
    known = _known(drafts)
    fresh = [draft for draft in drafts if draft.place not in known]
    _go_on([(known[draft.place], draft) for draft in drafts if draft.place in known])
    _write(fresh, now)
    return len(fresh)


def _known(drafts: Sequence[_Draft]) -> dict[tuple[int, str], Notification]:
    """What was told already of these."""
    found: dict[tuple[int, str], Notification] = {}
    for start in range(0, len(drafts), _BATCH):
        batch = drafts[start : start + _BATCH]
        rows = Notification.objects.filter(
            subscription_id__in={draft.subscription.pk for draft in batch},
            key__in={draft.key for draft in batch},
        )
        found |= {(row.subscription_id or 0, row.key): row for row in rows}
    return found


@dataclass
class _Draft:
    """One notification to be: several events of one key come together in it."""

    subscription: Subscription
    event: Event
    key: str
    count: int
    facts: dict[str, Any]

    @property
    def place(self) -> tuple[int, str]:
        return self.subscription.pk, self.key


def _drafts(pairs: Sequence[Pair], now: datetime) -> list[_Draft]:
    jobs = dict(
        Job.objects.filter(pk__in={event.job_id for _, event in pairs if event.job_id}).values_list(
            "pk", "name"
        )
    )
    numbers = {event.operator_id for _, event in pairs if event.operator_id}
    operators = Operator.objects.only("summary", "key").in_bulk(numbers)
    drafts: dict[tuple[int, str], _Draft] = {}
    for one, event in pairs:
        operator = operators.get(event.operator_id or 0)
        if operator is None and event.operator_id is not None:  # deleted meanwhile
            continue
        key = _key(one, event, now)
        drafted = drafts.get((one.pk, key))
        if drafted is not None:
            drafted.count += event.count
            continue
        about = {"job": jobs.get(event.job_id or 0, "")}
        if operator is not None:
            about |= {"operator": operator.summary, "operator_key": operator.key}
        drafts[one.pk, key] = _Draft(one, event, key, event.count, {**about, **event.facts})
    return list(drafts.values())


def _key(one: Subscription, event: Event, now: datetime) -> str:
    """A digest's hits are counted anew for each digest; told at once, a job's operator is told once."""
    if event.happening != Happening.HIT or one.digest == Digest.AT_ONCE:
        return event.key
    return f"{event.key}:{due_at(Digest(one.digest), now):%Y%m%dT%H}"


def _go_on(known: Iterable[tuple[Notification, _Draft]]) -> None:
    """More hits of what was told."""
    changed = []
    for row, draft in known:
        if row.happening != Happening.HIT:
            continue
        row.count += draft.count
        row.at = max(row.at, draft.event.at)
        row.facts = draft.facts
        row.text = text_of(Happening.HIT, row.facts, row.count)
        changed.append(row)
    Notification.objects.bulk_update(changed, ["count", "at", "facts", "text"], batch_size=_BATCH)


def _write(drafts: Sequence[_Draft], now: datetime) -> None:
    # A person whose several subscriptions concern the same event is told of it once by each channel, by the
    # most urgent of them.
    order = [Digest.AT_ONCE, Digest.HOURLY, Digest.DAILY]
    drafts = sorted(
        drafts, key=lambda one: (order.index(Digest(one.subscription.digest)), one.subscription.pk)
    )
    told: dict[tuple[int, str], set[tuple[str, int | None]]] = defaultdict(set)
    rows, channels = [], []
    for draft in drafts:
        one = draft.subscription
        mine = {(way, _owner(one, way)) for way in one.told_by}
        new = mine - told[one.user_id, draft.event.key]
        told[one.user_id, draft.event.key] |= new
        rows.append(_row(draft, shown=(PAGE, None) in new))
        channels.append([way for way, _ in sorted(new, key=str) if way != PAGE])
    made = Notification.objects.bulk_create(rows, batch_size=_BATCH)
    deliveries = [
        _delivery(row, draft.subscription, channel, Digest(draft.subscription.digest), now)
        for row, draft, ways in zip(made, drafts, channels, strict=True)
        for channel in ways
    ]
    NotificationDelivery.objects.bulk_create(deliveries, batch_size=_BATCH)


def _owner(one: Subscription, channel: str) -> int | None:
    """Whom a message is for, where it is not for the person alone."""
    return one.organisation_id if CHANNELS[channel].of_organisation else None


def _delivery(
    row: Notification, one: Subscription, channel: str, digest: Digest, now: datetime
) -> NotificationDelivery:
    return NotificationDelivery(
        notification=row,
        user_id=one.user_id,
        organisation_id=_owner(one, channel),
        channel=channel,
        digest=digest,
        due_at=due_at(digest, now),
    )


def _row(draft: _Draft, *, shown: bool) -> Notification:
    one, event = draft.subscription, draft.event
    return Notification(
        subscription=one,
        user_id=one.user_id,
        organisation_id=one.organisation_id,
        happening=event.happening,
        key=draft.key,
        operator_id=event.operator_id,
        at=event.at,
        text=text_of(event.happening, draft.facts, draft.count),
        path=_path(event, draft.facts),
        count=draft.count,
        facts=draft.facts,
        shown=shown,
    )


def notify_test(one: Subscription) -> Notification:
    """A test by every channel of a subscription, at once."""
    now = database_now()
    row = Notification.objects.create(
        subscription=one,
        user_id=one.user_id,
        organisation_id=one.organisation_id,
        happening=Happening.TEST,
        key=f"test:{stamp(now)}",
        at=now,
        text=wording.test(one.title),
        path=reverse("subscriptions"),
        facts={"title": one.title},
        shown=PAGE in one.told_by,
    )
    NotificationDelivery.objects.bulk_create(
        _delivery(row, one, channel, Digest.AT_ONCE, now) for channel in one.told_by if channel != PAGE
    )
    return row


def text_of(happening: str, facts: Mapping[str, Any], count: int = 1) -> str:
    """The sentence for what happened."""
    if happening in ALERTING:
        return str(facts["said"])
    operator, ratio = facts["operator"], facts.get("ratio")
    route, default = facts.get("route", ""), facts.get("default", "")
    if happening == Happening.HIT:
        return wording.hit(
            operator, route=route, ratio=ratio, default=default, job=facts.get("job", ""), count=count
        )
    if happening == Happening.BEST_CHANGED:
        if not route:
            return wording.nothing_left(operator)
        return wording.best_changed(
            operator,
            route=route,
            ratio=ratio,
            default=default,
            before=facts.get("before", ""),
            gain=facts.get("gain"),
        )
    if happening == Happening.WITHDRAWN:
        return wording.withdrawn(
            operator,
            route=route,
            failed=bool(facts.get("failed")),
            reason=facts.get("reason", ""),
            now=facts.get("now", ""),
            ratio=ratio,
            default=default,
        )
    if "after_s" in facts:
        return wording.first_result(
            operator, route=route, ratio=ratio, default=default, after_s=facts["after_s"]
        )
    return wording.explored(
        operator,
        state=facts.get("state", "done"),
        route=route,
        ratio=ratio,
        default=default,
        reason=facts.get("reason", ""),
    )


def _path(event: Event, facts: Mapping[str, Any]) -> str:
    """Where to look: the operator in its place, the exploration, or the alert."""
    if event.happening in ALERTING:
        return str(facts["path"])
    if event.happening == Happening.EXPLORED and "after_s" not in facts:
        return reverse("exploration", args=[facts["exploration"]])
    path = reverse("operator", args=[facts["operator_key"]])
    placed = event.target_id is not None and event.setting_id is not None
    return f"{path}?at={event.target_id}-{event.setting_id}" if placed else path
