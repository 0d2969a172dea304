"""Claims on evaluations: compare-and-swap, a lease on the database's clock, a fence on every write."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from tuning.conf import conf
from tuning.kernels.models import EvaluationState, KernelEvaluation
from tuning.queue.claims import UNHELD, StaleLease
from tuning.queue.clock import now_in

logger = logging.getLogger(__name__)

MAX_TRIES = 3


@dataclass(frozen=True, slots=True)
class EvaluationClaim:
    """One evaluation held by one worker process; a keeper renews it as it does a claim on an exploration."""

    evaluation_id: int
    fence: int

    def row(self) -> QuerySet[KernelEvaluation]:
        return KernelEvaluation.objects.filter(
            pk=self.evaluation_id, fence=self.fence, state=EvaluationState.RUNNING
        )

    def update(self, **values: Any) -> None:
        """Write to the evaluation; raises StaleLease, and writes nothing, when the claim was lost."""
        if self.row().update(**values) != 1:
            raise StaleLease(f"Evaluation {self.evaluation_id} is no longer held under fence {self.fence}.")

    def load(self) -> KernelEvaluation:
        related = ("version__kernel__organisation", "operator", "target", "setting")
        found = self.row().select_related(*related).first()
        if found is None:
            raise StaleLease(f"Evaluation {self.evaluation_id} is no longer held under fence {self.fence}.")
        return found


def waiting(target_id: int | None = None) -> QuerySet[KernelEvaluation]:
    """Evaluations that a worker may claim, the oldest first; those whose worker fell silent count again."""
    silent = Q(state=EvaluationState.RUNNING, lease_expires_at__lt=Now())
    rows = KernelEvaluation.objects.filter(Q(state=EvaluationState.QUEUED) | silent)
    return (rows if target_id is None else rows.filter(target_id=target_id)).order_by("pk")


def claim(owner: str, target_id: int) -> EvaluationClaim | None:
    """Take the oldest evaluation that waits for this target; None when there is none."""
    for row in waiting(target_id).only("pk", "fence", "state")[:5]:
        unchanged: dict[str, Any] = {"pk": row.pk, "fence": row.fence, "state": row.state}
        if row.state == EvaluationState.RUNNING:
            unchanged["lease_expires_at__lt"] = Now()  # it may have been renewed since we looked
        taken = KernelEvaluation.objects.filter(**unchanged).update(
            state=EvaluationState.RUNNING,
            fence=F("fence") + 1,
            tries=F("tries") + 1,
            lease_owner=owner[:100],
            lease_expires_at=now_in(conf().lease_s),
            worker=owner[:100],
            doing="claimed",
            started_at=Now(),
        )
        if taken:
            return EvaluationClaim(row.pk, row.fence + 1)
    return None


def release(held: EvaluationClaim) -> None:
    """Give it back undone: the worker stops."""
    held.row().update(**UNHELD, state=EvaluationState.QUEUED, tries=F("tries") - 1)
