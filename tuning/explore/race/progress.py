"""The state of a slice's race: the candidates, the ratio to beat, and the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.models import Best, Purpose
from tuning.explore.odds import Odds, TryTraits
from tuning.explore.race.report import Entry, RaceReport
from tuning.explore.results import (
    Tried,
    publish_trial,
    winner_of,
)
from tuning.explore.trial_history import about_try, odds_for
from tuning.explore.workshop import ClaimedSlice
from tuning.measure.laboratory import Bench
from tuning.measure.outcome import Outcome
from tuning.measure.provenance import candidate_digest
from tuning.models import Race
from tuning.routes.base import BuiltArtifact

UNDECIDED = (Purpose.DEFAULT, Purpose.FIRST)
"""Purposes of the present best's measurements from before any decision."""


@dataclass
class Racer:
    """A candidate of this slice that has been timed in a heat."""

    tried: Tried
    artifact: BuiltArtifact
    outcome: Outcome
    entry: Entry

    @property
    def ratio(self) -> float:
        return self.outcome.ratio


@dataclass
class RaceInProgress:
    """One slice's race. ``to_beat``: the best ratio so far, of the present best or of a heat."""

    work: ClaimedSlice
    bench: Bench
    default_digest: str
    odds: Odds
    served: Best | None
    to_beat: float
    report: RaceReport = field(default_factory=RaceReport)
    racers: list[Racer] = field(default_factory=list)

    @property
    def leader(self) -> Racer | None:
        return max(self.racers, key=lambda one: one.ratio, default=None)

    @property
    def incumbent(self) -> Best | None:
        """The winner of an earlier decision; None if the present best is only a first result."""
        first = self.served is None or self.served.measurement.purpose in UNDECIDED
        return None if first else self.served


def begun(work: ClaimedSlice, bench: Bench, default_digest: str) -> RaceInProgress:
    served, odds = winner_of(work.row), odds_for(work.row.target_id)
    return RaceInProgress(work, bench, default_digest, odds, served, to_beat(work))


def to_beat(work: ClaimedSlice) -> float:
    """The ratio of the present best."""
    served = winner_of(work.row)
    return max(1.0, served.ratio_to_default if served else 1.0)


def keep_others(race: RaceInProgress, finalists: Sequence[Racer]) -> None:
    for one in race.racers:
        if one in finalists:
            continue
        if not one.outcome.ok:
            race.work.keep(one.tried, one.outcome)
            continue
        publish_trial(race.work.judged(one.tried, one.outcome, one.artifact), Purpose.CONTEST, may_win=False)


def keep_report(work: ClaimedSlice, report: RaceReport) -> None:
    """Write down how the race of a slice ran."""
    best = winner_of(work.row)
    report.default_route = work.default_route.name if work.default_route else ""
    with work.claim.writing():
        Race.objects.create(
            exploration=work.row,
            stage=work.row.stage,
            round=work.row.round,
            sittings=report.sittings,
            seconds=round(report.seconds, 3),
            default_us=report.default_us,
            winner=best.implementation if best else None,
            report=report.to_json(),
            worker=work.workshop.worker,
        )


def about(work: ClaimedSlice, tried: Tried) -> TryTraits:
    label = tried.candidate.label if tried.candidate else ""
    return about_try(work.row.operator, tried.route.name, label)


def entry_of(tried: Tried, **known: Any) -> Entry:
    return Entry(tried.route.name, tried.candidate.label if tried.candidate else "", **known)


def digest_of(best: Best) -> str:
    return candidate_digest(best.route, best.implementation.candidate)
