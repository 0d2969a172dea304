"""What people do to the collect queue: explore a miss now, or discard it."""

from __future__ import annotations

from django.db import transaction

from catalog.errors import RequestError
from catalog.models import Miss, MissState
from tuning.doorbell.bell import bell
from tuning.priority import Priority
from tuning.queue.decide import Decision, worth_of_miss_us
from tuning.queue.promote import gains_by_type, promote_decided, quick_ask_of
from tuning.queue.steering import NotPossible, cannot

UNDECIDED = (MissState.WAITING, MissState.POSTPONED)
EXPLORABLE = (*UNDECIDED, MissState.DISCARDED, MissState.UNSUPPORTED, MissState.FAILED)
"""States from which a person may send a miss to an explore queue, against the decision of the decider, a
person or a route."""


def explore_now(pk: int, priority: int = Priority.HIGH) -> Miss:
    """Put a miss into the explore queue of this priority, whatever the decider decided; raises NotPossible.
    An ended exploration of the same operator begins a new round."""
    if priority not in list(Priority):
        raise RequestError(
            f"A priority is one of {', '.join(map(str, Priority))} (0 is the most urgent).",
            where="priority",
        )
    miss = _miss(pk)
    if miss.state not in EXPLORABLE:
        raise NotPossible(_why_not(miss, "explore", EXPLORABLE))
    decision = Decision("promote", worth_of_miss_us(quick_ask_of(miss), gains_by_type()), Priority(priority))
    if not promote_decided([(miss, decision)]):
        raise NotPossible(_why_not(_miss(pk), "explore", EXPLORABLE))
    capability = miss.target.capability
    transaction.on_commit(lambda: bell.ring({capability}))
    return _miss(pk)


def discard_miss(pk: int, reason: str) -> Miss:
    """Do not explore a miss, with a reason shown to those who ask for the operator; raises NotPossible."""
    reason = reason.strip()[:500] or "Discarded by hand."
    moved = Miss.objects.filter(pk=pk, state__in=UNDECIDED).update(state=MissState.DISCARDED, reason=reason)
    miss = _miss(pk)
    if not moved:
        raise NotPossible(_why_not(miss, "discard", UNDECIDED))
    return miss


def _miss(pk: int) -> Miss:
    miss = Miss.objects.select_related("operator", "target", "setting").filter(pk=pk).first()
    if miss is None:
        raise NotPossible(f"There is no miss {pk}.")
    return miss


def _why_not(miss: Miss, verb: str, allowed: tuple[MissState, ...]) -> str:
    hint = " Discard its exploration instead." if (verb, miss.state) == ("discard", "promoted") else ""
    return cannot(f"{verb} miss {miss.pk}", miss.state, miss.reason, allowed) + hint
