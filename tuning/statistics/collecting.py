"""The collect queue: what was asked for and is not known, why it is not explored, and what it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Min, Q, QuerySet

from catalog.models import Miss, MissState
from catalog.search import Words
from tuning.queue.decide import worth_of_miss_us
from tuning.queue.promote import gains_by_type, quick_ask_of

IDLE = (
    MissState.WAITING,
    MissState.POSTPONED,
    MissState.DISCARDED,
    MissState.UNSUPPORTED,
    MissState.FAILED,
)
"""States of misses that nobody explores now. Waiting and postponed ones are the collect queue proper."""

UNDECIDED = "not decided yet"


@dataclass(frozen=True)
class ReasonRow:
    """Misses of one state that share the decider's (or a person's) reason."""

    state: str
    reason: str
    count: int
    oldest_at: datetime
    latest_at: datetime


@dataclass(frozen=True)
class MissRow:
    """A miss and what exploring it is worth: µs of expected saving, as the decider reckons it now."""

    miss: Miss
    worth_us: float


def reasons(visible: Q, limit: int = 200) -> list[ReasonRow]:
    """By state and reason, the commonest first."""
    found = Miss.objects.filter(visible, state__in=IDLE).values("state", "reason")
    counted = found.annotate(
        count=Count("pk"), oldest_at=Min("first_asked_at"), latest_at=Max("last_asked_at")
    )
    return [ReasonRow(**row) for row in counted.order_by("-count", "state", "reason")[:limit]]


def misses(visible: Q, state: str = "", reason: str = "", q: str = "") -> QuerySet[Miss]:
    """Those that pass, the latest to arrive first. ``state`` "" is every idle one."""
    found = Miss.objects.filter(visible, state__in=[state] if state else IDLE)
    if reason:
        found = found.filter(reason="" if reason == UNDECIDED else reason)
    return (
        found.filter(Words.of(q).condition("operator"))
        .select_related("operator", "target", "setting", "job")
        .defer("operator__graph", "target__description")
        .order_by("-pk")
    )


def with_worth(rows: Sequence[Miss]) -> list[MissRow]:
    gains = gains_by_type()
    return [MissRow(row, worth_of_miss_us(quick_ask_of(row), gains)) for row in rows]
