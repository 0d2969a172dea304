"""Further rounds: ended explorations contest a few routes again, for a reason that people read.

A kernel was approved, an environment declared, a route added: the code that does it calls
:func:`ask_for_round`, which only stores the request with the exploration. :func:`begin_rounds` begins it once
the exploration has ended, in whatever process claims work next. So a request that arrives during a round is
not lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from catalog.models import ScopedKey
from catalog.steps import each, held_back
from tuning.doorbell.bell import bell
from tuning.models import Exploration, Stage, State, Trial
from tuning.queue.reached import BEGINS_AGAIN, tell_stage_of

NEW_ROUND: Mapping[str, Any] = {
    "state": State.QUEUED,
    "round": F("round") + 1,
    "tries": 0,
    "reason": "",
    "error": "",
    "finished_at": None,
}
AFRESH = {
    **NEW_ROUND,
    "stage": Stage.FIRST,
    "tuning_slices": 0,
    "routes": "",
    "expected_first_at": None,
    "first_result_at": None,
}
"""Columns of an exploration that begins another round: anywhere, or from its first stage with every route."""

_BATCH = 500
BEGINNING = "beginning an exploration's round"


def exploration_of(row: ScopedKey, capability: str, asked_at: datetime) -> Exploration:
    """The exploration of a place; made as an ended one if results came without it."""
    found, _ = Exploration.objects.get_or_create(
        **row.same_key,
        defaults={
            "owner_id": row.owner_id,
            "stage": Stage.CONTEST,
            "state": State.DONE,
            "capability": capability,
            "asked_at": asked_at,
        },
    )
    return found


def ask_for_round(rows: QuerySet[Exploration], routes: Iterable[str], reason: str) -> int:
    """Ask that these explorations contest ``routes`` again; returns how many were asked."""
    wanted = set(routes)
    asked = 0
    capabilities: set[str] = set()
    numbers = list(rows.values_list("pk", flat=True))
    for start in range(0, len(numbers), _BATCH):
        with transaction.atomic():
            batch = Exploration.objects.select_for_update().filter(pk__in=numbers[start : start + _BATCH])
            for row in batch:
                names = wanted | set(filter(None, row.pending_routes.split(",")))
                row.pending_routes = ",".join(sorted(names))
                row.round_reason = reason[:200]
                row.save(update_fields=["pending_routes", "round_reason"])
                tell_stage_of(row)
                capabilities.add(row.capability)
                asked += 1
    bell.ring(capabilities)
    return asked


def begin_rounds(limit: int = 500) -> int:
    """Put ended explorations that are asked for a further round back into their queues."""
    rows = Exploration.objects.filter(state__in=BEGINS_AGAIN).exclude(pending_routes="")
    rows = rows.exclude(pk__in=held_back(BEGINNING)).only("pk", "pending_routes", "fence", "state")
    return sum(each(BEGINNING, rows[:limit], _begin_round))


def _begin_round(row: Exploration) -> int:
    # What is asked for in the meantime stays: only what was read is taken.
    read = {"state": row.state, "fence": row.fence, "pending_routes": row.pending_routes}
    return Exploration.objects.filter(pk=row.pk, **read).update(
        **NEW_ROUND,
        stage=_first_stage(row),
        routes=row.pending_routes,
        pending_routes="",
        updated_at=Now(),
    )


def _first_stage(row: Exploration) -> Stage:
    """Where a round begins: with the default, if it is what must be tried again."""
    timed = Trial.objects.filter(exploration=row).of_the_default()
    default = timed.values_list("route", flat=True).first()
    return Stage.FIRST if default in row.pending_routes.split(",") else Stage.CONTEST


def routes_of(row: Exploration) -> frozenset[str]:
    """The only routes of this round; empty: every route."""
    return frozenset(filter(None, row.routes.split(",")))
