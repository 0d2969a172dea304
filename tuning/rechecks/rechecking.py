"""Proving what clients reported again: in the sandbox, by a worker of its target, from the catalogue's own
artifact. What fails there is withdrawn; what does not stays."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from catalog.best.withdrawing import set_aside
from catalog.errors import DamagedArtifact, StoreError, UnvouchedArtifact
from catalog.models import Implementation
from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting
from opatlas.load.needs import check_features, check_versions
from tuning.conf import conf
from tuning.explore import scratch
from tuning.explore.knowledge import found_wrong
from tuning.explore.results import WRONG, artifact_from_catalogue
from tuning.explore.workshop import Stopping, Workshop
from tuning.measure.outcome import Status
from tuning.models import Recheck, RecheckState
from tuning.queue.claims import StaleLease
from tuning.queue.clock import DATABASE_GONE, now_in
from tuning.routes.base import BuiltArtifact, Candidate

logger = logging.getLogger(__name__)

MAX_TRIES = 3
MISHAPS = (Status.CRASHED, Status.LOAD_FAILED, Status.TIMED_OUT)
"""What befalls a good one by accident too: it is proved once more at once, and then believed."""
_UNHELD: Mapping[str, Any] = {"lease_owner": "", "lease_expires_at": None}


@dataclass(frozen=True, slots=True)
class RecheckClaim:
    """One recheck held by one worker process."""

    recheck_id: int
    fence: int

    def row(self) -> QuerySet[Recheck]:
        return Recheck.objects.filter(pk=self.recheck_id, fence=self.fence, state=RecheckState.RUNNING)

    def end(self, state: RecheckState, detail: str) -> None:
        """Raises StaleLease, and writes nothing, when the claim was lost."""
        if self.row().update(**_UNHELD, state=state, detail=detail[:500], finished_at=Now()) != 1:
            raise StaleLease(f"Recheck {self.recheck_id} is no longer held under fence {self.fence}.")


def waiting(target_id: int) -> QuerySet[Recheck]:
    """What a worker may claim, the oldest first; those whose worker fell silent count again."""
    silent = Q(state=RecheckState.RUNNING, lease_expires_at__lt=Now())
    rows = Recheck.objects.filter(Q(state=RecheckState.WAITING) | silent, target=target_id)
    return rows.order_by("asked_at", "pk")


def claim(owner: str, target_id: int) -> RecheckClaim | None:
    """Take the oldest that waits for this target; None where there is none."""
    for row in waiting(target_id)[:5]:
        unchanged: dict[str, Any] = {"pk": row.pk, "fence": row.fence, "state": row.state}
        if row.state == RecheckState.RUNNING:
            unchanged["lease_expires_at__lt"] = Now()  # it may have been renewed since we looked
        taken = Recheck.objects.filter(**unchanged).update(
            state=RecheckState.RUNNING,
            fence=F("fence") + 1,
            tries=F("tries") + 1,
            lease_owner=owner[:100],
            lease_expires_at=now_in(conf().lease_s),
            worker=owner[:100],
        )
        if taken:
            return RecheckClaim(row.pk, row.fence + 1)
    return None


def run_recheck(workshop: Workshop, held: RecheckClaim) -> bool:
    """Do one that was claimed; False where the claim was lost. Raises Stopping and DATABASE_GONE."""
    try:
        related = ("implementation__artifact", "implementation__operator", "implementation__setting")
        row = held.row().select_related(*related).first()
        if row is None:
            return False
        with tempfile.TemporaryDirectory(
            dir=scratch.folder(workshop.home), prefix=scratch.prefix()
        ) as folder:
            state, detail = _prove(workshop, held, row, Path(folder))
        with transaction.atomic():
            held.end(state, detail)
            if state == RecheckState.WITHDRAWN:
                reported = Implementation.objects.filter(pk=row.implementation_id)
                set_aside(reported, f"reported by a job, and proved again: {detail}")
        logger.info("%s was reported, and proved again: %s %s", row.implementation, state, detail)
    except Stopping:
        held.row().update(**_UNHELD, state=RecheckState.WAITING, tries=F("tries") - 1)
        raise
    except StaleLease as error:
        logger.warning("%s", error)
        return False
    except DATABASE_GONE:
        raise
    except Exception as error:
        logger.exception("Recheck %s broke.", held.recheck_id)
        held.row().update(
            **_UNHELD, state=RecheckState.UNCHECKED, detail=f"It broke: {error!r}"[:500], finished_at=Now()
        )
    return True


def _prove(workshop: Workshop, held: RecheckClaim, row: Recheck, folder: Path) -> tuple[RecheckState, str]:
    made = row.implementation
    if made.revoked_at or made.failed_at:
        return RecheckState.WITHDRAWN, made.revoked_reason or made.failed_reason
    if row.tries > MAX_TRIES:
        return RecheckState.UNCHECKED, f"Its workers fell silent {row.tries - 1} times."
    if unsafe := workshop.why_unsafe(made.route):
        return RecheckState.UNCHECKED, unsafe
    try:
        artifact = artifact_from_catalogue(made.artifact, folder)
        check_features(artifact.manifest.features)
        check_versions(artifact.manifest.needs)
    except DamagedArtifact as error:
        return RecheckState.WITHDRAWN, str(error)
    except (UnvouchedArtifact, StoreError, LoadError) as error:
        return RecheckState.UNCHECKED, f"This worker cannot load it: {error}"
    return _proved(workshop, held, row, artifact)


def _proved(
    workshop: Workshop, held: RecheckClaim, row: Recheck, artifact: BuiltArtifact
) -> tuple[RecheckState, str]:
    made = row.implementation
    operator = Operator.from_json(made.operator.graph)
    setting = Setting.from_json(made.setting.description)
    for again in (True, False):
        outcome = workshop.laboratory.check(operator, setting, artifact)
        workshop.check(held)  # what a stopping worker kills is nobody's failure
        if outcome.status not in MISHAPS or not again:
            break
    found = f"{outcome.status}: {outcome.detail}"
    if outcome.ok:
        return RecheckState.NOT_REPRODUCED, ""
    if outcome.status in WRONG:
        candidate = Candidate(made.route, made.candidate, made.label)
        found_wrong(candidate, outcome.status, f"recheck on {made.operator}", outcome.detail, workshop.worker)
    if outcome.status in (*WRONG, *MISHAPS):
        return RecheckState.WITHDRAWN, found
    return RecheckState.UNCHECKED, found
