"""Exploring: one slice of one exploration, by its stage: first result, contest, tuning."""

from __future__ import annotations

import errno
import logging
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from catalog import failpoints
from catalog.models import MissState
from tuning.explore import scratch
from tuning.explore.candidates import Yielding
from tuning.explore.contest import contest
from tuning.explore.first import first
from tuning.explore.results import winner_of
from tuning.explore.stage_end import StageEnd
from tuning.explore.tune import tune
from tuning.explore.workshop import ClaimedSlice, DiskFull, Stopping, Workshop
from tuning.models import Exploration, Stage, State
from tuning.queue import claims
from tuning.queue.claims import Claim, StaleLease, settle_miss
from tuning.queue.clock import DATABASE_GONE
from tuning.queue.reached import tell_stage

logger = logging.getLogger(__name__)


def run_slice(workshop: Workshop, claim: Claim) -> bool:
    """Work on a claimed exploration until its stage ends or must make room; False when the claim was lost.

    Whatever a candidate does is an outcome; an error in here is kept with the exploration, which is tried
    again, or dead after its tries. Raises Stopping and DiskFull (the claim was given back) and
    DATABASE_GONE.
    """
    began = time.monotonic()
    try:
        row = claim.load()
        claims.begin(claim, f"{Stage(row.stage).label}: beginning")
        failpoints.at("claimed", **asdict(claim))
        with tempfile.TemporaryDirectory(
            dir=scratch.folder(workshop.home), prefix=scratch.prefix()
        ) as folder:
            end = _STAGES[Stage(row.stage)](ClaimedSlice(workshop, claim, row, Path(folder)))
        spent = F("spent_s") + (time.monotonic() - began)
        with transaction.atomic():
            claim.update(**claims.UNHELD, tries=0, spent_s=spent, updated_at=Now(), **end.columns())
            if end.state != State.QUEUED:
                _settle(row, end)
            tell_stage(row.pk)
            failpoints.at("settling", **asdict(claim))
        failpoints.at("settled", **asdict(claim))
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
        if _is_of_a_full_disk(error):
            claims.release(claim, begun=True)
            raise DiskFull(f"No space is left where this worker works or stores ({error}).") from error
        logger.exception("Exploration %s broke.", claim.exploration_id)
        return _give_up(claim, "".join(traceback.format_exception(error)))
    return True


def _is_of_a_full_disk(error: BaseException | None) -> bool:
    """Whatever was raised on the way from there."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def _give_up(claim: Claim, error: str) -> bool:
    try:
        claims.fail(claim, error)
    except StaleLease:
        return False
    return True


def _settle(row: Exploration, end: StageEnd) -> None:
    unsupported = end.state == State.UNSUPPORTED
    reason = end.reason or "Explored, and nothing that may be served came of it."
    settle_miss(row, MissState.UNSUPPORTED if unsupported else MissState.FAILED, reason)


def _tell(row: Exploration, end: StageEnd) -> None:
    """One line a stage, for whoever watches the worker."""
    best = winner_of(row)
    stage = Stage(row.stage).label
    if best is None:
        logger.info("%s of %s: %s", stage, row.operator, end.reason or end.state)
    else:
        speed = f"{best.route} {best.median_us:.1f} µs, {best.ratio_to_default:.2f}× the default"
        logger.info("%s of %s: %s (%s)", stage, row.operator, speed, best.label)


_STAGES = {Stage.FIRST: first, Stage.CONTEST: contest, Stage.TUNE: tune}
