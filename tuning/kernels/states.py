"""How a version's state moves: by compare-and-swap, each step written into the history with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from catalog.errors import RequestError
from tuning.kernels.models import (
    EvaluationState,
    KernelDecision,
    KernelEvaluation,
    KernelVersion,
    VersionState,
)


class NotInThatState(RequestError):
    """The version is not where this step starts."""

    status = 409


class KernelNotAllowed(RequestError):
    """This person may not do that."""

    status = 403


def move(
    version: KernelVersion,
    before: Collection[VersionState],
    after: VersionState,
    *,
    who: User | str,
    reason: str = "",
    looked_at: Mapping[str, str] | None = None,
    **columns: Any,
) -> bool:
    """One step, if the version is still in one of the states ``before``; False where it is not.

    ``who`` is the user, or a worker's name; ``looked_at`` the evidence that a decision names. The row stays
    locked until the transaction around ends.
    """
    with transaction.atomic():
        moved = KernelVersion.objects.filter(pk=version.pk, state__in=before).update(
            state=after, state_reason=reason[:500], **columns
        )
        if moved:
            record(version, after, who=who, reason=reason, looked_at=looked_at)
            version.refresh_from_db()
    return moved == 1


def record(
    version: KernelVersion,
    step: str,
    *,
    who: User | str,
    reason: str = "",
    looked_at: Mapping[str, str] | None = None,
) -> KernelDecision:
    """Add one line to the history."""
    user = who if isinstance(who, User) else None
    name = user.get_username() if user else str(who)
    return KernelDecision.objects.create(
        version=version,
        step=step,
        user=user,
        who=name[:150],
        reason=reason[:500],
        looked_at=dict(looked_at or {}),
    )


def stop_evaluating(version: KernelVersion, reason: str) -> None:
    """Nobody wants to know any more: what waits is given up, what runs can write nothing."""
    waiting = (EvaluationState.QUEUED, EvaluationState.RUNNING)
    KernelEvaluation.objects.filter(version=version, state__in=waiting).update(
        state=EvaluationState.DEAD, fence=F("fence") + 1, detail=reason, doing="", lease_expires_at=None
    )
