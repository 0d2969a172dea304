"""Workers: how they do, what they hold, what they cannot and why, and how much they get done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Annotated

from django.db.models import BooleanField, Count, ExpressionWrapper, F, Q
from django.utils import timezone

from tuning import models
from tuning.conf import conf
from tuning.environments import known as environments
from tuning.queue.clock import alive, now_in
from tuning.queue.rates import Rates, name_of
from tuning.queue.waits import held_s

_DAY_S = 86400.0
_STOPPED_S = 600.0
_ORDER = {"alive": 0, "silent": 1, "stopped": 2}


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


@dataclass(frozen=True)
class Fleet:
    """The workers as they stand, read once for all that is said of them."""

    workers: Sequence[models.Worker]
    """With their targets: who was heard within a day, unless it was stopped before just now; who is not
    stopped first, then the latest to be heard."""
    living: frozenset[int]
    """Numbers of those that gave a sign of life lately, by the database's clock, as leases are: hosts
    disagree."""

    @property
    def live(self) -> list[models.Worker]:
        return [one for one in self.workers if one.pk in self.living]


def fleet() -> Fleet:
    """One statement."""
    heard = models.Worker.objects.filter(last_seen_at__gte=now_in(-_DAY_S))
    there = heard.filter(Q(stopped_at=None) | Q(stopped_at__gte=now_in(-_STOPPED_S)))
    lives = ExpressionWrapper(alive(), output_field=BooleanField())
    rows = there.select_related("target").annotate(lives=lives)
    found = list(rows.order_by(F("stopped_at").asc(nulls_first=True), "-last_seen_at", "pk"))
    return Fleet(found, frozenset(one.pk for one in found if one.lives))


def workers(
    of: Fleet,
    rates: Rates | None = None,
    held: Iterable[models.Exploration] = (),
    *,
    limit: int = 40,
    now: datetime | None = None,
) -> list[WorkerRow]:
    """Workers that run, or fell silent within a day, or were stopped just now; those alive first, and those
    of the same hardware together.

    With ``rates`` also what each gets done, and which explorations it holds (of ``held``: those that may be
    seen). One statement.
    """
    now = now or timezone.now()
    differing = environments.undeclared(of.live)
    holds = held_by(held, rates) if rates is not None else {}
    made = [_row(worker, now, differing, holds, rates) for worker in of.workers[:limit]]
    return sorted(made, key=lambda row: (_ORDER[row.state], row.worker.target.capability, row.worker.name))


def held_by(held: Iterable[models.Exploration], rates: Rates) -> dict[str, list[LeasedExploration]]:
    """Worker → the explorations that it holds a lease on."""
    found: dict[str, list[LeasedExploration]] = defaultdict(list)
    for row in held:
        keeps_s = held_s(row, models.Stage.FIRST, rates)
        leased = LeasedExploration(row.pk, row.operator.summary, row.doing, row.lease_expires_at, keeps_s)
        found[name_of(row.lease_owner)].append(leased)
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


def silent_targets(of: Fleet) -> list[SilentTarget]:
    """One statement where there are any."""
    served = {one.target_id for one in of.live}
    unheard = [one for one in of.workers if one.stopped_at is None and one.target_id not in served]
    by_target = groupby(sorted(unheard, key=lambda one: one.target_id), lambda one: one.target)
    lost = {target: list(rows) for target, rows in by_target}
    if not lost:
        return []
    queued = models.Exploration.objects.filter(target__in=lost, state=models.State.QUEUED)
    waiting = dict(queued.order_by().values_list("target").annotate(n=Count("pk")))
    return [
        SilentTarget(
            target.pk, target.capability, [one.name for one in rows], rows[0].last_seen_at,
            waiting.get(target.pk, 0),
        )
        for target, rows in lost.items()
    ]  # fmt: skip


def state_of(worker: models.Worker, now: datetime) -> str:
    """A supervisor reports every few seconds; unheard for longer than a target counts as served is lost."""
    if worker.stopped_at is not None:
        return "stopped"
    return "alive" if now - worker.last_seen_at < timedelta(seconds=conf().served_s) else "silent"
