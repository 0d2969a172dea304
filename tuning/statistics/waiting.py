"""What waits and who works, in a few figures: queue depth, the age of the oldest, live workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from catalog.models import Miss, MissState
from tuning.statistics.queues import WorkNow


@dataclass(frozen=True)
class Waiting:
    """Now, not over a time range."""

    queued: int  # explorations in the explore queues
    running: int
    paused: int
    oldest_at: datetime | None  # when the oldest that waits in an explore queue was asked for
    collecting: int  # misses that nobody has decided on yet
    workers: int  # live ones

    def oldest_s(self, now: datetime) -> float | None:
        return (now - self.oldest_at).total_seconds() if self.oldest_at else None


def waiting(work: WorkNow) -> Waiting:
    """Of what may be seen; workers serve everybody. One statement beside what ``work`` reads."""
    return Waiting(
        queued=sum(lane.queued for lane in work.lanes),
        running=sum(lane.running for lane in work.lanes),
        paused=sum(lane.paused for lane in work.lanes),
        oldest_at=min((lane.oldest_at for lane in work.lanes if lane.oldest_at), default=None),
        collecting=Miss.objects.filter(work.visible, state=MissState.WAITING).count(),
        workers=len(work.fleet.living),
    )
