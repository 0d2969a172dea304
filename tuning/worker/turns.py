"""Whose turn it is on one worker: all work that waits for it, and how each kind is claimed and done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from catalog.models import Miss, MissState
from tuning.explore.workshop import Workshop
from tuning.kernels import claims as evaluations
from tuning.kernels.evaluating import run_evaluation
from tuning.models import Revalidation
from tuning.queue.held import HeldRow
from tuning.queue.shares import payer, shares, stages_waiting
from tuning.queue.sharing import Work, WorkTurn, next_turn, place_of
from tuning.rechecks import rechecking
from tuning.uploads import claims as uploads
from tuning.uploads.running import run_upload


@dataclass(frozen=True)
class SingleWork:
    """A kind of work that is claimed one by one. ``whose``: the path from its rows to their organisation;
    ``claim`` takes the worker's name, its target and the organisation; ``run`` does what was claimed."""

    whose: str
    waiting: Callable[[int], QuerySet[Any]]
    claim: Callable[[str, int, Q], HeldRow[Any] | None]
    run: Callable[[Workshop, Any], bool]
    measures: bool = True  # on the device: not while its queue is paused, or it is unwell


SINGLES: Mapping[Work, SingleWork] = {
    Work.UPLOAD: SingleWork("organisation", uploads.waiting, uploads.claim, run_upload, measures=False),
    Work.EVALUATION: SingleWork(evaluations.WHOSE, evaluations.waiting, evaluations.claim, run_evaluation),
    Work.RECHECK: SingleWork("asked_by", rechecking.waiting, rechecking.claim, rechecking.run_recheck),
}


def waiting(target_id: int, reach: Q, *, measures: bool = True) -> list[WorkTurn]:
    """Which organisations have which kind of work waiting for a worker of this target. ``measures``: it may
    measure."""
    found = stages_waiting(target_id, reach) if measures else []
    for work, kind in SINGLES.items():
        if measures or not kind.measures:
            whose = kind.waiting(target_id).order_by().values_list(kind.whose, flat=True).distinct()
            found += [WorkTurn(payer(number), work) for number in whose]
    return found


def turn_for(
    target_id: int, reach: Q, *, measures: bool = True, but_not: Collection[WorkTurn] = ()
) -> WorkTurn | None:
    """The next turn; None if nothing waits."""
    found = [one for one in waiting(target_id, reach, measures=measures) if one not in but_not]
    return next_turn(found, shares({one.organisation for one in found})) if found else None


def gives_way_to_others(held: WorkTurn, target_id: int, reach: Q) -> bool:
    """Whether waiting work goes before more of what is held."""
    found = waiting(target_id, reach)
    known = shares({held.organisation, *(one.organisation for one in found)})
    return any(place_of(one, known) < place_of(held, known) for one in found)


def work_waits(target_id: int, reach: Q) -> bool:
    """Whether anything waits for this worker, undecided misses included."""
    return (
        bool(waiting(target_id, reach))
        or Miss.objects.filter(target=target_id, state=MissState.WAITING).exists()
    )


def revalidation_waits(target_id: int) -> bool:
    """Whether bests are to be measured again: only a worker with a working route may claim those."""
    return Revalidation.objects.filter(target=target_id, finished_at=None).exists()
