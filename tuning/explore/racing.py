"""The race of a slice: heats in the order of what is promising, and one final that decides.

Candidates are built a few at a time, those that promise most per second first, judged by what won before for
operators like this one (``odds``); what hardly can beat the best so far is not built at all, but for a small
share. Each batch runs a heat (``tuning.measure.heat``) together with the leader so far. The final
(``tuning.measure.lineup``) has the best of each method, whoever is served and the default; who is served, and
who is equal, is decided by it alone.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from catalog.models import Best, Purpose
from opatlas.evidence import Evidence
from tuning.explore.candidates import Yielding, gives_way, make_room
from tuning.explore.odds import BOUND, Odds, TryTraits
from tuning.explore.race_report import Entry, RaceReport, chance_text
from tuning.explore.results import (
    OF_BEST,
    Decided,
    Finalist,
    HeldRace,
    Tried,
    publish_race,
    publish_trial,
    sound_incumbent,
    usable,
    winner_of,
)
from tuning.explore.trial_history import about_try, odds_for
from tuning.explore.workshop import ClaimedSlice
from tuning.explore.worth import LEAST_US_PER_S, against_the_odds
from tuning.measure.laboratory import SUBMITTED, Bench
from tuning.measure.outcome import LineUp, Matter, Outcome
from tuning.measure.provenance import candidate_digest
from tuning.models import Race, Stage
from tuning.routes.base import BuiltArtifact

BUILT_TOGETHER, HEAT_S = 8, 6.0
"""Candidates that are built before they run a heat, at most, and the seconds that their tries are expected to
take (each alone: routes build side by side), but for the first of them."""
LEAST_REST, MOST_REST = 0.02, 0.9
"""Share of an exploration's worth that those candidates have which its heats left waiting."""
MOST_FINALISTS = 3
"""Of this slice's candidates, beside the best of each method and those who held seats."""
MOST_FINALS = 3
"""Where each disappoints so much that somebody left behind looks faster."""
UNDECIDED = (Purpose.DEFAULT, Purpose.FIRST)
"""What measurements of what is served were taken for, before anything was decided."""
AS_GOOD = 0.93
"""Of the leader's ratio, as two heats of different minutes tell it: below, no further finalist."""
FINAL_S, SITTING_S = 4.0, 0.5
"""Seconds that a final may take when its first two are not told apart, and what a further sitting takes."""


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
    """One slice's race. ``to_beat``: the best ratio so far, of who is served or of a heat."""

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
        """Who was decided for before; None where what is served is only what came first."""
        first = self.served is None or self.served.measurement.purpose in UNDECIDED
        return None if first else self.served


def hold_race(work: ClaimedSlice, bench: Bench, tries: Iterable[Tried], default_digest: str) -> float:
    """Try candidates, and serve the best of them and of those who held seats; which share of what the first
    of them promised is promised by those that still wait (0: all had their turn).
    After a heat a contest gives way to others that promise more: the most promising of every operator come
    before the rest of any. Who looks fastest then runs with who is served in one sitting, and the winner is
    served as a first result is: the final comes when all had their turn.

    What fails, what is slower and what the final leaves behind is kept as evidence. Raises Yielding where
    something more urgent waits: what was timed by then is published, who is served stays.
    """
    served = winner_of(work.row)
    to_beat = max(1.0, served.ratio_to_default if served else 1.0)
    race = RaceInProgress(work, bench, default_digest, odds_for(work.row.target_id), served, to_beat)
    waiting, rest = list(tries), 0.0
    most = max((_promise(race, one) for one in waiting), default=0.0)
    try:
        while batch := _next_batch(race, waiting):
            make_room(work)
            _run_heat(race, batch)
            rest = _rest(race, waiting, most)
            if rest and gives_way(work, rest):
                break
        else:
            rest = 0.0  # those that still waited have no chance
        make_room(work)
    except Yielding:
        # Kept as evidence: they hold the seats of their routes, and run in the final of the next slice.
        _keep_others(race, ())
        raise
    _final(race, decides=not rest)
    return rest


def _rest(race: RaceInProgress, waiting: Sequence[Tried], most: float) -> float:
    """Of what was promised ``most`` in the beginning, what is by the best that waits; 0 where nobody does."""
    if not waiting:
        return 0.0
    share = max(_promise(race, one) for one in waiting) / most if most > 0 else LEAST_REST
    return min(max(share, LEAST_REST), MOST_REST)


