"""Current work: queues, explorations, workers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from catalog.conf import conf
from catalog.viewing import Viewer
from dashboard.notifications.alerts.selectors import SeenAlarms, alarms, open_alerts
from dashboard.run import troubles
from tuning import models
from tuning.priority import Priority
from tuning.statistics.queues import Lane
from tuning.statistics.workers import Fleet, silent_targets

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
class Waits:
    """From a miss's arrival to its first published result, over the latest explorations."""

    count: int
    p50_s: float | None
    p95_s: float | None


def queues(lanes: Iterable[Lane]) -> list[Queue]:
    """One entry per stage, in the order in which they run."""
    by_stage: dict[int, list[Lane]] = defaultdict(list)
    for lane in lanes:
        by_stage[lane.stage].append(lane)
    return [_queue(stage, by_stage[stage]) for stage in models.Stage]


def _queue(stage: models.Stage, lanes: Sequence[Lane]) -> Queue:
    queued = Counter[int]()
    for lane in lanes:
        queued[lane.priority] += lane.queued
    return Queue(
        stage=stage.value,
        name=str(stage.label),
        by_priority=tuple(queued[priority] for priority in Priority),
        running=sum(lane.running for lane in lanes),
        paused=sum(lane.paused for lane in lanes),
    )


def explorations(visible: Q) -> QuerySet[models.Exploration]:
    """Every exploration with its operator; the graph, which is large, is left unread."""
    return (
        models.Exploration.objects.filter(visible)
        .select_related("operator", "target", "setting")
        .defer("operator__graph", "target__description")
    )


def recent(visible: Q, limit: int = 8) -> list[models.Exploration]:
    """Those that run now, then the latest to have moved: each found by an index."""
    latest = explorations(visible).order_by("-updated_at", "-pk")
    running = list(latest.filter(state=models.State.RUNNING)[:limit])
    rest = latest[: limit * 2] if len(running) < limit else ()
    shown = {row.pk for row in running}
    return [*running, *(row for row in rest if row.pk not in shown)][:limit]


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


def troubles_shown(viewer: Viewer, of: Fleet) -> dict[str, Any]:
    """Targets without workers; for the service's operators also failing routes, disturbed machines, and
    incidents of this machine's processes."""
    own = troubles.read(conf().home / "run") if viewer.sees_all else []
    yesterday = timezone.now() - timedelta(hours=24)
    wrong = alarms(yesterday) if viewer.sees_all else SeenAlarms()
    alerts = open_alerts(viewer)
    return {
        "silent": silent_targets(of),
        "troubles": own,
        "alarms": wrong,
        "alerts_firing": alerts.firing,
        "alerts_taken": alerts.taken,
    }
