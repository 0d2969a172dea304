"""What goes on now: queues, explorations, workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, QuerySet

from catalog.conf import conf
from catalog.viewing import Viewer
from dashboard.notifications.alerts.selectors import alarms, firing
from dashboard.run import troubles
from tuning import models
from tuning.priority import Priority
from tuning.statistics.alarms import Alarms
from tuning.statistics.workers import silent_targets

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
            by_priority=tuple(total(stage, models.State.QUEUED, priority) for priority in Priority),
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


def pauses() -> list[models.Pause]:
    return list(models.Pause.objects.order_by("capability"))


def troubles_shown(viewer: Viewer) -> dict[str, Any]:
    """Targets that nobody works for any more; for who runs the service also routes that always fail,
    disturbed machines, and what happened to the processes of this one."""
    own = troubles.read(conf().home / "run") if viewer.sees_all else []
    wrong = alarms() if viewer.sees_all else Alarms()
    return {
        "silent": silent_targets(),
        "troubles": own,
        "alarms": wrong,
        "alerts_firing": firing(viewer),
    }
