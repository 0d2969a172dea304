"""What goes on now: queues, explorations, workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Case, Count, Q, QuerySet, Value, When
from django.utils import timezone

from tuning import environments, models
from tuning.conf import conf

ACTIVE = (models.State.RUNNING, models.State.QUEUED, models.State.PAUSED)


@dataclass(frozen=True)
class Queue:
    """Queued and running explorations of one stage: counts by priority, the most urgent first."""

    stage: int
    name: str
    by_priority: tuple[int, ...]
    running: int
    paused: int

    @property
    def queued(self) -> int:
        return sum(self.by_priority)


@dataclass(frozen=True)
class WorkerRow:
    """A worker and how it does."""

    worker: models.Worker
    state: str  # "alive", "silent" or "stopped"
    available: Sequence[tuple[str, dict]]
    unavailable: Sequence[tuple[str, dict]]
    undeclared: Sequence[tuple[str, str]]  # route, and how its versions differ from the declared ones


@dataclass(frozen=True)
class Waits:
    """From a miss's arrival to its first published result, over the latest explorations."""

    count: int
    p50_s: float | None
    p95_s: float | None


def queues(visible: Q) -> list[Queue]:
    """One entry per stage, in the order in which they run."""
    found = models.Exploration.objects.filter(visible, state__in=ACTIVE)
    counted = {
        (row["stage"], row["priority"], row["state"]): row["n"]
        for row in found.values("stage", "priority", "state").annotate(n=Count("pk")).order_by()
    }

    def total(stage: int, state: str, priority: int | None = None) -> int:
        return sum(
            n
            for (its_stage, its_priority, its_state), n in counted.items()
            if its_stage == stage and its_state == state and priority in (None, its_priority)
        )

    return [
        Queue(
            stage=stage.value,
            name=str(stage.label),
            by_priority=tuple(
                total(stage, models.State.QUEUED, priority) for priority in models.Priority.values
            ),
            running=total(stage, models.State.RUNNING),
            paused=total(stage, models.State.PAUSED),
        )
        for stage in models.Stage
    ]


def explorations(visible: Q) -> QuerySet[models.Exploration]:
    """Every exploration with its operator; the graph, which is large, is left unread."""
    return (
        models.Exploration.objects.filter(visible)
        .select_related("operator", "target", "setting")
        .defer("operator__graph", "target__description", "setting__description")
    )


def recent(visible: Q, limit: int = 8) -> list[models.Exploration]:
    """Those that run now, then the latest to have moved."""
    first = Case(When(state=models.State.RUNNING, then=Value(0)), default=Value(1))
    return list(explorations(visible).order_by(first, "-updated_at", "-pk")[:limit])


def finished_since(visible: Q, moment: datetime) -> int:
    """Explorations that gave their first result since then."""
    return models.Exploration.objects.filter(visible, first_result_at__gte=moment).count()


def waits(visible: Q, latest: int = 500) -> Waits:
    """How long the latest explorations took to their first result."""
    found = models.Exploration.objects.filter(visible, first_result_at__isnull=False)
    pairs = found.order_by("-first_result_at").values_list("asked_at", "first_result_at")[:latest]
    seconds = sorted((first - asked).total_seconds() for asked, first in pairs if first is not None)
    if not seconds:
        return Waits(0, None, None)
    last = len(seconds) - 1
    return Waits(len(seconds), seconds[round(last * 0.5)], seconds[round(last * 0.95)])


def workers(limit: int = 40) -> list[WorkerRow]:
    """Workers that run, or fell silent within a day, or were stopped just now; those alive first."""
    now = timezone.now()
    found = models.Worker.objects.select_related("target").filter(last_seen_at__gte=now - timedelta(days=1))
    found = found.filter(Q(stopped_at=None) | Q(stopped_at__gte=now - timedelta(minutes=10)))
    differing = environments.undeclared()
    made = [
        _worker_row(worker, now, differing)
        for worker in found.order_by("stopped_at", "-last_seen_at")[:limit]
    ]
    order = {"alive": 0, "silent": 1, "stopped": 2}
    return sorted(made, key=lambda row: (order[row.state], row.worker.name))


def _worker_row(worker: models.Worker, now: datetime, differing: Mapping[tuple[str, str], str]) -> WorkerRow:
    if worker.stopped_at is not None:
        state = "stopped"
    else:
        # A supervisor reports every few seconds; unheard for longer than a target counts as served is lost.
        silent_after = timedelta(seconds=conf().served_s)
        state = "alive" if now - worker.last_seen_at < silent_after else "silent"
    routes = list(worker.routes.items())
    return WorkerRow(
        worker,
        state,
        available=[(name, facts) for name, facts in routes if facts.get("available")],
        unavailable=[(name, facts) for name, facts in routes if not facts.get("available")],
        undeclared=[
            (name, differing[worker.name, name]) for name, _ in routes if (worker.name, name) in differing
        ],
    )


def pauses() -> list[models.Pause]:
    return list(models.Pause.objects.order_by("capability"))
