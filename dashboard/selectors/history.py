"""What happened to the best of an operator in one place: who won, was revoked, was measured again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from catalog.models import Implementation, Operator
from catalog.selectors import detail
from tuning.models import Revalidated, Verdict

_SAYS = {
    Verdict.WAITING: "waits to be measured again",
    Verdict.RESTORED: "restored from what had been measured",
    Verdict.BETTER: "measured again: better",
    Verdict.SAME: "measured again: no difference beyond noise",
    Verdict.WORSE: "measured again: worse",
    Verdict.FAILED: "measured again: failed",
}


@dataclass(frozen=True)
class Event:
    """One line of the timeline. ``method`` and ``route`` name whom it is about; empty: nobody is left."""

    at: datetime
    kind: str  # "winner", "revoked" or "environment"
    method: str
    route: str
    title: str
    detail: str
    environment: str = ""


def events(
    operator: Operator, place: detail.Place, visible: Q, exploration_id: int | None, limit: int = 20
) -> Sequence[Event]:
    """The newest first."""
    found = [_change(change) for change in detail.history(operator, place, visible, limit)]
    key = {"operator": operator, "target": place.target, "setting": place.setting}
    revoked = Implementation.objects.filter(visible, **key, revoked_at__isnull=False)
    found += [
        Event(
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


def _change(change: detail.models.BestChange) -> Event:
    after = change.after
    before = f"after {change.before.route}" if change.before else ""
    if after is None:
        return Event(change.created_at, "winner", "", "", before or "none", change.reason)
    environment = str(after.environment)
    return Event(change.created_at, "winner", after.method, after.route, before, change.reason, environment)


def _again(one: Revalidated) -> Event:
    row = one.revalidation
    method = one.implementation.method if one.implementation else ""
    what = (
        f"{row.route}: {row.before or 'nothing'} became {row.after}, declared by {row.asked_by or 'nobody'}"
    )
    return Event(
        row.asked_at, "environment", method, one.route, _SAYS[Verdict(one.verdict)], what, str(row.after)
    )
