"""What pages and the REST API read of kernels."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from catalog.models import SHARED, Best, Operator, Organisation, Setting, Target
from catalog.services import default_organisation
from tuning.kernels.binding import implementations_of
from tuning.kernels.deciding import PERMISSION
from tuning.kernels.models import Kernel, KernelDecision, KernelEvaluation, KernelVersion, VersionState
from tuning.models import Trial


@dataclass(frozen=True)
class Standing:
    """How an approved version does on one operator. ``rank`` 0 is the winner, None no best of its route."""

    operator: Operator
    target: Target
    setting: Setting
    status: str
    detail: str
    rank: int | None
    median_us: float | None
    ratio_to_default: float | None
    winner_label: str
    winner_route: str
    winner_us: float | None


def kernels_of(organisation: Organisation) -> QuerySet[Kernel]:
    """An organisation's kernels, the latest changed first."""
    return _annotated(Kernel.objects.filter(organisation=organisation))


def versions_of(organisation: Organisation) -> QuerySet[KernelVersion]:
    """An organisation's versions, the newest first."""
    return _related(KernelVersion.objects.filter(kernel__organisation=organisation))


def kernels_for_user(user: User | AnonymousUser) -> QuerySet[Kernel]:
    """What somebody sees on pages: whoever decides, all; others the default organisation's kernels, their
    own, and those that are approved."""
    return _annotated(Kernel.objects.filter(_seen_by(user)))


def versions_for_user(user: User | AnonymousUser) -> QuerySet[KernelVersion]:
    """The versions of :func:`kernels_for_user`, the newest first."""
    return _related(KernelVersion.objects.filter(kernel__in=Kernel.objects.filter(_seen_by(user))))


def evaluations_of(version: KernelVersion) -> QuerySet[KernelEvaluation]:
    """A version's evidence, operator by operator."""
    return version.evaluations.select_related("operator", "target", "setting").order_by("pk")


def history_of(kernel: Kernel) -> QuerySet[KernelDecision]:
    """Every step of every version, the latest first."""
    rows = KernelDecision.objects.filter(version__kernel=kernel)
    return rows.select_related("version__kernel", "user").order_by("-pk")


def source_diff(version: KernelVersion) -> str:
    """Unified diff of the source against the version before; empty for the first, or where it is the same."""
    before = version.kernel.versions.filter(number__lt=version.number).order_by("-number").first()
    if before is None:
        return ""
    lines = difflib.unified_diff(
        before.source.splitlines(),
        version.source.splitlines(),
        f"{before.label}.{_suffix(before)}",
        f"{version.label}.{_suffix(version)}",
        lineterm="",
    )
    return "\n".join(lines)


def standings(version: KernelVersion, limit: int = 100) -> list[Standing]:
    """How a version does in the contests that it entered, where it wins first."""
    made = implementations_of(version).values_list("pk", flat=True)
    trials = Trial.objects.filter(route=version.route, label=version.label, exploration__scope=SHARED)
    trials = trials.filter(Q(implementation__in=made) | Q(implementation=None))
    latest: dict[tuple[int, int, int], Trial] = {}
    for trial in trials.select_related(
        "exploration__operator", "exploration__target", "exploration__setting"
    ).order_by("-pk")[: limit * 5]:
        row = trial.exploration
        latest.setdefault((row.operator_id, row.target_id, row.setting_id), trial)
    mine = set(made)
    found = [_standing(trial, mine) for trial in list(latest.values())[:limit]]
    return sorted(found, key=lambda one: (one.rank is None, one.rank or 0, -(one.ratio_to_default or 0.0)))


def waiting_for(user: User | AnonymousUser) -> int:
    """How many versions wait for this user's decision."""
    if not user.is_active or not user.has_perm(PERMISSION):
        return 0
    own = KernelVersion.objects.filter(kernel=OuterRef("kernel"), submitted_by=user.pk)
    return KernelVersion.objects.filter(~Exists(own), state=VersionState.AWAITING).count()


def _standing(trial: Trial, mine: set[int]) -> Standing:
    row = trial.exploration
    place: Mapping[str, object] = {
        "operator": row.operator_id, "target": row.target_id, "setting": row.setting_id, "scope": row.scope,
    }  # fmt: skip
    bests = {best.rank: best for best in Best.objects.filter(**place)}
    own = next((best for best in bests.values() if best.implementation_id in mine), None)
    winner = bests.get(0)
    return Standing(
        operator=row.operator,
        target=row.target,
        setting=row.setting,
        status=trial.status,
        detail=trial.detail,
        rank=own.rank if own else None,
        median_us=own.median_us if own else trial.median_us,
        ratio_to_default=own.ratio_to_default if own else trial.ratio_to_default,
        winner_label=winner.label if winner else "",
        winner_route=winner.route if winner else "",
        winner_us=winner.median_us if winner else None,
    )


def _seen_by(user: User | AnonymousUser) -> Q:
    if user.is_superuser or user.has_perm(PERMISSION):
        return Q()
    approved = KernelVersion.objects.filter(kernel=OuterRef("pk"), state=VersionState.APPROVED)
    return Q(organisation=default_organisation()) | Q(created_by=user.pk) | Q(Exists(approved))


def _annotated(kernels: QuerySet[Kernel]) -> QuerySet[Kernel]:
    newest = KernelVersion.objects.filter(kernel=OuterRef("pk")).order_by("-number")
    step = KernelDecision.objects.filter(version__kernel=OuterRef("pk")).order_by("-pk")
    return kernels.annotate(
        latest_state=Subquery(newest.values("state")[:1]),
        latest_number=Subquery(newest.values("number")[:1]),
        latest_at=Subquery(step.values("created_at")[:1]),
    ).select_related("organisation", "created_by").order_by("-latest_at", "-pk")  # fmt: skip


def _related(versions: QuerySet[KernelVersion]) -> QuerySet[KernelVersion]:
    people = ("submitted_by", "decided_by")
    return versions.select_related("kernel__organisation", "example", *people).order_by("-pk")


def _suffix(version: KernelVersion) -> str:
    return "cc" if version.language == "c++" else "c"