def _promise(race: RaceInProgress, tried: Tried) -> float:
    return race.odds.promise(_about(race.work, tried), race.to_beat)


def _next_batch(race: RaceInProgress, waiting: list[Tried]) -> list[Tried]:
    """The most promising of those that wait, taken out of them; those without a chance are out, unless they
    are of the few that are tried against the odds."""
    work, to_beat = race.work, race.to_beat

    favourites = {candidate_digest(one.route, one.parameters) for one in work.favourites}

    waiting.sort(key=lambda tried: (tried.digest in favourites, _promise(race, tried)), reverse=True)
    batch, spent_s = list[Tried](), 0.0
    for tried in list(waiting):
        chance = race.odds.chance(_about(work, tried), to_beat)
        if chance < BOUND and tried.digest not in favourites and not _must_be_tried(work, tried):
            waiting.remove(tried)
            said = f"{chance_text(chance)} to be faster than {to_beat:.2f}×"
            race.report.entries.append(_entry(tried, skipped=said))
            continue
        takes_s = race.odds.expect(_about(work, tried)).seconds
        if not batch or (len(batch) < BUILT_TOGETHER and spent_s + takes_s <= HEAT_S):
            waiting.remove(tried)
            batch.append(tried)
            spent_s += takes_s
    return batch


def _must_be_tried(work: ClaimedSlice, tried: Tried) -> bool:
    """Whatever its odds: what a round was asked for, what a search has found or somebody approved."""
    asked_for = bool(work.row.routes) or work.row.stage != Stage.CONTEST or tried.route.name in SUBMITTED
    return asked_for or against_the_odds(work.row.operator.key, tried.digest)


def _run_heat(race: RaceInProgress, batch: Sequence[Tried]) -> None:
    """Build them, and race those that build; the leader so far runs with them."""
    ours = [tried for tried in batch if tried.route.name not in SUBMITTED]
    race.report.heats += 1
    if ours:
        _heat_of(race, ours)
    for tried in batch:
        if tried.route.name in SUBMITTED:
            _time_alone(race, tried)


def _heat_of(race: RaceInProgress, ours: Sequence[Tried]) -> None:
    """Our own candidates, checked while others of them still build."""
    work, racing, began = race.work, list[tuple[Tried, BuiltArtifact]](), time.monotonic()
    names = ", ".join(dict.fromkeys(tried.route.name for tried in ours))

    def entrants() -> Generator[BuiltArtifact, None, None]:
        nonlocal began
        jobs = [(tried.route, tried.candidate) for tried in ours if tried.candidate is not None]
        with closing(work.build_each(jobs)) as builds:
            for number, made in builds:
                if (built := _built(race, ours[number], made)) is not None:
                    racing.append((ours[number], built))
                    yield built
        began = time.monotonic()
        work.doing(f"{names}: a heat of {len(racing)}")
        if racing and race.leader:
            yield race.leader.artifact

    work.doing(f"{names}: building")
    with closing(entrants()) as coming:
        outcomes = race.bench.heat(coming, work.workshop.limits)
    spent_s = time.monotonic() - began
    race.report.seconds += spent_s
    for (tried, built), outcome in zip(racing, outcomes, strict=False):
        _keep_timed(race, tried, built, usable(outcome), spent_s / len(racing))


def _time_alone(race: RaceInProgress, tried: Tried) -> None:
    """What somebody submitted, with the default."""
    work, candidate = race.work, tried.candidate
    work.doing(tried.name)
    assert candidate is not None
    built = _built(race, tried, work.build(tried.route, candidate))
    if built is not None:
        began = time.monotonic()
        outcome = usable(race.bench.measure(built, work.workshop.limits))
        race.report.seconds += (took_s := time.monotonic() - began)
        _keep_timed(race, tried, built, outcome, took_s)


def _built(race: RaceInProgress, tried: Tried, made: BuiltArtifact | Outcome) -> BuiltArtifact | None:
    if isinstance(made, Outcome):
        tried.took_s = made.build_s
        race.report.entries.append(_entry(tried, status=made.status))
        race.work.keep(tried, made)
        return None
    tried.build_s = float(made.facts.get("build_s", 0.0))
    return made


