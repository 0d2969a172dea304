"""Proving what clients reported again: in the sandbox, by a worker of its target, from the catalogue's own
artifact. What fails there, where the default does not, is withdrawn; what does not stays."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce, Now

from catalog.best.damage import note_damage
from catalog.best.withdrawing import set_aside
from catalog.errors import DamagedArtifact, StoreError, UnvouchedArtifact
from catalog.models import Implementation
from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting
from opatlas.load.needs import check_features, check_versions
from tuning.explore import scratch
from tuning.explore.knowledge import found_wrong
from tuning.explore.results import WRONG, artifact_from_catalogue
from tuning.explore.workshop import Workshop
from tuning.measure.outcome import Outcome, Status
from tuning.models import Recheck, RecheckState
from tuning.queue.claims import EVERYTHING
from tuning.queue.clock import now_in
from tuning.queue.held import UNLEASED, HeldRow, take, work_on
from tuning.rechecks.reporting import AGAIN_AFTER
from tuning.routes.base import BuiltArtifact, Candidate
from tuning.telling import told, told_log

logger = logging.getLogger(__name__)

MAX_TRIES = 3
MISHAPS = (Status.CRASHED, Status.LOAD_FAILED, Status.TIMED_OUT)
"""What befalls a good one by accident too: it is proved once more at once, and then believed."""
REPEAT_S, MOST_REPEATS = 600.0, 4
"""What could not be checked, since the default failed beside it, is tried again after so long, and four times
as long each time: in all for more than half a day."""
MOST_SPENT_S = 1800.0
"""Of workers' time, for what one organisation reported within a day."""


@dataclass(frozen=True, slots=True)
class RecheckClaim(HeldRow[Recheck]):
    """One recheck held by one worker process."""

    model = Recheck
    related = ("implementation__artifact", "implementation__operator", "implementation__setting")

    def end(self, state: RecheckState, detail: str, **columns: Any) -> None:
        """Raises StaleLease, and writes nothing, when the claim was lost."""
        self.update(**UNLEASED, state=state, detail=detail[:500], finished_at=Now(), **columns)


def waiting(target_id: int | None = None) -> QuerySet[Recheck]:
    """What a worker may claim, the oldest first. Those whose worker fell silent count again; what is reported
    by who has had too much of a day's time waits."""
    silent = Q(state=RecheckState.RUNNING, lease_expires_at__lt=Now())
    due = Q(state=RecheckState.UNCHECKED, due_at__lte=Now())
    theirs = Recheck.objects.filter(
        asked_by=OuterRef("asked_by"), asked_at__gt=now_in(-AGAIN_AFTER.total_seconds())
    )
    spent = theirs.order_by().values("asked_by").values_list(Sum("spent_s"))
    rows = Recheck.objects.filter(Q(state=RecheckState.WAITING) | silent | due)
    rows = rows.annotate(had_s=Coalesce(Subquery(spent), 0.0)).filter(had_s__lt=MOST_SPENT_S)
    return (rows if target_id is None else rows.filter(target=target_id)).order_by("asked_at", "pk")


def claim(owner: str, target_id: int, of: Q = EVERYTHING) -> RecheckClaim | None:
    """Take the first that waits for this target (``of``: of some organisation); None where there is none."""
    for row in waiting(target_id).filter(of)[:5]:
        if fence := take(row, owner, worker=owner[:100], tries=F("tries") + 1, due_at=None):
            return RecheckClaim(row.pk, fence)
    return None


def run_recheck(workshop: Workshop, held: RecheckClaim) -> bool:
    """Do one that was claimed; False where the claim was lost. Raises Stopping and DATABASE_GONE."""
    began = time.monotonic()

    def spent() -> Any:
        return F("spent_s") + (time.monotonic() - began)

    def give_back() -> None:
        held.row().update(**UNLEASED, state=RecheckState.WAITING, tries=F("tries") - 1, spent_s=spent())

    def fail(error: Exception) -> None:
        held.end(RecheckState.UNCHECKED, told(error, held), spent_s=spent())

    return work_on(held, partial(_recheck, workshop, held, spent), give_back, fail)


