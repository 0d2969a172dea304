"""Stage 0, the first result: the default, or a faster candidate that is ready.

The default is checked and timed. ONNX Runtime's plain graph, and winners for the nearest known operators that
need hardly any building, are timed in turns with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from catalog.models import Purpose
from tuning.explore.candidates import NothingWorked, candidates_of
from tuning.explore.odds import plain_label
from tuning.explore.race.progress import keep_report
from tuning.explore.race.report import Entry, RaceReport
from tuning.explore.results import Finalist, HeldRace, Tried, publish_race, publish_trial, usable, winner_of
from tuning.explore.stage_end import StageEnd
from tuning.explore.trial_history import about_try, odds_for, winners_nearby
from tuning.explore.workshop import ClaimedSlice
from tuning.measure.laboratory import SUBMITTED, Bench
from tuning.measure.outcome import Outcome, Status
from tuning.models import Stage, State
from tuning.routes.base import BuiltArtifact, Candidate, Route

MAY_PASS = (Status.LOAD_FAILED, Status.CRASHED, Status.TIMED_OUT, Status.NOISY)
"""Failures that may be accidents: the default gets a second chance at once."""
AT_HAND = "onnxruntime"
"""The route whose first candidate runs beside the default: it needs no build, and is often faster."""
MOST_RIVALS, QUICK_S, TRIES = 3, 1.0, 2
"""Beside the default; how long a try may take, by those before it; and races, where one was disturbed."""


def first(work: ClaimedSlice) -> StageEnd:
    """Check and time the default, race what is ready with it, and publish: something to serve within
    seconds."""
    failures: list[str] = []
    reasons: list[str] = []
    for route, candidate in _default_choices(work, reasons):
        for chance in range(2):
            tried = Tried(route, candidate)
            work.doing(f"{tried.name}: checking and timing", steps_done=0, steps_total=1)
            outcome = _try_default(work, tried)
            if outcome.ok:
                return StageEnd(State.QUEUED, Stage.CONTEST, opened=False, steps_done=1)
            work.keep(tried, outcome)
            # Another default would make every ratio another: not for a mishap.
            if outcome.status not in MAY_PASS or chance:
                failures.append(f"{tried.name}: {outcome.said}")
                break
    if failures:
        raise NothingWorked(f"No implementation passed: {'; '.join(failures)}.")
    return StageEnd(State.UNSUPPORTED, reason="; ".join(reasons) or "No route is available.")


def _try_default(work: ClaimedSlice, tried: Tried) -> Outcome:
    """Try the default; if it is ok, it and faster candidates are published."""
    assert tried.candidate is not None
    built = work.build(tried.route, tried.candidate)
    tried.build_s = time.monotonic() - tried.began
    if isinstance(built, Outcome):
        return built
    with work.bench(built) as bench:
        outcome = usable(bench.default)
        if outcome.ok:
            _race(work, bench, tried, built, outcome)
    return outcome


def _race(work: ClaimedSlice, bench: Bench, default: Tried, built: BuiltArtifact, outcome: Outcome) -> None:
    """One sitting of the default and its rivals; the fastest is served first. In a further round, when
    something is served already, only the default is timed again."""
    if winner_of(work.row) is not None:
        publish_trial(work.judged(default, outcome, built), Purpose.DEFAULT, may_win=False)
        return
    rivals = _rivals(work, default)
    artifacts = [artifact for _, artifact in rivals]
    for _ in range(TRIES):  # a further look is cheap, and a slow default may be served for long
        found = bench.line_up(artifacts, limits=work.workshop.limits, sittings=1)
        if all(one.status is not Status.NOISY for one in found.outcomes):
            break
    outcomes = [usable(one) for one in found.outcomes]
    outcome = replace(outcome, timing=found.default or outcome.timing)
    finalists = [
        Finalist(one, artifact, judged=work.judged(tried, one, artifact), purpose=Purpose.FIRST)
        for (tried, artifact), one in zip(rivals, outcomes, strict=True)
    ]
    number = len(finalists)
    finalists.append(
        Finalist(outcome, built, judged=work.judged(default, outcome, built), purpose=Purpose.DEFAULT)
    )
    held = HeldRace(work.claim, work.row, default.route)
    decided = publish_race(held, finalists, found.pairs_with(number))
    report = RaceReport(sittings=found.sittings, seconds=found.spent_s)
    for place, one in enumerate(finalists):
        tried = default if place == number else rivals[place][0]
        entry = Entry(tried.route.name, tried.candidate.label if tried.candidate else "")
        won, equal = place == decided.winner, place in decided.equal
        entry.ran_in_final(one.outcome.status, one.outcome.timing, won=won, equal=equal)
        report.entries.append(entry)
    if rivals:
        keep_report(work, report)


def _rivals(work: ClaimedSlice, default: Tried) -> list[tuple[Tried, BuiltArtifact]]:
    """The ready candidates, built."""
    tries: dict[str, Tried] = {default.digest: default}
    for route, candidate in (*_elsewhere(work), *_nearby(work), *_at_hand(work)):
        tried = Tried(route, candidate)
        tries.setdefault(tried.digest, tried)
    rivals = list(tries.values())[1 : 1 + MOST_RIVALS]
    jobs = [(one.route, one.candidate) for one in rivals if one.candidate is not None]
    built = []
    for tried, artifact in zip(rivals, work.build_all(jobs) if jobs else [], strict=True):
        if isinstance(artifact, Outcome):
            work.keep(tried, artifact)
        else:
            tried.build_s = float(artifact.facts.get("build_s", 0.0))
            built.append((tried, artifact))
    return built


def _at_hand(work: ClaimedSlice) -> Iterator[tuple[Route, Candidate]]:
    route = next((route for route in work.workshop.routes if route.name == AT_HAND), None)
    if route is not None and not work.supports(route):
        candidate = next(candidates_of(work, route), None)
        if candidate is not None:
            yield route, candidate


def _elsewhere(work: ClaimedSlice) -> Iterator[tuple[Route, Candidate]]:
    """The winner for this operator on processors of other sizes, if it needs hardly any building."""
    for candidate in work.favourites:
        route = _possible(work, candidate.route)
        if route is not None and (route.builds_in_process or _is_quick(work, route, candidate.label)):
            yield route, candidate


def _possible(work: ClaimedSlice, name: str) -> Route | None:
    """The route, if it can have this operator."""
    route = next((route for route in work.workshop.routes if route.name == name), None)
    return None if route is None or name in SUBMITTED or work.supports(route) else route


def _is_quick(work: ClaimedSlice, route: Route, label: str) -> bool:
    expected = odds_for(work.row.target_id).expect(about_try(work.row.operator, route.name, label))
    return expected.seconds <= QUICK_S


def _nearby(work: ClaimedSlice) -> Iterator[tuple[Route, Candidate]]:
    """Winners for the nearest known operators, if this one can have them and they need hardly any
    building."""
    for name, label in winners_nearby(work.row):
        route = _possible(work, name)
        if route is None or not _is_quick(work, route, label):
            continue
        alike = [one for one in candidates_of(work, route) if plain_label(one.label) == plain_label(label)]
        if alike:
            yield route, next((one for one in alike if one.label == label), alike[0])


def _default_choices(work: ClaimedSlice, reasons: list[str]) -> Iterator[tuple[Route, Candidate]]:
    """The default, then, if it fails, each other route's most promising candidate. ``reasons`` collects why
    routes cannot; these are kept as trials too."""
    given = work.workshop.default_candidate(work.operator, work.workshop.target, work.setting)
    if given is not None:
        yield given
    for route in work.workshop.routes:
        if given is not None and route.name == given[0].name:
            continue
        if reason := work.supports(route):
            reasons.append(f"{route.name}: {reason}")
            work.keep_absent(route, reason)
            continue
        candidate = next(candidates_of(work, route), None)
        if candidate is not None:
            yield route, candidate
