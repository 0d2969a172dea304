"""Exploring: one slice of one exploration, stage by stage.

*First result*: the default, checked, timed and served. *Contest*: every route's untuned candidates, each
built, checked and timed in turns with the default; who would win is timed again on fresh samples first.
"""

from __future__ import annotations

import logging
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from django.db.models import F
from django.db.models.functions import Now

from catalog.models import Method, MissState
from tuning import claims, scratch
from tuning.claims import Claim, StaleLease, settle_miss
from tuning.clock import DATABASE_GONE
from tuning.conf import conf
from tuning.decide import tuning_slices
from tuning.measure.laboratory import Bench
from tuning.measure.outcome import Outcome, Status
from tuning.models import Exploration, Stage, State, Trial
from tuning.records import known_candidates
from tuning.results import (
    artifact_from_catalogue,
    candidate_digest,
    might_win,
    publish_trial,
    usable,
    winner_of,
    would_win,
)
from tuning.revalidation import held_candidates
from tuning.routes.base import Artifact, Budget, Candidate, Route, Tunable
from tuning.shop import Attempt, Shop, Slice, Stopping

logger = logging.getLogger(__name__)

BUILT_TOGETHER = 8
"""Candidates that are built before the first of them is measured: routes build side by side."""

MOST_CONFIRMED = 3
"""Candidates of one method that are timed at length in one slice."""

MAY_PASS = (Status.LOAD_FAILED, Status.CRASHED, Status.TIMED_OUT, Status.NOISY)
"""What befalls a default by accident too: it gets a second chance at once."""

WORTH_OF_SECOND_LOOK = 0.25  # share of an exploration's worth that timing its noisy candidates again has


class Yielding(Exception):
    """Something more urgent waits: this slice gives its exploration back and goes on later where it was."""


def run_slice(shop: Shop, claim: Claim) -> bool:
    """Work on a claimed exploration until its stage ends or must make room; False when the claim was lost.

    Whatever a candidate does is an outcome; an error in here is kept with the exploration, which is tried
    again, or dead after its tries. Raises Stopping (the claim was given back) and DATABASE_GONE.
    """
    began = time.monotonic()
    try:
        row = claim.load()
        claims.begin(claim, f"{Stage(row.stage).label}: beginning")
        with tempfile.TemporaryDirectory(dir=scratch.folder(shop.home), prefix=scratch.prefix()) as folder:
            end = _STAGES[Stage(row.stage)](Slice(shop, claim, row, Path(folder)))
        spent = F("spent_s") + (time.monotonic() - began)
        claim.update(**_RELEASED, tries=0, spent_s=spent, updated_at=Now(), **end)
        if end["state"] != State.QUEUED:
            _settle(row, end)
        _tell(row, end)
    except (Stopping, Yielding) as reason:
        claims.release(claim, begun=True)
        if isinstance(reason, Stopping):
            raise
    except StaleLease as error:
        logger.warning("%s", error)
        return False
    except DATABASE_GONE:
        raise
    except Exception as error:
        logger.exception("Exploration %s broke.", claim.exploration_id)
        return _give_up(claim, "".join(traceback.format_exception(error)))
    return True


_RELEASED: dict[str, Any] = {"lease_owner": "", "lease_expires_at": None, "doing": ""}


def _give_up(claim: Claim, error: str) -> bool:
    try:
        claims.fail(claim, error)
    except StaleLease:
        return False
    return True


def _settle(row: Exploration, end: dict[str, Any]) -> None:
    unsupported = end["state"] == State.UNSUPPORTED
    reason = end.get("reason") or "Explored, and nothing that may be served came of it."
    settle_miss(row, MissState.UNSUPPORTED if unsupported else MissState.FAILED, reason)


def _tell(row: Exploration, end: dict[str, Any]) -> None:
    """One line a stage, for whoever watches the worker."""
    best = winner_of(row)
    stage = Stage(row.stage).label
    if best is None:
        logger.info("%s of %s: %s", stage, row.operator, end.get("reason") or end["state"])
    else:
        speed = f"{best.route} {best.median_us:.1f} µs, {best.ratio_to_default:.2f}× the default"
        logger.info("%s of %s: %s (%s)", stage, row.operator, speed, best.label)


class NothingWorked(Exception):
    """Every way to a default failed here and now; it may work at the next try."""


