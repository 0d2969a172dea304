"""What the kernels' pages show beside a version's own rows: wins, a person's rights, charts' dots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from catalog.models import SHARED, Best
from catalog.registry import digest_of
from dashboard.web import wording
from dashboard.web.charts import operators as operator_charts
from dashboard.web.charts.drawing import METHODS, shortened
from tuning.kernels.binding import submitted_kernel
from tuning.kernels.models import Kernel, KernelEvaluation, KernelVersion, VersionState


@dataclass(frozen=True)
class VersionStep:
    """One stage of a version's way, for the bar of stages."""

    name: str
    text: str
    state: str  # "done", "running", "stopped", ""


def wins(kernels: Iterable[Kernel]) -> dict[int, int]:
    """Kernel → for how many (operator, target, setting) its approved version is the fastest known."""
    versions = KernelVersion.objects.filter(kernel__in=kernels, state=VersionState.APPROVED)
    made = {
        _digest(version): version.kernel_id for version in versions.select_related("kernel__organisation")
    }
    if not made:
        return {}
    leading = Best.objects.filter(
        rank=0, scope=SHARED, route="cpp", implementation__candidate_sha256__in=made
    )
    counts: Counter[int] = Counter()
    for digest, count in leading.values_list("implementation__candidate_sha256").annotate(Count("pk")):
        counts[made[digest]] += count
    return dict(counts)


def steps(version: KernelVersion) -> list[VersionStep]:
    """Submitted → built, checked, timed → decided → in the contest."""
    state = version.state
    tried = {"submitted": "", "building": "running", "failed": "stopped"}.get(state, "done")
    if version.decided_at is None and state == VersionState.SUPERSEDED:
        tried = "stopped" if not version.evaluations.filter(state="done").exists() else "done"
    decided = "done" if version.decided_at else ("running" if state == VersionState.AWAITING else "")
    decided = "stopped" if state == VersionState.REJECTED else decided
    inside = {"approved": "running", "revoked": "stopped"}.get(state, "done" if version.approved_at else "")
    by = version.decided_by.get_username() if version.decided_by else "somebody else than its submitter"
    return [
        VersionStep("Submitted", f"by {version.submitted_by.get_username()}", "done"),
        VersionStep("Built, checked, timed", "in the sandbox, against the incumbent", tried),
        VersionStep("Decided", f"by {by}", decided),
        VersionStep("In the contest", "of every operator that it matches", inside),
    ]


def chart(evaluation: KernelEvaluation) -> dict[str, Any] | None:
    """The kernel beside every other method on one operator, the fastest first."""
    dots = [_dot(one) for one in evaluation.times if one.get("median_us")]
    return operator_charts.times(dots) if dots else None


def _dot(one: dict[str, Any]) -> operator_charts.Dot:
    what = "this kernel" if one["what"] == "kernel" else one["route"]
    name = f"{what} · {one['label']}" if one["label"] and one["what"] != "kernel" else what
    value, ratio = one["median_us"], one.get("ratio_to_default")
    default = value * ratio if ratio else None
    low, high = one.get("ratio_high"), one.get("ratio_low")  # a higher ratio is a lower time
    return operator_charts.Dot(
        name=shortened(name, 44),
        method=one["method"] if one["method"] in METHODS else "library",
        value=value,
        low=min(value, default / low) if default and low else value,
        high=max(value, default / high) if default and high else value,
        default=default if one["what"] != "default" else None,
        hover=f"{name}<br>{wording.duration_us(value)}<br>{wording.ratio(ratio)} the default's speed",
    )


def _digest(version: KernelVersion) -> str:
    return digest_of(submitted_kernel(version).candidate().parameters)
