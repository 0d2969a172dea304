"""The final of a slice's race (``tuning.measure.lineup``): the best of each method, the present best and the
default. It alone decides what is served, and what counts as equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from catalog.models import Best, Purpose
from opatlas.evidence import Evidence
from tuning.explore.race.progress import RaceInProgress, Racer, digest_of, keep_others, keep_report
from tuning.explore.race.report import Entry
from tuning.explore.results import (
    OF_BEST,
    Decided,
    Finalist,
    HeldRace,
    publish_race,
    sound_incumbent,
    usable,
)
from tuning.explore.worth import LEAST_US_PER_S
from tuning.measure.outcome import LineUp, Matter
from tuning.routes.base import BuiltArtifact

MOST_FINALISTS = 3
"""The most candidates of this slice, beside each method's best and the holders of seats."""
MOST_FINALS = 3
"""The most finals, if each is so slow that a candidate left behind looks faster."""
AS_GOOD = 0.93
"""Candidates below this share of the leader's ratio, by heats of different minutes, are no further
finalists."""
FINAL_S, SITTING_S = 4.0, 0.5
"""Seconds that a final may take when its first two are not told apart, and what a further sitting takes."""


def hold_final(race: RaceInProgress, *, decides: bool) -> None:
    """One line-up of the finalists; it alone decides. All others are published with their evidence.

    If it is so slow that a candidate left behind looks faster, there is another with that one. If others
    still wait for their turn and nothing was decided before, it is one sitting without a decision, and its
    winner is served until then.
    """
    final: Final | None = None
    race.report.decides = decides or race.incumbent is not None
    for _ in range(MOST_FINALS if decides else 1):
        chosen = _finalists(race, final.chosen if final is not None else ())
        held = final.held if final is not None else _holders(race, chosen)
        if not chosen and not (decides and any(_awaits_final(best) for best, _ in held)):
            break
        if final is not None and set(map(id, chosen)) <= set(map(id, final.chosen)):
            break
        final = _line_up_finalists(race, chosen, held)
    keep_others(race, final.chosen if final is not None else ())
    if final is not None:
        _settle(race, final)
    if race.report.entries:
        keep_report(race.work, race.report)


def _awaits_final(best: Best) -> bool:
    """A candidate from a heat that made room before its final, or that won in one sitting alone."""
    purpose = best.measurement.purpose
    return purpose == Purpose.FIRST if best.rank == 0 else purpose == Purpose.CONTEST


@dataclass
class Final:
    """A finished line-up: this slice's candidates, then the holders of seats."""

    chosen: Sequence[Racer]
    held: Sequence[tuple[Best, BuiltArtifact]]
    found: LineUp


def _line_up_finalists(
    race: RaceInProgress, chosen: Sequence[Racer], held: Sequence[tuple[Best, BuiltArtifact]]
) -> Final:
    work = race.work
    names = [one.tried.name for one in chosen] + [str(best) for best, _ in held]
    work.doing(f"final of {', '.join(names)}")
    worth_us = work.row.calls * (race.bench.default.timing.median_us if race.bench.default.timing else 1.0)
    artifacts = [*(one.artifact for one in chosen), *(artifact for _, artifact in held)]
    if race.report.decides:
        matter = Matter(LEAST_US_PER_S * SITTING_S / max(worth_us, 1e-9), FINAL_S)
        found = race.bench.line_up(artifacts, limits=work.workshop.limits, matter=matter)
    else:
        found = race.bench.line_up(artifacts, limits=work.workshop.limits, sittings=1)
    found = replace(found, outcomes=tuple(usable(outcome) for outcome in found.outcomes))
    for one, outcome in zip(chosen, found.outcomes, strict=False):
        one.outcome = outcome
        one.tried.took_s = (one.tried.took_s or 0.0) + found.spent_s / len(artifacts)
    race.report.sittings, race.report.seconds = found.sittings, race.report.seconds + found.spent_s
    return Final(chosen, held, found)


