"""Counting failed trials towards their causes, in the transaction that keeps them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from django.utils import timezone

from tuning.failures.reasons import reason_of
from tuning.measure.outcome import Status
from tuning.models import FailureGroup, FailurePlace, Trial

FAILURES = frozenset(Status) - {Status.OK, Status.SLOWER, Status.NOISY, Status.UNSUPPORTED}
"""What went wrong. A slow candidate is a result, a noisy host has a rule of its own, and who cannot express
an operator says so."""

_SAID = 200


class FailureCause(NamedTuple):
    """What trials of one group have in common; scopes keep tenants' causes apart."""

    scope: str
    owner_id: int | None
    status: str
    reason: str


def fingerprint(status: str, reason: str) -> str:
    """Names a cause: the status, and the message once what differs by chance is left out."""
    return hashlib.sha256(f"{status}\n{reason}".encode()).hexdigest()


def note_failure(trial: Trial) -> FailureGroup | None:
    """Count it; None for one that is no failure. Runs inside the transaction that keeps the trial: a trial
    that is taken back was never counted."""
    return next(iter(note_failures([trial])), None)


def note_failures(trials: Iterable[Trial]) -> list[FailureGroup]:
    """Count what of these is a failure, with their explorations read; gives the groups. Each trial is counted
    once in its life. Runs inside a transaction."""
    struck: dict[FailureCause, list[Trial]] = defaultdict(list)
    for trial in trials:
        if trial.status in FAILURES:
            reason = reason_of(trial.detail)[:_SAID] or trial.status.replace("_", " ")
            row = trial.exploration
            struck[FailureCause(row.scope, row.owner_id, trial.status, reason)].append(trial)
    # In order, so that two transactions that meet several causes do not wait for each other crosswise.
    return [_count(cause, struck[cause]) for cause in sorted(struck, key=str)]


def _count(cause: FailureCause, trials: Sequence[Trial]) -> FailureGroup:
    ordered = sorted(trials, key=lambda trial: (_at(trial), trial.pk))
    first, latest = ordered[0], ordered[-1]
    group = _locked(cause, first)
    group.operators += _count_places(group, ordered)
    group.trials += len(ordered)
    group.routes = sorted({*group.routes, *(trial.route for trial in ordered)})
    if _at(first) < group.first_at:
        group.first, group.first_at = first, _at(first)
    if _at(latest) >= group.last_at:
        group.latest, group.last_at = latest, _at(latest)
    group.save()
    return group


def _locked(cause: FailureCause, first: Trial) -> FailureGroup:
    """Two workers that meet the same cause take turns. One that was forgotten meanwhile begins anew."""
    at = _at(first)
    new = {"owner_id": cause.owner_id, "status": cause.status, "reason": cause.reason}
    while True:
        group, _ = FailureGroup.objects.get_or_create(
            scope=cause.scope,
            fingerprint=fingerprint(cause.status, cause.reason),
            defaults=new | {"first": first, "first_at": at, "last_at": at},
        )
        if locked := FailureGroup.objects.select_for_update().filter(pk=group.pk).first():
            return locked


def _count_places(group: FailureGroup, trials: Sequence[Trial]) -> int:
    """By exploration; gives how many are new. ``trials`` in their order."""
    numbers = {trial.exploration_id for trial in trials}
    known = {row.exploration_id: row for row in group.places.filter(exploration__in=numbers)}
    new: dict[int, FailurePlace] = {}
    for trial in trials:
        number = trial.exploration_id
        place = known.get(number) or new.setdefault(
            number, FailurePlace(group=group, exploration_id=number, last_at=_at(trial))
        )
        place.trials += 1
        place.last_at = max(place.last_at, _at(trial))
        place.routes = sorted({*place.routes, trial.route})
    FailurePlace.objects.bulk_update(known.values(), ["trials", "last_at", "routes"], batch_size=200)
    FailurePlace.objects.bulk_create(new.values(), batch_size=200)
    return len(new)


def _at(trial: Trial) -> datetime:
    return trial.created_at or timezone.now()
