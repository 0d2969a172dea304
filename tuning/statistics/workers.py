"""Workers: how they do, what they hold, what they cannot and why, and how much they get done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Annotated

from django.db.models import Q
from django.utils import timezone

from tuning import models
from tuning.conf import conf
from tuning.environments import known as environments
from tuning.queue.clock import alive, now_in
from tuning.queue.rates import Rates, name_of
from tuning.queue.waits import held_s

_DAY_S = 86400.0
_ORDER = {"alive": 0, "silent": 1, "stopped": 2}
MOST_HELD = 500


@dataclass(frozen=True)
class LeasedExploration:
    """An exploration under a worker's lease."""

    id: int
    summary: str
    doing: str
    lease_expires_at: datetime | None
    keeps_s: Annotated[float, "How long it is expected to keep its worker from a first result yet."]


@dataclass(frozen=True)
class WorkerRow:
    """A worker and how it does."""

    worker: models.Worker
    state: str  # "alive", "silent" or "stopped"
    available: Sequence[tuple[str, dict]]
    unavailable: Sequence[tuple[str, dict]]
    undeclared: Sequence[tuple[str, str]]  # route, and how its versions differ from the declared ones
    holds: Sequence[LeasedExploration] = ()
    free_in_s: float | None = None  # until it takes up the next first result; None: nobody can say
    per_hour: float | None = None  # slices in an hour of work; None where it did none lately
    ended_last_hour: int = 0  # slices


def workers(
    limit: int = 40, rates: Rates | None = None, visible: Q | None = None, now: datetime | None = None
) -> list[WorkerRow]:
    """Workers that run, or fell silent within a day, or were stopped just now; those alive first.

    With ``rates`` also what each gets done, and with ``visible`` which explorations it holds (those that may
    be seen).
    """
    now = now or timezone.now()
    found = models.Worker.objects.select_related("target").filter(last_seen_at__gte=now - timedelta(days=1))
    found = found.filter(Q(stopped_at=None) | Q(stopped_at__gte=now - timedelta(minutes=10)))
    rows = list(found.order_by("stopped_at", "-last_seen_at")[:limit])
    differing = environments.undeclared()
    holds = held_by(visible, rates) if visible is not None and rates is not None else {}
    made = [_row(worker, now, differing, holds, rates) for worker in rows]
    return sorted(made, key=lambda row: (_ORDER[row.state], row.worker.name))


def held_by(visible: Q, rates: Rates) -> dict[str, list[LeasedExploration]]:
    """Worker → the explorations that it holds a lease on."""
    running = models.Exploration.objects.filter(visible, state=models.State.RUNNING).order_by("pk")
    found: dict[str, list[LeasedExploration]] = defaultdict(list)
    for row in running.select_related("operator").defer("operator__graph")[:MOST_HELD]:
        keeps_s = held_s(row, models.Stage.FIRST, rates)
        held = LeasedExploration(row.pk, row.operator.summary, row.doing, row.lease_expires_at, keeps_s)
        found[name_of(row.lease_owner)].append(held)
    return found


def _row(
    worker: models.Worker,
    now: datetime,
    differing: Mapping[tuple[str, str], str],
    holds: Mapping[str, Sequence[LeasedExploration]],
    rates: Rates | None,
) -> WorkerRow:
    routes, state, held = list(worker.routes.items()), state_of(worker, now), holds.get(worker.name, ())
    known = held or not worker.doing  # else it does something that is no exploration, or not to be seen
    return WorkerRow(
        worker,
        state,
        available=[(name, facts) for name, facts in routes if facts.get("available")],
        unavailable=[(name, facts) for name, facts in routes if not facts.get("available")],
        undeclared=[
            (name, differing[worker.name, name]) for name, _ in routes if (worker.name, name) in differing
        ],
        holds=held,
        free_in_s=sum(one.keeps_s for one in held) if rates and state == "alive" and known else None,
        per_hour=rates.per_hour(worker.name) if rates else None,
        ended_last_hour=rates.ended_since(now - timedelta(hours=1), worker.name) if rates else 0,
    )


@dataclass(frozen=True)
class SilentTarget:
    """A target whose workers were there within a day, did not say goodbye, and give no sign of life."""

    target_id: int
    capability: str
    names: Sequence[str]
    last_seen_at: datetime  # of whoever was heard last
    waiting: int  # explorations


def silent_targets() -> list[SilentTarget]:
    """By the database's clock, as leases are: hosts disagree."""
    unheard = models.Worker.objects.filter(~alive(), stopped_at=None, last_seen_at__gte=now_in(-_DAY_S))
    served = models.Worker.objects.filter(alive()).values("target")
    rows = unheard.exclude(target__in=served).select_related("target").order_by("target", "-last_seen_at")
    found = []
    for target, of_target in groupby(rows, lambda row: row.target):
        lost = list(of_target)
        waiting = models.Exploration.objects.filter(target=target, state=models.State.QUEUED).count()
        names = [row.name for row in lost]
        found.append(SilentTarget(target.pk, target.capability, names, lost[0].last_seen_at, waiting))
    return found


def state_of(worker: models.Worker, now: datetime) -> str:
    """A supervisor reports every few seconds; unheard for longer than a target counts as served is lost."""
    if worker.stopped_at is not None:
        return "stopped"
    return "alive" if now - worker.last_seen_at < timedelta(seconds=conf().served_s) else "silent"
