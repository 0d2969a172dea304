"""Whether something waits for this worker, asked before it does what can wait."""

from __future__ import annotations

from django.db.models import Q

from catalog.models import Miss, MissState
from tuning.kernels import claims as evaluations
from tuning.models import Revalidation
from tuning.queue import claims
from tuning.rechecks import rechecking


def work_waits(target_id: int, reach: Q) -> bool:
    """A miss, an exploration that it may claim, a submitted kernel, or what a job reported."""
    return (
        claims.claimable(target_id, reach).exists()
        or Miss.objects.filter(target=target_id, state=MissState.WAITING).exists()
        or evaluations.waiting(target_id).exists()
        or rechecking.waiting(target_id).exists()
    )


def revalidation_waits(target_id: int) -> bool:
    """Whether bests are to be measured again: only who brings a route that works may claim those."""
    return Revalidation.objects.filter(target=target_id, finished_at=None).exists()
