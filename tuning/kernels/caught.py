"""A cheat once caught stays caught: by its source, under whatever name, for everybody and for good.

Whoever sees one (an evaluation, a contest, a re-validation) calls :func:`caught_cheating`. Every version
with that source, or with one that differs in comments, blanks and names only, ends then: what was approved
is suspended and leaves service at once.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from catalog.errors import RequestError
from tuning.kernels.binding import version_of, withdraw_version
from tuning.kernels.models import CaughtSource, KernelVersion, VersionState
from tuning.kernels.source_digest import tokens_digest
from tuning.kernels.states import move, record, stop_evaluating
from tuning.measure.outcome import Status
from tuning.routes.base import Candidate
from tuning.telling import told_log

_UNDECIDED = (
    VersionState.SUBMITTED,
    VersionState.BUILDING,
    VersionState.NOISY,
    VersionState.AWAITING,
)


class CaughtBefore(RequestError):
    """This source was caught cheating: it is refused for good."""

    status = 409


def catches_of(source_sha256: str, tokens_sha256: str) -> QuerySet[CaughtSource]:
    """When and for what this source was caught, the first first."""
    same = Q(source_sha256=source_sha256)
    if tokens_sha256:
        same |= Q(tokens_sha256=tokens_sha256)
    return CaughtSource.objects.filter(same).order_by("pk")


def why_refused(source_sha256: str, tokens_sha256: str) -> str:
    """Empty, or when and for what the source was caught. Names nobody: others may have submitted it."""
    found = catches_of(source_sha256, tokens_sha256).first()
    if found is None:
        return ""
    how = "This source" if found.source_sha256 == source_sha256 else "This source, under other names,"
    when = found.caught_at.strftime("%Y-%m-%d %H:%M UTC")
    return f"{how} was caught cheating on {when} ({found.detail[:300]}): it is refused for good."


def refuse_caught(source_sha256: str, tokens_sha256: str) -> None:
    """Raise :class:`CaughtBefore` where a source may not be submitted any more."""
    if refused := why_refused(source_sha256, tokens_sha256):
        raise CaughtBefore(refused, "source")


def caught_cheating(version: KernelVersion, *, where: str, detail: str, worker: str) -> None:
    """Remember the source and end every version that has it; what is approved is withdrawn at once."""
    detail = told_log(detail)
    with transaction.atomic():
        tokens = version.tokens_sha256 or tokens_digest(version.source)
        CaughtSource.objects.create(
            source_sha256=version.source_sha256,
            tokens_sha256=tokens,
            version=version,
            label=f"{version.kernel.organisation.name}: {version.label}"[:300],
            where=where[:300],
            detail=detail[:2000],
            worker=worker[:100],
        )
        same = Q(source_sha256=version.source_sha256) | Q(tokens_sha256=tokens)
        # In one order for everybody: two that are caught at once wait for each other and do not cross.
        for one in KernelVersion.objects.filter(same).select_related("kernel__organisation").order_by("pk"):
            _end(one, version, f"cheated in its {where}: {detail}", worker)


def caught_in_contest(candidate: Candidate, status: str, where: str, detail: str, worker: str) -> None:
    """A contest or a re-validation tried an approved kernel and found it wrong; only a cheat is remembered.
    (``tuning.explore.knowledge`` calls this for whatever is wrong.)"""
    version = version_of(candidate) if status == Status.CHEATED else None
    if version is not None:
        caught_cheating(version, where=where, detail=detail, worker=worker)


def _end(one: KernelVersion, caught: KernelVersion, found: str, worker: str) -> None:
    reason = found if one.pk == caught.pk else "has the source of a kernel that was caught cheating"
    told: dict[str, Any] = {"who": worker, "reason": reason}
    if move(one, (VersionState.APPROVED,), VersionState.SUSPENDED, withdrawn_at=timezone.now(), **told):
        withdraw_version(one, f"kernel {one.label} {reason}")
    elif move(one, _UNDECIDED, VersionState.FAILED, **told):
        stop_evaluating(one, reason[:500])
    else:
        record(one, "noted", **told)
