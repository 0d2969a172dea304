"""What clients say has failed for them: kept for their own organisation, and a reason to prove it again.

A report is no evidence: whoever sends many, or lies, has a worker look again, once a day at most for each
implementation, some times a day for each organisation, for as long as its share of workers' time lasts
(:data:`tuning.rechecks.rechecking.MOST_SPENT_S`), after those who had less of it, and nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from catalog.best.served import scopes_of
from catalog.models import Implementation, Organisation
from tuning.doorbell.bell import bell
from tuning.models import FailureReport, Recheck, RecheckState

AGAIN_AFTER = timedelta(days=1)
"""What was proved within so long is not proved again."""
MOST_ASKED = 100
"""Rechecks that one organisation may ask for within that time."""
MOST_KEPT = 1000
"""Reports of one organisation: the latest."""
OPEN = (RecheckState.WAITING, RecheckState.RUNNING)


@dataclass(frozen=True)
class ReportedFailure:
    """One implementation, by its number and its artifact, as a client names it."""

    implementation: int
    artifact: str
    where: str
    error: str
    message: str


@dataclass(frozen=True)
class ReportAnswer:
    """What becomes of one that was reported."""

    implementation: int
    artifact: str
    state: Annotated[
        str,
        "waiting (for a worker), running, not_reproduced (a worker has proved it again and found nothing), "
        "withdrawn, unchecked (no worker can; where the default failed beside it, it is tried again), "
        "refused (too many of yours today), unknown (none that this key sees).",
    ]


def report_failures(
    organisation: Organisation, job: str, versions: Mapping[str, str], failed: Sequence[ReportedFailure]
) -> list[ReportAnswer]:
    """Keep these, and ask for what has to be proved again; what is known of each by now."""
    scopes = scopes_of(organisation)
    found = Implementation.objects.filter(pk__in=[one.implementation for one in failed], scope__in=scopes)
    rows = {(row.pk, row.artifact.sha256): row for row in found.select_related("artifact", "target")}
    known = {key: row for one in failed if (row := rows.get(key := (one.implementation, one.artifact)))}
    with transaction.atomic():
        # One after the other: what waits is counted.
        Organisation.objects.select_for_update(no_key=True).get(pk=organisation.pk)
        _keep(
            organisation,
            job,
            versions,
            [one for one in failed if (one.implementation, one.artifact) in known],
        )
        states = {key: _ask(row, organisation) for key, row in known.items()}
        capabilities = {row.target.capability for key, row in known.items() if states[key] in OPEN}
        if capabilities:
            transaction.on_commit(lambda: bell.ring(capabilities), robust=True)
    return [
        ReportAnswer(
            one.implementation, one.artifact, states.get((one.implementation, one.artifact), "unknown")
        )
        for one in failed
    ]


def _keep(
    organisation: Organisation, job: str, versions: Mapping[str, str], failed: Sequence[ReportedFailure]
) -> None:
    now = timezone.now()
    for one in failed:
        about = {"where": one.where, "error": one.error, "message": one.message, "job": job}
        row, new = FailureReport.objects.get_or_create(
            implementation_id=one.implementation,
            organisation=organisation,
            defaults={**about, "versions": dict(versions), "last_at": now},
        )
        if not new:
            latest = {**about, "versions": dict(versions), "last_at": now, "count": F("count") + 1}
            FailureReport.objects.filter(pk=row.pk).update(**latest)
    mine = FailureReport.objects.filter(organisation=organisation).order_by("-last_at", "-pk")
    FailureReport.objects.filter(pk__in=list(mine.values_list("pk", flat=True)[MOST_KEPT:])).delete()


def _ask(row: Implementation, organisation: Organisation) -> str:
    """Have it proved again, where that was not done lately; its state."""
    if row.revoked_at or row.failed_at:
        return RecheckState.WITHDRAWN
    known = Recheck.objects.filter(implementation=row).first()
    now = timezone.now()
    if known is not None and (known.state in OPEN or (known.finished_at or now) > now - AGAIN_AFTER):
        return str(known.state)
    lately = Recheck.objects.filter(asked_by=organisation, asked_at__gt=now - AGAIN_AFTER)
    if lately.count() >= MOST_ASKED:
        return "refused"
    asked = {
        "target": row.target, "asked_by": organisation, "asked_at": now, "state": RecheckState.WAITING,
        "detail": "", "tries": 0, "repeats": 0, "due_at": None, "spent_s": 0.0, "finished_at": None,
    }  # fmt: skip
    Recheck.objects.update_or_create(implementation=row, defaults=asked)
    return RecheckState.WAITING
