"""Deciding: approve, reject, revoke. By somebody who did not write it, with a reason, kept for ever."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.utils import timezone

from catalog.errors import RequestError
from catalog.viewing import APPROVE, viewer_of
from tuning.doorbell.bell import bell
from tuning.kernels.binding import withdraw_version
from tuning.kernels.caught import why_refused
from tuning.kernels.dossier import Dossier
from tuning.kernels.models import EvaluationState, KernelVersion, VersionState
from tuning.kernels.planning import matching_explorations
from tuning.kernels.states import KernelNotAllowed, NotInThatState, move
from tuning.kernels.verdicts import APPROVABLE, is_against
from tuning.measure.outcome import Status
from tuning.models import Exploration, Stage, State
from tuning.queue.rounds import ask_for_round

PERMISSION = "kernels.decide"
MOST_REASON = 500
_BATCH = 500


def decides(user: User | AnonymousUser) -> bool:
    """Whether somebody decides on kernels at all: an approver of the host organisation, since what is
    approved serves everybody; or who has Django's permission ``kernels.decide``."""
    return user.is_active and (viewer_of(user).may(APPROVE) or user.has_perm(PERMISSION))


def may_decide(user: User, version: KernelVersion) -> str:
    """Empty where this user may decide on this version, else the sentence that says why not."""
    if not decides(user):
        return "Deciding on kernels needs the role approver in the host organisation: ask an administrator."
    if version.kernel.versions.filter(submitted_by=user).exists():
        return "Somebody other than those who submitted the kernel must decide on it."
    return ""


def why_not_approvable(version: KernelVersion) -> str:
    """Empty where a version's evidence lets it be approved, else why not. The database asks the same again
    (migration ``evidence_guards``), whoever writes there."""
    if refused := why_refused(version.source_sha256, version.tokens_sha256):
        return refused
    rows = list(version.evaluations.select_related("operator"))
    unfit = [
        row.status or row.state
        for row in rows
        if row.state != EvaluationState.DONE or row.status not in APPROVABLE
    ]
    unfit += filter(is_against, version.tries.order_by("pk").values_list("status", flat=True))
    if unfit:
        found = unfit[0]
        return f"It was {found} on an operator: only what is ok or slower everywhere can be approved."
    if not any(row.status == Status.OK for row in rows):
        return "No evaluation of it ended ok: there is nothing to approve."
    return ""


def approve(
    version: KernelVersion, *, user: User, reason: str, looked_at: Mapping[str, str] | None = None
) -> KernelVersion:
    """Let an evaluated version into every contest that it matches, now and later.

    ``looked_at`` names what the approver was shown, with its digests (``tuning.kernels.dossier``); kept with
    the decision. Raises RequestError where the source or the risk lines are not among it, NotInThatState
    where any of it changed meanwhile, or where the evidence allows no approval.
    """
    reason = _check(version, user, reason)
    capabilities: set[str] = set()
    with transaction.atomic():
        now = timezone.now()
        # Locked: what is looked at here is what is approved.
        locked = KernelVersion.objects.select_for_update(of=("self",)).get(pk=version.pk)
        seen: dict[str, str] = {}
        if locked.state == VersionState.AWAITING:
            seen = Dossier(locked).check(looked_at or {})
            if why_not := why_not_approvable(locked):
                raise NotInThatState(why_not)
        decided = {"decided_by": user, "decided_at": now, "approved_at": now, "looked_at": seen}
        _move(version, VersionState.AWAITING, VersionState.APPROVED, user, reason, **decided)
        why = f"kernel {version.label} approved"
        matching: list[int] = []
        for row in matching_explorations(version):
            if row.state == State.QUEUED and row.stage <= Stage.CONTEST:
                continue  # its contest is still to come, and will name this kernel
            if row.state == State.UNSUPPORTED:
                continue  # nothing computes a default here that a kernel could be checked and timed against
            matching.append(row.pk)
            capabilities.add(row.capability)
        for start in range(0, len(matching), _BATCH):
            batch = Exploration.objects.filter(pk__in=matching[start : start + _BATCH])
            ask_for_round(batch, [version.route], why)
    bell.ring(capabilities)
    return version


def reject(version: KernelVersion, *, user: User, reason: str) -> KernelVersion:
    """Refuse an evaluated version."""
    reason = _check(version, user, reason)
    decided = {"decided_by": user, "decided_at": timezone.now()}
    _move(version, VersionState.AWAITING, VersionState.REJECTED, user, reason, **decided)
    return version


def revoke(version: KernelVersion, *, user: User, reason: str) -> KernelVersion:
    """Withdraw an approved version at once; what it led falls back to the next best. A suspended one, which
    left service when it was caught, is revoked for the record."""
    reason = _check(version, user, reason)
    with transaction.atomic():
        now = timezone.now()
        before = VersionState.APPROVED
        if KernelVersion.objects.filter(pk=version.pk, state=VersionState.SUSPENDED).exists():
            before = VersionState.SUSPENDED
        _move(version, before, VersionState.REVOKED, user, reason, withdrawn_at=now)
        withdraw_version(version, f"kernel {version.label} revoked: {reason}")
    return version


def _check(version: KernelVersion, user: User, reason: str) -> str:
    if why_not := may_decide(user, version):
        raise KernelNotAllowed(why_not)
    reason = " ".join(reason.split()) if isinstance(reason, str) else ""
    if not 1 <= len(reason) <= MOST_REASON or "\0" in reason:
        raise RequestError(f"Say why, in 1 to {MOST_REASON} characters.", "reason")
    return reason


def _move(
    version: KernelVersion, before: VersionState, after: VersionState, user: User, reason: str, **columns: Any
) -> None:
    if move(version, (before,), after, who=user, reason=reason, **columns):
        return
    version.refresh_from_db()
    needed = "awaiting approval" if before == VersionState.AWAITING else before
    raise NotInThatState(
        f"Only a version that is {needed} can be {after}; {version.label} is {version.state}."
    )