def _keep_timed(
    race: RaceInProgress, tried: Tried, built: BuiltArtifact, outcome: Outcome, took_s: float
) -> None:
    tried.took_s = (tried.build_s or 0.0) + took_s
    entry = _entry(tried, status=outcome.status, heat=race.report.heats)
    entry.rounds = int(outcome.facts.get("rounds", 0))
    entry.chance, entry.dropped = outcome.facts.get("chance"), bool(outcome.facts.get("dropped"))
    race.report.entries.append(entry)
    if outcome.timing is not None:
        entry.ratio = round(outcome.timing.ratio_to_default, 4)
    if not outcome.ok:
        race.work.keep(tried, outcome)
        return
    race.racers.append(Racer(tried, built, outcome, entry))
    assert outcome.timing is not None
    # Its lower end: what a few rounds found may have been luck.
    race.to_beat = max(race.to_beat, outcome.timing.ratio_low)


def _final(race: RaceInProgress, *, decides: bool) -> None:
    """One line-up of the finalists; it alone decides. Everybody else is published as what they are.

    Where it disappoints so much that somebody left behind looks faster, there is another, with them. Where it
    does not decide, since others still wait for their turn, and nothing was decided before either, it is one
    sitting, and whoever wins is served until then.
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
        final = _hold_final(race, chosen, held)
    _keep_others(race, final.chosen if final is not None else ())
    if final is not None:
        _settle(race, final)
    if race.report.entries:
        keep_report(race.work, race.report)


def _awaits_final(best: Best) -> bool:
    """Somebody whom a heat found that had to make room before its final, or who won in one sitting alone."""
    purpose = best.measurement.purpose
    return purpose == Purpose.FIRST if best.rank == 0 else purpose == Purpose.CONTEST


def _keep_others(race: RaceInProgress, finalists: Sequence[Racer]) -> None:
    for one in race.racers:
        if one in finalists:
            continue
        if not one.outcome.ok:
            race.work.keep(one.tried, one.outcome)
            continue
        publish_trial(race.work.judged(one.tried, one.outcome, one.artifact), Purpose.CONTEST, may_win=False)


@dataclass
class Final:
    """A line-up that was held: this slice's candidates, then those who held seats."""

    chosen: Sequence[Racer]
    held: Sequence[tuple[Best, BuiltArtifact]]
    found: LineUp


def _hold_final(
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
    """The best of each method, who comes near the leader, and who is served where it ran in the heats; for a
    further final those ``before`` and who looks faster now. None where nobody comes near who is served: then
    there is nothing to decide."""
    order = sorted((one for one in race.racers if one.outcome.ok), key=lambda one: -one.ratio)
    served = _digest(race.served) if race.served else ""
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
    """Who is served, and others of the catalogue that come near; none of them twice, and not the default."""
    work = race.work
    # Who ran in the heats is judged by them.
    known = {race.default_digest, *(one.tried.digest for one in race.racers)}
    to_reach = AS_GOOD * max(chosen[0].ratio if chosen else 0.0, race.to_beat)
    bests = Best.objects.filter(**work.row.same_key).order_by("rank")
    held = []
    for best in bests.select_related(*OF_BEST):
        near = best.rank == 0 or best.ratio_to_default >= to_reach
        if not near or _digest(best) in known or work.workshop.why_unsafe(best.route):
            continue
        if artifact := sound_incumbent(best, work.workdir / f"held-{best.pk}"):
            held.append((best, artifact))
    return held


def _default(race: RaceInProgress, itself: Evidence | None) -> Finalist | None:
    """The default as a finalist, where it has a seat: by definition at a ratio of 1."""
    bests = Best.objects.filter(**race.work.row.same_key).select_related(*OF_BEST)
    best = next((best for best in bests if _digest(best) == race.default_digest), None)
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


def _about(work: ClaimedSlice, tried: Tried) -> TryTraits:
    label = tried.candidate.label if tried.candidate else ""
    return about_try(work.row.operator, tried.route.name, label)


def _entry(tried: Tried, **known: Any) -> Entry:
    return Entry(tried.route.name, tried.candidate.label if tried.candidate else "", **known)


def _digest(best: Best) -> str:
    return candidate_digest(best.route, best.implementation.candidate)
