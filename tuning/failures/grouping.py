"""Counting a failed trial towards its cause, in the transaction that keeps it."""

from __future__ import annotations

import hashlib

from django.utils import timezone

from tuning.failures.reasons import reason_of
from tuning.measure.outcome import Status
from tuning.models import FailureGroup, FailurePlace, Trial

FAILURES = frozenset(Status) - {Status.OK, Status.SLOWER, Status.NOISY, Status.UNSUPPORTED}
"""What went wrong. A slow candidate is a result, a noisy host has a rule of its own, and who cannot express
an operator says so."""

_SAID = 200


def fingerprint(status: str, reason: str) -> str:
    """Names a cause: the status, and the message once what differs by chance is left out."""
    return hashlib.sha256(f"{status}\n{reason}".encode()).hexdigest()


def note_failure(trial: Trial) -> FailureGroup | None:
    """Count it; None for one that is no failure. Runs inside the transaction that keeps the trial: a trial
    that is taken back was never counted."""
    if trial.status not in FAILURES:
        return None
    row, at = trial.exploration, trial.created_at or timezone.now()
    reason = reason_of(trial.detail)[:_SAID] or trial.status.replace("_", " ")
    group, _ = FailureGroup.objects.get_or_create(
        scope=row.scope,
        fingerprint=fingerprint(trial.status, reason),
        defaults={
            "owner_id": row.owner_id,
            "status": trial.status,
            "reason": reason,
            "first_at": at,
            "last_at": at,
        },
    )
    # Two workers that meet the same cause take turns.
    group = FailureGroup.objects.select_for_update().get(pk=group.pk)
    place, is_new = FailurePlace.objects.get_or_create(group=group, exploration=row, defaults={"last_at": at})
    for counted in (group, place):
        counted.trials += 1
        counted.last_at = max(counted.last_at, at)
        counted.routes = sorted({*counted.routes, trial.route})
    group.operators += is_new
    group.latest = trial
    place.save()
    group.save()
    return group
