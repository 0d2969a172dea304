"""Races of explorations as they ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from django.db.models import QuerySet

from tuning.explore.race.report import Entry, RaceReport, decided_text
from tuning.models import Exploration, Race

RACES_LISTED = 30
"""The latest of an exploration: each tuning slice holds one."""


@dataclass(frozen=True)
class RaceTold:
    """The race of one slice. Times are of this race, and compare with those of no other."""

    id: int
    stage: int
    stage_name: str
    round: Annotated[int, "The exploration's."]
    heats: int
    sittings: Annotated[int, "Of the final; 0: there was none."]
    seconds: Annotated[float, "Heats and final, without the builds."]
    default_us: Annotated[float | None, "As the final saw it."]
    winner: Annotated[int | None, "The implementation that was served after it."]
    decided: Annotated[str, "What the last round decided, in words."]
    worker: str
    created_at: datetime
    entries: Sequence[Entry]


def latest(explorations: QuerySet[Exploration]) -> QuerySet[Race]:
    """The latest races of these, the newest first."""
    return Race.objects.filter(exploration__in=explorations).order_by("-pk")[:RACES_LISTED]


def told(race: Race) -> RaceTold:
    report = RaceReport.from_json(race.report)
    return RaceTold(
        id=race.pk,
        stage=race.stage,
        stage_name=str(race.get_stage_display()),
        round=race.round,
        heats=report.heats,
        sittings=race.sittings,
        seconds=race.seconds,
        default_us=race.default_us,
        winner=race.winner_id,
        decided=decided_text(report),
        worker=race.worker,
        created_at=race.created_at,
        entries=report.entries,
    )
