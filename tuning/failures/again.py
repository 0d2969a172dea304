"""Trying a group's candidates again: a further round of its routes, through the queues that there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from django.utils import timezone

from catalog.errors import RequestError, Unknown
from catalog.models import SHARED
from catalog.people.audit import note
from catalog.viewing import Viewer
from tuning.conf import conf
from tuning.failures.selectors import places
from tuning.models import Exploration, FailureGroup, State, Trial
from tuning.queue.permissions import MAX_AT_ONCE, NotAllowed, Order, act_on_many, may_operate
from tuning.queue.reached import BEGINS_AGAIN
from tuning.queue.rounds import ask_for_round


@dataclass(frozen=True)
class TriedAgain:
    """What came of asking."""

    group: int
    asked: Annotated[int, "Explorations that contest the group's routes again, at most 200 at a time."]
    left: Annotated[
        int, "Those of the group that were not asked: still at work, asked for already, or too many."
    ]


def found(viewer: Viewer, pk: int) -> FailureGroup:
    """A group that may be seen; raises Unknown."""
    rows = FailureGroup.objects.select_related("first__exploration", "latest__exploration")
    row = rows.filter(viewer.shown(), pk=pk).first()
    if row is None:
        kept = f"one is kept {conf().failures_days} days after it was seen last"
        raise Unknown(f"There is no group of failures {pk}: {kept}.")
    return row


def trials_of(group: FailureGroup) -> list[Trial]:
    """The latest of a group's trials and the first one, as far as they are kept: the very rows that hang on
    the group, so that what is left out of them is left out there."""
    return [one for one in (group.latest, group.first) if one is not None]


def may_try(viewer: Viewer, group: FailureGroup) -> bool:
    """Shared ones are the service's to try again, others their organisation's."""
    return may_operate(viewer, group.owner_id if group.scope != SHARED else None)


def audit(request: Any, group: FailureGroup, came: TriedAgain) -> None:
    """Write down who had it tried again."""
    detail = {"asked": came.asked}
    subject = f"failure {group.pk}"
    note(request, action="failures.again", subject=subject, detail=detail, organisation=group.owner_id)


def try_again(viewer: Viewer, pk: int, by: str) -> TriedAgain:
    """Ask that the latest explorations of a group contest its routes again; raises Unknown or NotAllowed.

    One that is still at work has its round ahead; one that was asked for already is not asked twice.
    """
    group = found(viewer, pk)
    if not may_try(viewer, group):
        raise NotAllowed("Only operators of whoever owns these explorations have them tried again.")
    ready = places(group).filter(
        exploration__state__in=(*BEGINS_AGAIN, State.DEAD), exploration__pending_routes=""
    )
    chosen = list(ready.values_list("exploration", "exploration__state")[:MAX_AT_ONCE])
    if not chosen:
        raise RequestError("None of these explorations has ended, or all were asked for again already.")
    ended = [number for number, state in chosen if state != State.DEAD]
    asked = ask_for_round(
        Exploration.objects.filter(pk__in=ended), group.routes, f"failure {pk} tried again by {by}"
    )
    # What was given up has no round to add to: it begins anew.
    dead = [number for number, state in chosen if state == State.DEAD]
    asked += len(act_on_many(viewer, dead, Order("retry", by)).done) if dead else 0
    FailureGroup.objects.filter(pk=pk).update(again_at=timezone.now(), again_by=by[:150])
    return TriedAgain(pk, asked, group.operators - asked)
