"""Stage 1, the contest: every route's untuned candidates, each built, checked and timed in turns with the
default; who would win is timed again on fresh samples first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, zip_longest

from django.db.models import F

from catalog.models import Method
from tuning.conf import conf
from tuning.explore.candidates import bench_of_default, candidates_of, make_room
from tuning.explore.plan import next_slice
from tuning.explore.results import (
    Tried,
    artifact_from_catalogue,
    candidate_digest,
    might_win,
    publish_trial,
    usable,
    winner_of,
    would_win,
)
from tuning.explore.stage_end import StageEnd
from tuning.explore.workshop import ClaimedSlice
from tuning.measure.laboratory import Bench
from tuning.measure.outcome import Outcome, Status
from tuning.models import Stage, State
from tuning.queue.decide import tuning_slices
from tuning.routes.base import BuiltArtifact, Route, Tunable

BUILT_TOGETHER = 8
"""Candidates that are built before the first of them is measured: routes build side by side."""


MOST_CONFIRMED = 3
"""Candidates of one method that are timed at length in one slice."""


WORTH_OF_SECOND_LOOK = 0.25  # share of an exploration's worth that timing its noisy candidates again has


def contest(work: ClaimedSlice) -> StageEnd:
    """Try the untuned candidates of this round's routes that it has not tried yet."""
    work.doing("contest: setting up", steps_total=len(work.contested))
    with bench_of_default(work) as (bench, default_digest):
        done = 0
        for method in Method.values:
            routes = [route for route in work.contested if route.method == method]
            work.doing(f"{method}: naming candidates", steps_done=done)
            try_candidates(work, bench, _untried(work, routes, default_digest), default_digest)
            done += len(routes)
    slices = _slices_deserved(work, bench.default)
    all_steps = len(work.contested)
    if [Status.NOISY] in work.history.values():
        # Later, when others had their turn and the host may be quieter.
        return StageEnd(State.QUEUED, worth=F("worth") * WORTH_OF_SECOND_LOOK, steps_done=all_steps)
    if not slices:
        return StageEnd(State.DONE, steps_done=all_steps, max_tuning_slices=0)
    end = next_slice(work)
    return replace(
        end,
        stage=end.stage if end.stage is not None else Stage.TUNE,
        steps_done=all_steps,
        max_tuning_slices=slices if end.max_tuning_slices is None else end.max_tuning_slices,
    )


def _untried(work: ClaimedSlice, routes: Sequence[Route], default_digest: str) -> Iterator[Tried]:
    """What these routes offer and this round has not tried yet, the routes taking turns."""
    offers = []
    for route in routes:
        if reason := work.supports(route):
            if Tried(route, None).digest not in work.tried:
                work.keep_absent(route, reason)
            continue
        offers.append(map(partial(Tried, route), candidates_of(work, route)))
    known = work.tried | {default_digest}
    for turn in zip_longest(*offers):
        for tried in turn:
            if tried is not None and tried.digest not in known:
                known.add(tried.digest)
                yield tried


def try_candidates(work: ClaimedSlice, bench: Bench, tries: Iterable[Tried], default_digest: str) -> None:
    """Try the candidates of one method. Whichever came out best is timed again, at length, before it may win.

    What fails is kept, what is not ahead of who is served is published at once. Of those ahead the best run
    in turns with him, until none is left that is ahead of who is served then; the others lead their routes
    at most. Where room must be made before, what was ahead is tried again later.
    """
    ahead: list[tuple[Tried, Outcome, BuiltArtifact]] = []
    for tried, built in _built(work, tries):
        make_room(work)
        work.doing(tried.name)
        outcome, artifact = _measure(work, bench, tried, built)
        if artifact is None or not outcome.ok:
            work.keep(tried, outcome)
        elif might_win(outcome, winner_of(work.row)):
            ahead.append((tried, outcome, artifact))
        else:
            publish_trial(work.judged(tried, outcome, artifact), "contest")
    ahead.sort(key=lambda entry: entry[1].timing.ratio_to_default if entry[1].timing else 0.0)
    for _ in range(MOST_CONFIRMED):
        if not ahead or not might_win(ahead[-1][1], winner_of(work.row)):
            break
        tried, _, artifact = ahead.pop()
        _confirm(work, bench, tried, artifact, default_digest)
    for tried, outcome, artifact in ahead:
        wins = would_win(outcome, winner_of(work.row))
        publish_trial(work.judged(tried, outcome, artifact), "contest", may_lead=not wins)


def _built(work: ClaimedSlice, tries: Iterable[Tried]) -> Iterator[tuple[Tried, BuiltArtifact | Outcome]]:
    """Tries with what their builds came to, a few builds ahead of the measurements."""
    remaining = iter(tries)
    while batch := list(islice(remaining, BUILT_TOGETHER)):
        make_room(work)
        names = dict.fromkeys(tried.route.name for tried in batch)
        work.doing(f"{', '.join(names)}: building")
        candidates = [(one.route, one.candidate) for one in batch if one.candidate is not None]
        yield from zip(batch, work.build_all(candidates), strict=True)


def _measure(
    work: ClaimedSlice, bench: Bench, tried: Tried, built: BuiltArtifact | Outcome
) -> tuple[Outcome, BuiltArtifact | None]:
    if isinstance(built, Outcome):
        tried.took_s = built.build_s
        return built, None
    tried.build_s = float(built.facts.get("build_s", 0.0))
    began = time.monotonic()
    outcome = usable(bench.measure(built, work.workshop.limits))
    tried.took_s = tried.build_s + time.monotonic() - began
    return outcome, built


def _confirm(
    work: ClaimedSlice, bench: Bench, tried: Tried, artifact: BuiltArtifact, default_digest: str
) -> None:
    """Once more, on fresh inputs and samples, in turns with who is served: luck must not win."""
    work.doing(f"{tried.name}: confirming")
    began, winner, held = time.monotonic(), winner_of(work.row), None
    same = winner and candidate_digest(winner.route, winner.implementation.candidate) == default_digest
    if winner and not same and not work.workshop.why_unsafe(winner.route):
        folder = work.workdir / f"held-{tried.digest[:12]}"
        held = artifact_from_catalogue(winner.implementation.artifact, folder)
    outcome = usable(bench.confirm(artifact, held, work.workshop.limits))
    tried.took_s = (tried.took_s or 0.0) + time.monotonic() - began
    if outcome.ok:
        publish_trial(work.judged(tried, outcome, artifact), "confirm", winner)
    else:
        work.keep(tried, outcome)


def _slices_deserved(work: ClaimedSlice, default: Outcome) -> int:
    tunable = any(isinstance(route, Tunable) and not work.supports(route) for route in work.workshop.routes)
    if not conf().tuning or not tunable or default.timing is None or work.row.routes:
        return 0
    most, default_us = conf().tuning_slices, default.timing.median_us
    return tuning_slices(work.row.operator.op_type, default_us, work.row.calls, most)