def _recheck(workshop: Workshop, held: RecheckClaim, spent: Callable[[], Any]) -> None:
    row = held.load()
    with scratch.folder_of_work(workshop.home) as folder:
        found = _prove(workshop, held, row, folder)
        found = found._replace(detail=told_log(found.detail))
    later = _later(row) if found.again else {}
    with transaction.atomic():
        held.end(found.state, found.detail, spent_s=spent(), **later)
        if found.state == RecheckState.WITHDRAWN:
            # What is damaged says nothing of who made it: it is built again.
            reported = Implementation.objects.filter(pk=row.implementation_id, artifact__damaged_at=None)
            set_aside(reported, f"reported by a job, and proved again: {found.detail}")
    logger.info("%s was reported, and proved again: %s %s", row.implementation, found.state, found.detail)


def _later(row: Recheck) -> Mapping[str, Any]:
    """When it is tried again: seldom, and not for ever."""
    if row.repeats >= MOST_REPEATS:
        return {}
    return {"due_at": now_in(REPEAT_S * 4**row.repeats), "repeats": F("repeats") + 1, "tries": 0}


class Proof(NamedTuple):
    """What proving one again has found; ``again``: nothing, for now."""

    state: RecheckState
    detail: str = ""
    again: bool = False


def _prove(workshop: Workshop, held: RecheckClaim, row: Recheck, folder: Path) -> Proof:
    made = row.implementation
    if made.revoked_at or made.failed_at:
        return Proof(RecheckState.WITHDRAWN, made.revoked_reason or made.failed_reason)
    if row.tries > MAX_TRIES:
        return Proof(RecheckState.UNCHECKED, f"Its workers fell silent {row.tries - 1} times.")
    if unsafe := workshop.why_unsafe(made.route):
        return Proof(RecheckState.UNCHECKED, unsafe)
    try:
        artifact = artifact_from_catalogue(made.artifact, folder)
        check_features(artifact.manifest.features)
        check_versions(artifact.manifest.needs)
    except DamagedArtifact as error:
        note_damage(made.artifact, str(error))
        return Proof(RecheckState.WITHDRAWN, str(error))
    except (UnvouchedArtifact, StoreError, LoadError) as error:
        return Proof(RecheckState.UNCHECKED, f"This worker cannot load it: {error}")
    return _proved(workshop, held, made, artifact, folder)


def _proved(
    workshop: Workshop, held: RecheckClaim, made: Implementation, artifact: BuiltArtifact, folder: Path
) -> Proof:
    """It is held against it only where the default, right after it, does not fail: a host that is overloaded
    or has no memory left fails both."""
    operator = Operator.from_json(made.operator.graph)
    setting = Setting.from_json(made.setting.description)
    for again in (True, False):
        outcome = workshop.laboratory.check(operator, setting, artifact)
        workshop.check(held)  # what a stopping worker kills is nobody's failure
        if outcome.ok:
            return Proof(RecheckState.NOT_REPRODUCED)
        found = f"{outcome.status}: {outcome.detail}"
        if outcome.status not in (*WRONG, *MISHAPS):
            return Proof(RecheckState.UNCHECKED, found)
        beside = _check_default(workshop, operator, setting, folder / f"default{again:d}")
        workshop.check(held)
        if beside is None:
            return Proof(RecheckState.UNCHECKED, f"There is no default to hold it against. {found}")
        if not beside.ok:
            said = f"The default failed beside it ({beside.status}: {beside.detail}). {found}"
            return Proof(RecheckState.UNCHECKED, said, again=True)
        if outcome.status in WRONG or not again:
            break
    if outcome.status in WRONG:
        candidate = Candidate(made.route, made.candidate, made.label)
        found_wrong(candidate, outcome.status, f"recheck on {made.operator}", outcome.detail, workshop.worker)
    return Proof(RecheckState.WITHDRAWN, found)


def _check_default(workshop: Workshop, operator: Operator, setting: Setting, folder: Path) -> Outcome | None:
    """What becomes of the default here and now; None where there is none."""
    given = workshop.default_candidate(operator, workshop.target, setting)
    if given is None:
        return None
    route, candidate = given
    built = workshop.laboratory.build(route, operator, setting, candidate, folder, workshop.limits)
    return built if isinstance(built, Outcome) else workshop.laboratory.check(operator, setting, built)
