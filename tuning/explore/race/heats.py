"""The race of a slice: heats in the order of promise, and one deciding final.

Candidates are built a few at a time, those with the most promise per second first, by what won for similar
operators (``odds``). Those that can hardly beat the best so far are not built, except a small share. Each
batch runs a heat (``tuning.measure.heat``) with the leader so far; then comes the final (``final``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing

from tuning.explore.candidates import Yielding, gives_way, make_room
from tuning.explore.odds import BOUND
from tuning.explore.race.final import hold_final
from tuning.explore.race.progress import RaceInProgress, Racer, about, begun, entry_of, keep_others, to_beat
from tuning.explore.race.report import chance_text
from tuning.explore.results import (
    Tried,
    usable,
    winner_of,
)
from tuning.explore.trial_history import odds_for
from tuning.explore.workshop import ClaimedSlice
from tuning.explore.worth import against_the_odds
from tuning.measure.laboratory import SUBMITTED, Bench
from tuning.measure.outcome import Outcome
from tuning.measure.provenance import candidate_digest
from tuning.models import Stage
from tuning.routes.base import BuiltArtifact

BUILT_TOGETHER, HEAT_S = 8, 6.0
"""Candidates that are built before they run a heat, at most, and the seconds that their tries are expected to
take (each alone: routes build side by side), but for the first of them."""
LEAST_REST, MOST_REST = 0.02, 0.9
"""Share of an exploration's worth that those candidates have which its heats left waiting."""
OPENING_S, SURE_PROMISE = 2.0, 0.15
"""Expected seconds of tries that open a contest, and the gain in ln ratio that each must promise for its
seconds: what those of another first result bring (ln 1.24 in 1.4 s)."""


def hold_race(work: ClaimedSlice, bench: Bench, tries: Iterable[Tried], default_digest: str) -> float:
    """Try candidates, and serve the best of them and of the holders of seats. Returns which share of the
    first one's promise is still waiting (0: all had their turn).

    After a heat a contest gives way to others that promise more: the most promising of every operator come
    before the rest of any. The fastest so far then runs with the present best in one sitting, and the winner
    is served like a first result; the final comes when all had their turn. Failures, slower ones and those
    left behind are kept as evidence. Raises Yielding if something more urgent waits: what was timed is
    published, and the present best stays.
    """
    race = begun(work, bench, default_digest)
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
        keep_others(race, ())
        raise
    hold_final(race, decides=not rest)
    return rest


def hold_opening(work: ClaimedSlice, bench: Bench, sure: Sequence[Tried], default_digest: str) -> None:
    """One heat of candidates known to be promising and quick (``sure_ones``), and one sitting of its best
    with the present best. Raises Yielding like ``hold_race``."""
    race = begun(work, bench, default_digest)
    make_room(work)
    _run_heat(race, sure)
    hold_final(race, decides=False)


def expected_saving_us(work: ClaimedSlice, waiting: Iterable[Tried]) -> float:
    """The expected saving of one call, by the best waiting candidate and past trials."""
    served, odds, beats = winner_of(work.row), odds_for(work.row.target_id), to_beat(work)
    if served is None:
        return 0.0
    gain = max((odds.gain(about(work, one), beats) for one in waiting), default=0.0)
    return float(served.median_us * -math.expm1(-gain))


def sure_ones(work: ClaimedSlice, waiting: Sequence[Tried]) -> list[Tried]:
    """Candidates that may open a contest, the most promising first. Before them comes the most promising
    approved kernel for such operators, unless it has lost on similar ones."""
    odds, beats = odds_for(work.row.target_id), to_beat(work)

    def promise(tried: Tried) -> float:
        return odds.sure_promise(about(work, tried), beats)

    approved = [
        one for one in waiting if _is_submitted(one) and odds.chance(about(work, one), beats) >= BOUND
    ]
    batch = sorted(approved, key=lambda one: odds.promise(about(work, one), beats))[-1:]
    spent_s = sum(odds.expect(about(work, one)).seconds for one in batch)
    ours = [one for one in waiting if not _is_submitted(one)]
    for tried in sorted(ours, key=promise, reverse=True)[:BUILT_TOGETHER]:
        takes_s = odds.expect(about(work, tried)).seconds
        if promise(tried) < SURE_PROMISE:
            break
        if spent_s + takes_s <= OPENING_S:
            batch.append(tried)
            spent_s += takes_s
    return batch


def _rest(race: RaceInProgress, waiting: Sequence[Tried], most: float) -> float:
    """The share of the initial promise ``most`` that the best waiting candidate has; 0 if none waits."""
    if not waiting:
        return 0.0
    share = max(_promise(race, one) for one in waiting) / most if most > 0 else LEAST_REST
    return min(max(share, LEAST_REST), MOST_REST)


def _promise(race: RaceInProgress, tried: Tried) -> float:
    return race.odds.promise(about(race.work, tried), race.to_beat)


def _next_batch(race: RaceInProgress, waiting: list[Tried]) -> list[Tried]:
    """The most promising waiting candidates, removed from the list. Those without a chance are dropped,
    except the few that are tried against the odds. Approved kernels for such operators come first, alone:
    what they reach leaves many others without a chance."""
    work = race.work
    favourites = {candidate_digest(one.route, one.parameters) for one in work.favourites}

    def turn(tried: Tried) -> tuple[bool, bool, float]:
        return tried.digest in favourites, _is_submitted(tried), _promise(race, tried)

    waiting.sort(key=turn, reverse=True)
    batch, spent_s = list[Tried](), 0.0
    for tried in list(waiting):
        if batch and _is_submitted(tried) != _is_submitted(batch[0]):
            break
        chance = race.odds.chance(about(work, tried), race.to_beat)
        if chance < BOUND and tried.digest not in favourites and not _must_be_tried(work, tried):
            waiting.remove(tried)
            said = f"{chance_text(chance)} to be faster than {race.to_beat:.2f}×"
            race.report.entries.append(entry_of(tried, skipped=said))
            continue
        takes_s = race.odds.expect(about(work, tried)).seconds
        if not batch or (len(batch) < BUILT_TOGETHER and spent_s + takes_s <= HEAT_S):
            waiting.remove(tried)
            batch.append(tried)
            spent_s += takes_s
    return batch


def _is_submitted(tried: Tried) -> bool:
    return tried.route.name in SUBMITTED


def _must_be_tried(work: ClaimedSlice, tried: Tried) -> bool:
    """Candidates tried whatever their odds: those that a round was asked for, a search has found or somebody
    approved."""
    asked_for = bool(work.row.routes) or work.row.stage != Stage.CONTEST or _is_submitted(tried)
    return asked_for or against_the_odds(work.row.operator.key, tried.digest)


def _run_heat(race: RaceInProgress, batch: Sequence[Tried]) -> None:
    """Build them, and race those that build with the leader so far."""
    ours = [tried for tried in batch if not _is_submitted(tried)]
    race.report.heats += 1
    if ours:
        _heat_of(race, ours)
    for tried in batch:
        if _is_submitted(tried):
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
    """Time a submitted kernel with the default alone."""
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
        race.report.entries.append(entry_of(tried, status=made.status))
        race.work.keep(tried, made)
        return None
    tried.build_s = float(made.facts.get("build_s", 0.0))
    return made


def _keep_timed(
    race: RaceInProgress, tried: Tried, built: BuiltArtifact, outcome: Outcome, took_s: float
) -> None:
    tried.took_s = (tried.build_s or 0.0) + took_s
    entry = entry_of(tried, status=outcome.status, heat=race.report.heats)
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
