"""What happened to the best of an operator in one place: who won, was revoked, was measured again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from catalog.models import Environment, Implementation, Measurement, Operator
from catalog.selectors import detail
from dashboard.web.charts.drawing import called
from dashboard.web.charts.methods import Point
from tuning.models import Revalidated, RevalidationVerdict

_SAME_MOMENT = timedelta(seconds=5)  # evidence is kept and published in one transaction
_SAYS = {
    RevalidationVerdict.WAITING: "waits to be measured again",
    RevalidationVerdict.RESTORED: "restored from what had been measured",
    RevalidationVerdict.BETTER: "measured again: better",
    RevalidationVerdict.SAME: "measured again: no difference beyond noise",
    RevalidationVerdict.WORSE: "measured again: worse",
    RevalidationVerdict.FAILED: "measured again: failed",
}


@dataclass(frozen=True)
class TimelineEntry:
    """One line of the timeline. ``method`` and ``route`` name whom it is about; empty: nobody is left."""

    at: datetime
    kind: str  # "winner", "revoked" or "environment"
    method: str
    route: str
    title: str
    detail: str
    environment: str = ""


def events(
    changes: Sequence[detail.ChangedBest],
    operator: Operator,
    place: detail.Place,
    visible: Q,
    exploration_id: int | None,
    limit: int = 20,
) -> Sequence[TimelineEntry]:
    """The newest first. ``changes``: ``detail.history``."""
    found = [_change(change) for change in changes[:limit]]
    key = {"operator": operator, "target": place.target, "setting": place.setting}
    revoked = Implementation.objects.filter(visible, **key, revoked_at__isnull=False)
    found += [
        TimelineEntry(
            one.revoked_at, "revoked", one.method, one.route, "revoked", f"{one.label}: {one.revoked_reason}"
        )
        for one in revoked.defer("schedule", "source", "candidate").order_by("-revoked_at")[:limit]
        if one.revoked_at is not None
    ]
    if exploration_id is not None:
        again = Revalidated.objects.filter(exploration=exploration_id).select_related(
            "revalidation__before", "revalidation__after", "implementation"
        )
        found += [_again(one) for one in again.order_by("-pk")[:limit]]
    return sorted(found, key=lambda event: event.at, reverse=True)[:limit]


def _change(change: detail.ChangedBest) -> TimelineEntry:
    before = f"after {change.before_route}" if change.before_route else ""
    if change.route is None or change.method is None:
        return TimelineEntry(change.created_at, "winner", "", "", before or "none", change.reason)
    made_with = str(Environment(versions=change.versions))
    return TimelineEntry(
        change.created_at, "winner", change.method, change.route, before, change.reason, made_with
    )


def _again(one: Revalidated) -> TimelineEntry:
    row = one.revalidation
    method = one.implementation.method if one.implementation else ""
    by, said = row.asked_by or "nobody", _SAYS[RevalidationVerdict(one.verdict)]
    what = f"{row.route}: {row.before or 'nothing'} became {row.after}, declared by {by}"
    return TimelineEntry(row.asked_at, "environment", method, one.route, said, what, str(row.after))


def leaders(
    changes: Sequence[detail.ChangedBest], made: Sequence[detail.RankedImplementation]
) -> list[Point]:
    """Who led since when, and by how much over the default: the oldest first. ``changes``:
    ``detail.history``; ``made``: those whose evidence was read already.

    The ratio is that of the evidence which there was at that moment; where all of it is newer (it was
    measured again), the oldest.
    """
    evidence = {one.implementation.pk: one.evidence for one in made}
    led = {row.implementation_id for row in changes} - {None, *evidence}
    evidence |= _read(led) if led else {}
    points = []
    for row in reversed(changes):
        known = evidence.get(row.implementation_id or 0)
        if row.route is None or not known:
            continue
        before = [one for one in known if one.created_at <= row.created_at + _SAME_MOMENT]
        m = before[0] if before else known[-1]
        ratios = m.ratio_to_default, m.ratio_low, m.ratio_high
        name = called(row.route, row.label or "")
        points.append(Point(row.created_at, name, row.method or "", *ratios, row.reason))
    return points


def _read(implementations: Collection[int | None]) -> dict[int, Sequence[Measurement]]:
    """The evidence of these, which are revoked: the newest first."""
    found: dict[int, list[Measurement]] = defaultdict(list)
    rows = Measurement.objects.filter(implementation__in=implementations).defer("samples_us")
    for one in rows.order_by("-created_at", "-pk"):
        found[one.implementation_id].append(one)
    return dict(found)