def first(work: Slice) -> dict[str, Any]:
    """Check and time the default and publish it: something to serve within seconds."""
    failures: list[str] = []
    reasons: list[str] = []
    for route, candidate in _default_choices(work, reasons):
        attempt = Attempt(route, candidate)
        work.doing(f"{attempt.name}: checking and timing", steps_done=0, steps_total=1)
        outcome, artifact = _try_default(work, attempt)
        if outcome.status in MAY_PASS:
            # Another default would make every ratio another: not for a mishap.
            work.keep(attempt, outcome)
            attempt = Attempt(route, candidate)
            outcome, artifact = _try_default(work, attempt)
        if outcome.ok and artifact is not None:
            publish_trial(work.tried_with(attempt, outcome, artifact), "default")
            return {"state": State.QUEUED, "stage": Stage.CONTEST, "steps_done": 1, "error": ""}
        work.keep(attempt, outcome)
        failures.append(f"{attempt.name}: {outcome.status} ({outcome.detail})")
    if failures:
        raise NothingWorked("; ".join(failures))
    reason = "; ".join(reasons) or "No route is available."
    return {"state": State.UNSUPPORTED, "reason": reason[:500], "finished_at": Now()}


def _try_default(work: Slice, attempt: Attempt) -> tuple[Outcome, Artifact | None]:
    assert attempt.candidate is not None
    built = work.build(attempt.route, attempt.candidate)
    attempt.build_s = time.monotonic() - attempt.began
    if isinstance(built, Outcome):
        return built, None
    with work.bench(built) as bench:
        return usable(bench.default), built


def _default_choices(work: Slice, reasons: list[str]) -> Iterator[tuple[Route, Candidate]]:
    """The default, then, where it fails, each other route's most promising candidate.

    ``reasons`` collects why routes cannot; they are kept as trials too.
    """
    given = work.shop.default_candidate(work.operator, work.shop.target, work.setting)
    if given is not None:
        yield given
    for route in work.shop.routes:
        if given is not None and route.name == given[0].name:
            continue
        if reason := work.supports(route):
            reasons.append(f"{route.name}: {reason}")
            work.keep_absent(route, reason)
            continue
        candidate = next(_candidates(work, route), None)
        if candidate is not None:
            yield route, candidate


def contest(work: Slice) -> dict[str, Any]:
    """Try the untuned candidates of this round's routes that it has not tried yet."""
    default_route, default = default_of(work)
    built = work.build(default_route, default)
    if isinstance(built, Outcome):
        raise NothingWorked(f"The default could not be built again: {built.status} ({built.detail})")
    default_digest = Attempt(default_route, default).digest
    work.doing("contest: setting up", steps_total=len(work.contested))
    with work.bench(built) as bench:
        if not bench.default.ok:
            raise NothingWorked(f"The default failed: {bench.default.status} ({bench.default.detail})")
        done = 0
        for method in Method.values:
            routes = [route for route in work.contested if route.method == method]
            work.doing(f"{method}: naming candidates", steps_done=done)
            try_candidates(work, bench, _untried(work, routes, default_digest), default_digest)
            done += len(routes)
    slices = _slices_deserved(work, bench.default)
    all_steps = {"steps_done": len(work.contested)}
    if [Status.NOISY] in work.history.values():
        # Later, when others had their turn and the host may be quieter.
        return {**all_steps, "state": State.QUEUED, "worth": F("worth") * WORTH_OF_SECOND_LOOK, "error": ""}
    if not slices:
        return {"state": State.DONE, "max_tuning_slices": 0, "finished_at": Now(), "error": "", **all_steps}
    return {**all_steps, "stage": Stage.TUNE, "max_tuning_slices": slices, "error": "", **_first_slice(work)}


def default_of(work: Slice) -> tuple[Route, Candidate]:
    """What served as the default in the latest first result (a further round has none of its own)."""
    trial = (
        Trial.objects.filter(exploration=work.row, stage=Stage.FIRST, status=Status.OK)
        .order_by("-pk")
        .first()
    )
    for route in work.shop.routes:
        if trial is not None and route.name == trial.route:
            return route, Candidate(route.name, trial.candidate, trial.label)
    given = work.shop.default_candidate(work.operator, work.shop.target, work.setting)
    if given is None:
        raise NothingWorked("This worker does not have the route that made the default.")
    return given


def _untried(work: Slice, routes: Sequence[Route], default_digest: str) -> Iterator[Attempt]:
    """What these routes offer and this round has not tried yet, the routes taking turns."""
    offers = []
    for route in routes:
        if reason := work.supports(route):
            if Attempt(route, None).digest not in work.tried:
                work.keep_absent(route, reason)
            continue
        offers.append(map(partial(Attempt, route), _candidates(work, route)))
    known = work.tried | {default_digest}
    for turn in zip_longest(*offers):
        for attempt in turn:
            if attempt is not None and attempt.digest not in known:
                known.add(attempt.digest)
                yield attempt


