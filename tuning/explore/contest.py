"""Stage 1, the contest: every route's untuned candidates in one race (``race``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest

from django.db.models import F

from tuning.conf import conf
from tuning.explore.candidates import bench_of_default, candidates_of
from tuning.explore.plan import next_slice
from tuning.explore.race.heats import expected_saving_us, hold_opening, hold_race, sure_ones
from tuning.explore.results import Tried
from tuning.explore.stage_end import StageEnd
from tuning.explore.trial_history import odds_for
from tuning.explore.workshop import ClaimedSlice
from tuning.measure.laboratory import SUBMITTED
from tuning.measure.outcome import Outcome, Status
from tuning.models import Stage, State
from tuning.queue.decide import tuning_slices
from tuning.routes.base import Route, Tunable

LEAST_SAVING_US = 1e-3  # of one call: a contest that promises nothing is held when nothing else waits
WORTH_OF_SECOND_LOOK = 0.25  # share of an exploration's worth that timing its noisy candidates again has


def contest(work: ClaimedSlice) -> StageEnd:
    """Try the untuned candidates of this round's routes that it has not tried yet."""
    if not work.row.opened:
        return _open(work)
    work.doing("contest: setting up", steps_total=len(work.contested))
    with bench_of_default(work) as (bench, default_digest):
        work.doing("contest: naming candidates")
        tries = list(_untried(work, work.contested, default_digest))
        rest = hold_race(work, bench, tries, default_digest)
    if rest:
        return StageEnd(State.QUEUED, worth=F("worth") * rest)
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


def _open(work: ClaimedSlice) -> StageEnd:
    """The contest's first slice, of a second or two: the candidates that past trials show to be promising. It
    comes before the rest of any other contest, since what that rest may save is known better afterwards."""
    work.doing("contest: opening", steps_total=len(work.contested))
    given, odds = work.known_default(), odds_for(work.row.target_id)
    # Quick ones were proved before anything was opened (``tuning.worker``); a slow one is not proved while
    # others wait for their opening.
    proved = [route for route in work.contested if not work.workshop.proved(route)]
    met = [route for route in proved if odds.has_met(route.name) or route.name in SUBMITTED]
    tries = list(_untried(work, met, Tried(*given).digest if given else ""))
    if sure := sure_ones(work, tries):
        with bench_of_default(work) as (bench, default_digest):
            hold_opening(work, bench, sure, default_digest)
    waiting = [one for one in tries if one not in sure]
    waiting += [Tried(route, None) for route in work.contested if route not in met]
    saving_us = max(expected_saving_us(work, waiting), LEAST_SAVING_US)
    return StageEnd(State.QUEUED, opened=True, worth=F("calls") * saving_us)


def _untried(work: ClaimedSlice, routes: Sequence[Route], default_digest: str) -> Iterator[Tried]:
    """These routes' candidates that this round has not tried yet, the routes taking turns."""
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


def _slices_deserved(work: ClaimedSlice, default: Outcome) -> int:
    tunable = any(isinstance(route, Tunable) and not work.supports(route) for route in work.workshop.routes)
    if not conf().tuning or not tunable or default.timing is None or work.row.routes:
        return 0
    most, default_us = conf().tuning_slices, default.timing.median_us
    return tuning_slices(work.row.operator.op_type, default_us, work.row.calls, most)
