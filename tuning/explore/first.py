"""Stage 0, the first result: the default, checked, timed and served."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tuning.explore.candidates import NothingWorked, candidates_of
from tuning.explore.results import (
    Tried,
    publish_trial,
    usable,
)
from tuning.explore.stage_end import StageEnd
from tuning.explore.workshop import ClaimedSlice
from tuning.measure.outcome import Outcome, Status
from tuning.models import Stage, State
from tuning.routes.base import BuiltArtifact, Candidate, Route

MAY_PASS = (Status.LOAD_FAILED, Status.CRASHED, Status.TIMED_OUT, Status.NOISY)
"""What befalls a default by accident too: it gets a second chance at once."""


def first(work: ClaimedSlice) -> StageEnd:
    """Check and time the default and publish it: something to serve within seconds."""
    failures: list[str] = []
    reasons: list[str] = []
    for route, candidate in _default_choices(work, reasons):
        tried = Tried(route, candidate)
        work.doing(f"{tried.name}: checking and timing", steps_done=0, steps_total=1)
        outcome, artifact = _try_default(work, tried)
        if outcome.status in MAY_PASS:
            # Another default would make every ratio another: not for a mishap.
            work.keep(tried, outcome)
            tried = Tried(route, candidate)
            outcome, artifact = _try_default(work, tried)
        if outcome.ok and artifact is not None:
            publish_trial(work.judged(tried, outcome, artifact), "default")
            return StageEnd(State.QUEUED, Stage.CONTEST, steps_done=1)
        work.keep(tried, outcome)
        failures.append(f"{tried.name}: {outcome.status} ({outcome.detail})")
    if failures:
        raise NothingWorked("; ".join(failures))
    return StageEnd(State.UNSUPPORTED, reason="; ".join(reasons) or "No route is available.")


def _try_default(work: ClaimedSlice, tried: Tried) -> tuple[Outcome, BuiltArtifact | None]:
    assert tried.candidate is not None
    built = work.build(tried.route, tried.candidate)
    tried.build_s = time.monotonic() - tried.began
    if isinstance(built, Outcome):
        return built, None
    with work.bench(built) as bench:
        return usable(bench.default), built


def _default_choices(work: ClaimedSlice, reasons: list[str]) -> Iterator[tuple[Route, Candidate]]:
    """The default, then, where it fails, each other route's most promising candidate.

    ``reasons`` collects why routes cannot; they are kept as trials too.
    """
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
