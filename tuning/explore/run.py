"""Exploring: one slice of one exploration, by its stage: first result, contest, tuning."""

from __future__ import annotations

import logging
import time
from functools import partial

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from catalog import failpoints
from catalog.default_names import default_name
from catalog.models import MissState
from tuning.explore import scratch
from tuning.explore.candidates import Yielding
from tuning.explore.contest import contest
from tuning.explore.first import first
from tuning.explore.results import winner_of
from tuning.explore.stage_end import StageEnd
from tuning.explore.tune import tune
from tuning.explore.workshop import ClaimedSlice, Workshop
from tuning.models import Exploration, Stage, State
from tuning.queue import claims
from tuning.queue.claims import Claim, settle_miss
from tuning.queue.held import UNHELD, work_on
from tuning.queue.reached import tell_stage
from tuning.telling import told

logger = logging.getLogger(__name__)


def run_slice(workshop: Workshop, claim: Claim) -> bool:
    """Work on a claimed exploration until its stage ends or must make room; False if the claim was lost.
    Whatever a candidate does is an outcome. An error of our own is kept with the exploration as a sentence
    (the log has its traceback), and it is tried again, or dead after its tries. Raises Stopping and DiskFull
    (the claim was given back) and DATABASE_GONE."""
    give_back = partial(claims.release, claim, begun=True)

    def work() -> None:
        try:
            _explore(workshop, claim)
        except Yielding:
            give_back()

    def fail(error: Exception) -> None:
        claims.fail(claim, told(error, claim))

    return work_on(claim, work, give_back, fail)


def _explore(workshop: Workshop, claim: Claim) -> None:
    began = time.monotonic()
    row = claim.load()
    claims.begin(claim, f"{Stage(row.stage).label}: beginning")
    held = {"exploration_id": claim.pk, "fence": claim.fence}
    failpoints.at("claimed", **held)
    with scratch.folder_of_work(workshop.home) as folder:
        end = _STAGES[Stage(row.stage)](ClaimedSlice(workshop, claim, row, folder))
    spent = F("spent_s") + (time.monotonic() - began)
    with transaction.atomic():
        claim.update(**UNHELD, tries=0, spent_s=spent, updated_at=Now(), **end.columns())
        if end.state != State.QUEUED:
            _settle(row, end)
        tell_stage(row.pk)
        failpoints.at("settling", **held)
    failpoints.at("settled", **held, state=end.state)
    _tell(row, end)


def _settle(row: Exploration, end: StageEnd) -> None:
    unsupported = end.state == State.UNSUPPORTED
    reason = end.reason or "Explored, and nothing that may be served came of it."
    settle_miss(row, MissState.UNSUPPORTED if unsupported else MissState.FAILED, reason)


def _tell(row: Exploration, end: StageEnd) -> None:
    """One line a stage, for people who watch the worker."""
    best, stage = winner_of(row), Stage(row.stage)
    if best is None:
        logger.info("%s of %s: %s", stage.label, row.operator, end.reason or end.state)
    else:
        default = default_name(best.measurement.default_route)
        speed = f"{best.route} {best.median_us:.1f} µs, {best.ratio_to_default:.2f}× the {default}"
        logger.info("%s of %s: %s (%s)", stage.label, row.operator, speed, best.label)


_STAGES = {Stage.FIRST: first, Stage.CONTEST: contest, Stage.TUNE: tune}