def _settle(race: RaceInProgress, final: Final) -> None:
    """Publish what the final found."""
    purpose = Purpose.FINAL if race.report.decides else Purpose.FIRST
    finalists = [
        Finalist(
            one.outcome, one.artifact, race.work.judged(one.tried, one.outcome, one.artifact), None, purpose
        )
        for one in final.chosen
    ]
    finalists += [
        Finalist(outcome, artifact, None, best, purpose)
        for (best, artifact), outcome in zip(
            final.held, final.found.outcomes[len(final.chosen) :], strict=True
        )
    ]
    pairs = final.found.pairs
    if (default := _default(race, final.found.default)) is not None:
        pairs = final.found.pairs_with(len(finalists))
        finalists.append(replace(default, purpose=purpose))
    default_route = race.work.default_route
    assert default_route is not None  # a bench was opened with it
    held = HeldRace(race.work.claim, race.work.row, default_route, race.incumbent)
    decided = publish_race(held, finalists, pairs)
    _report_final(race, final.chosen, finalists, decided)


def _finalists(race: RaceInProgress, before: Sequence[Racer]) -> list[Racer]:
    """The best of each method, those near the leader, and the present best if it ran in the heats; for a
    further final those ``before`` and those that now look faster. None if nothing comes near the present
    best: there is nothing to decide."""
    order = sorted((one for one in race.racers if one.outcome.ok), key=lambda one: -one.ratio)
    served = digest_of(race.served) if race.served else ""
    served_ratio = race.served.ratio_to_default if race.served else 0.0
    # What it did in the heats, where it ran there: a ratio of another minute may have been luck.
    served_ratio = next((one.ratio for one in order if one.tried.digest == served), served_ratio)
    if not order or order[0].ratio < AS_GOOD * served_ratio:
        return []
    leaders = before or list({one.tried.route.method: one for one in reversed(order)}.values())
    # Who was dropped has lost in its heat, whatever a ratio of another minute says.
    going_on = [one for one in order if not one.entry.dropped]
    near = [one for one in going_on if one.ratio >= AS_GOOD * order[0].ratio][:MOST_FINALISTS]
    return [one for one in order if one in near or one in leaders or one.tried.digest == served]


def _holders(race: RaceInProgress, chosen: Sequence[Racer]) -> list[tuple[Best, BuiltArtifact]]:
    """The present best and others of the catalogue that come near, each once, without the default."""
    work = race.work
    # Who ran in the heats is judged by them.
    known = {race.default_digest, *(one.tried.digest for one in race.racers)}
    to_reach = AS_GOOD * max(chosen[0].ratio if chosen else 0.0, race.to_beat)
    bests = Best.objects.filter(**work.row.same_key).order_by("rank")
    held = []
    for best in bests.select_related(*OF_BEST):
        near = best.rank == 0 or best.ratio_to_default >= to_reach
        if not near or digest_of(best) in known or work.workshop.why_unsafe(best.route):
            continue
        if artifact := sound_incumbent(best, work.workdir / f"held-{best.pk}"):
            held.append((best, artifact))
    return held


def _default(race: RaceInProgress, itself: Evidence | None) -> Finalist | None:
    """The default as a finalist, if it has a seat: its ratio is 1 by definition."""
    bests = Best.objects.filter(**race.work.row.same_key).select_related(*OF_BEST)
    best = next((best for best in bests if digest_of(best) == race.default_digest), None)
    if best is None or itself is None:
        return None
    artifact = sound_incumbent(best, race.work.workdir / f"default-{race.report.heats}")
    if artifact is None:
        return None
    return Finalist(replace(race.bench.default, timing=itself), artifact, held=best)


def _report_final(
    race: RaceInProgress,
    chosen: Sequence[Racer],
    finalists: Sequence[Finalist],
    decided: Decided,
) -> None:
    report = race.report
    for number, one in enumerate(finalists):
        if number < len(chosen):
            entry = chosen[number].entry
        else:
            assert one.held is not None
            entry = Entry(one.held.route, one.held.label, held=True)
            report.entries.append(entry)
        won, equal = number == decided.winner, number in decided.equal
        entry.ran_in_final(one.outcome.status, one.outcome.timing, won=won, equal=equal)
        if one.outcome.timing is not None:
            report.default_us = report.default_us or round(one.outcome.timing.default_us, 4)
