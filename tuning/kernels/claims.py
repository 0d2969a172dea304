"""Claims on evaluations: compare-and-swap, a lease on the database's clock, a fence on every write."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F, Max, Q, QuerySet
from django.db.models.functions import Now

from catalog.steps import first_that_works, held_back
from tuning.kernels.models import EvaluationState, KernelEvaluation, KernelTry, TryStatus
from tuning.queue.claims import EVERYTHING
from tuning.queue.held import UNHELD, HeldRow, take

logger = logging.getLogger(__name__)

MAX_TRIES = 3
CLAIMING = "claiming a kernel's evaluation"
WHOSE = "version__kernel__organisation"
"""Of an evaluation: the organisation whose share of the workers it takes."""


@dataclass(frozen=True, slots=True)
class EvaluationClaim(HeldRow[KernelEvaluation]):
    """One evaluation held by one worker process."""

    model = KernelEvaluation
    related = ("version__kernel__organisation", "operator", "target", "setting")


def waiting(target_id: int | None = None) -> QuerySet[KernelEvaluation]:
    """Evaluations that a worker may claim, the oldest first; those whose worker fell silent count again."""
    silent = Q(state=EvaluationState.RUNNING, lease_expires_at__lt=Now())
    rows = KernelEvaluation.objects.filter(Q(state=EvaluationState.QUEUED) | silent)
    return (rows if target_id is None else rows.filter(target_id=target_id)).order_by("pk")


def claim(owner: str, target_id: int, of: Q = EVERYTHING) -> EvaluationClaim | None:
    """Take the oldest evaluation that waits for this target (``of``: of some organisation); None when there
    is none."""
    needed = ("pk", "fence", "state", "version", "worker", "doing", "started_at")
    rows = waiting(target_id).filter(of).exclude(pk__in=held_back(CLAIMING)).only(*needed)

    def claimed(row: KernelEvaluation) -> EvaluationClaim | None:
        begun: dict[str, Any] = {"tries": F("tries") + 1, "doing": "claimed", "started_at": Now()}
        with transaction.atomic():
            fence = take(row, owner, worker=owner[:100], **begun)
            if fence and row.state == EvaluationState.RUNNING:
                _keep_silent(row)
        return EvaluationClaim(row.pk, fence) if fence else None

    return first_that_works(CLAIMING, rows[:5], claimed)


def keep_try(row: KernelEvaluation, fence: int, **columns: Any) -> KernelTry:
    """Add one try to what is known of an evaluation; ``columns`` say how it ended."""
    number = KernelTry.objects.filter(evaluation=row.pk).aggregate(most=Max("number"))["most"] or 0
    return KernelTry.objects.create(
        evaluation_id=row.pk, version_id=row.version_id, number=number + 1, fence=fence, **columns
    )


def _keep_silent(row: KernelEvaluation) -> None:
    """The try of a worker that fell silent, kept by whoever takes over."""
    detail = f"its worker fell silent while {row.doing or 'it was tried'}"
    keep_try(
        row,
        row.fence,
        status=TryStatus.DIED,
        detail=detail,
        worker=row.worker,
        started_at=row.started_at,
    )


def release(held: EvaluationClaim) -> None:
    """Give it back undone: the worker stops."""
    held.row().update(**UNHELD, state=EvaluationState.QUEUED, tries=F("tries") - 1)