def try_candidates(work: Slice, bench: Bench, attempts: Iterable[Attempt], default_digest: str) -> None:
    """Try the candidates of one method. Whichever came out best is timed again, at length, before it may win.

    What fails is kept, what is not ahead of who is served is published at once. Of those ahead the best run
    in turns with him, until none is left that is ahead of who is served then; the others lead their routes
    at most. Where room must be made before, what was ahead is tried again later.
    """
    ahead: list[tuple[Attempt, Outcome, Artifact]] = []
    for attempt, built in _built(work, attempts):
        make_room(work)
        work.doing(attempt.name)
        outcome, artifact = _measure(work, bench, attempt, built)
        if artifact is None or not outcome.ok:
            work.keep(attempt, outcome)
        elif might_win(outcome, winner_of(work.row)):
            ahead.append((attempt, outcome, artifact))
        else:
            publish_trial(work.tried_with(attempt, outcome, artifact), "contest")
    ahead.sort(key=lambda entry: entry[1].timing.ratio_to_default if entry[1].timing else 0.0)
    for _ in range(MOST_CONFIRMED):
        if not ahead or not might_win(ahead[-1][1], winner_of(work.row)):
            break
        attempt, _, artifact = ahead.pop()
        _confirm(work, bench, attempt, artifact, default_digest)
    for attempt, outcome, artifact in ahead:
        wins = would_win(outcome, winner_of(work.row))
        publish_trial(work.tried_with(attempt, outcome, artifact), "contest", may_lead=not wins)


def _built(work: Slice, attempts: Iterable[Attempt]) -> Iterator[tuple[Attempt, Artifact | Outcome]]:
    """Attempts with what their builds came to, a few builds ahead of the measurements."""
    remaining = iter(attempts)
    while batch := list(islice(remaining, BUILT_TOGETHER)):
        make_room(work)
        names = dict.fromkeys(attempt.route.name for attempt in batch)
        work.doing(f"{', '.join(names)}: building")
        candidates = [(one.route, one.candidate) for one in batch if one.candidate is not None]
        yield from zip(batch, work.build_all(candidates), strict=True)


def _measure(
    work: Slice, bench: Bench, attempt: Attempt, built: Artifact | Outcome
) -> tuple[Outcome, Artifact | None]:
    if isinstance(built, Outcome):
        attempt.took_s = built.build_s
        return built, None
    attempt.build_s = float(built.facts.get("build_s", 0.0))
    began = time.monotonic()
    outcome = usable(bench.measure(built, work.shop.limits))
    attempt.took_s = attempt.build_s + time.monotonic() - began
    return outcome, built


def _confirm(work: Slice, bench: Bench, attempt: Attempt, artifact: Artifact, default_digest: str) -> None:
    """Once more, on fresh inputs and samples, in turns with who is served: luck must not win."""
    work.doing(f"{attempt.name}: confirming")
    began, winner, held = time.monotonic(), winner_of(work.row), None
    same = winner and candidate_digest(winner.route, winner.implementation.candidate) == default_digest
    if winner and not same and not work.shop.why_unsafe(winner.route):
        folder = work.workdir / f"held-{attempt.digest[:12]}"
        held = artifact_from_catalogue(winner.implementation.artifact, folder)
    outcome = usable(bench.confirm(artifact, held, work.shop.limits))
    attempt.took_s = (attempt.took_s or 0.0) + time.monotonic() - began
    if outcome.ok:
        publish_trial(work.tried_with(attempt, outcome, artifact), "confirm", winner)
    else:
        work.keep(attempt, outcome)


def make_room(work: Slice) -> None:
    """Stop here when an exploration of a lower stage waits: first results before everything else."""
    if claims.claimable(work.row.target_id, work.shop.reach()).filter(stage__lt=work.row.stage).exists():
        raise Yielding


def _candidates(work: Slice, route: Route) -> Iterator[Candidate]:
    """A route's candidates; an error of the route is kept as a trial, and the other routes go on."""
    budget = Budget(seconds=conf().candidates_s)
    try:
        if work.row.stage == Stage.CONTEST:
            yield from held_candidates(work.row, route.name)
            yield from known_candidates(work, route)
        yield from route.candidates(work.operator, work.shop.target, work.setting, budget)
    except (*DATABASE_GONE, StaleLease, Stopping, Yielding):
        raise
    except Exception as error:
        logger.exception("Route %s broke while naming candidates.", route.name)
        work.keep(Attempt(route, None), Outcome(Status.BUILD_FAILED, f"It named no candidates: {error!r}"))


def _slices_deserved(work: Slice, default: Outcome) -> int:
    tunable = any(isinstance(route, Tunable) and not work.supports(route) for route in work.shop.routes)
    if not conf().tuning or not tunable or default.timing is None or work.row.routes:
        return 0
    most, default_us = conf().tuning_slices, default.timing.median_us
    return tuning_slices(work.row.operator.op_type, default_us, work.row.calls, most)


def _first_slice(work: Slice) -> dict[str, Any]:
    from tuning.tune import next_slice

    return next_slice(work)


def _tune(work: Slice) -> dict[str, Any]:
    from tuning.tune import tune

    return tune(work)


_STAGES = {Stage.FIRST: first, Stage.CONTEST: contest, Stage.TUNE: _tune}
