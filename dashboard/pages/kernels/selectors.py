"""What the kernels' pages show beside a version's own rows: wins, a person's rights, charts' dots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count

from catalog.default_names import default_name
from catalog.models import SHARED, Best
from dashboard.web import wording
from dashboard.web.charts import operators as operator_charts
from dashboard.web.charts.drawing import METHODS, called, shortened
from dashboard.web.highlighting import Code, highlighted
from opatlas.evidence import Ratios
from tuning.kernels.dossier import NEEDED, Dossier
from tuning.kernels.models import Kernel, KernelEvaluation, KernelInspection, KernelVersion, VersionState
from tuning.routes.manual.submitted import KINDS
from tuning.statistics.comparing import Comparison, Taken, compare

FUNCTIONS_SHOWN = 60
FUNCTION_CHARACTERS = 20_000


@dataclass(frozen=True)
class VersionStep:
    """One stage of a version's way, for the bar of stages."""

    name: str
    text: str
    state: str  # "done", "running", "stopped", ""


def wins(kernels: Iterable[Kernel]) -> dict[int, int]:
    """Kernel → for how many (operator, target, setting) its approved version is the fastest known."""
    versions = KernelVersion.objects.filter(kernel__in=kernels, state=VersionState.APPROVED)
    made = dict(versions.values_list("pk", "kernel"))
    if not made:
        return {}
    leading = Best.objects.filter(
        rank=0, scope=SHARED, route__in=KINDS, implementation__kernel_version__in=made
    )
    counts: Counter[int] = Counter()
    for version, count in leading.values_list("implementation__kernel_version").annotate(Count("pk")):
        counts[made[version]] += count
    return dict(counts)


def against_incumbents(timed: Iterable[KernelEvaluation]) -> dict[int, Comparison]:
    """Evaluation → the kernel against whoever is served, of those that were raced: by the rule by which the
    catalogue chooses, so that what would not take its place is not called faster."""
    found = {}
    for one in timed:
        own = _ratios(one.ratio_to_default, one.ratio_low, one.ratio_high)
        other = _ratios(one.incumbent_ratio, one.incumbent_low, one.incumbent_high)
        if own is not None and other is not None:
            found[one.pk] = compare(Taken(own), Taken(other))
    return found


def _ratios(ratio: float | None, low: float | None, high: float | None) -> Ratios | None:
    if ratio is None:
        return None
    return Ratios(ratio, ratio if low is None else low, ratio if high is None else high)


def steps(version: KernelVersion) -> list[VersionStep]:
    """Submitted → built, checked, timed → decided → in the contest."""
    state = version.state
    tried = {"submitted": "", "building": "running", "failed": "stopped", "noisy": "stopped"}.get(
        state, "done"
    )
    if version.decided_at is None and state == VersionState.SUPERSEDED:
        tried = "stopped" if not version.evaluations.filter(state="done").exists() else "done"
    decided = "done" if version.decided_at else ("running" if state == VersionState.AWAITING else "")
    decided = "stopped" if state == VersionState.REJECTED else decided
    inside = {"approved": "running", "revoked": "stopped", "suspended": "stopped"}.get(
        state, "done" if version.approved_at else ""
    )
    by = version.decided_by.get_username() if version.decided_by else "somebody else than its submitter"
    return [
        VersionStep("Submitted", f"by {version.submitted_by.get_username()}", "done"),
        VersionStep("Built, checked, timed", "in the sandbox, against the best so far", tried),
        VersionStep("Decided", f"by {by}", decided),
        VersionStep("In the contest", "of every operator that it matches", inside),
    ]


def chart(evaluation: KernelEvaluation) -> dict[str, Any] | None:
    """The kernel beside every other method on one operator, the fastest first."""
    dots = [_dot(one) for one in evaluation.times if one.get("ratio_to_default")]
    return operator_charts.ratios(dots, default_name(_default_of(evaluation.times))) if dots else None


@dataclass(frozen=True)
class Piece:
    """One piece of evidence that an approval names, with the digest of what the page shows of it."""

    name: str
    text: str
    digest: str
    needed: bool
    ticked: bool

    @property
    def value(self) -> str:
        return f"{self.name}:{self.digest}"


_PIECES = {
    "source": "the source",
    "risks": "the risk lines",
    "tries": "every try",
    "observation": "what it asked of the system",
    "machine_code": "the machine code",
}


def pieces(dossier: Dossier, ticked: dict[str, str]) -> list[Piece]:
    """What may be ticked as looked at; what changed since it was ticked is no longer so."""
    return [
        Piece(name, text, digest := dossier.digests[name], name in NEEDED, ticked.get(name) == digest)
        for name, text in _PIECES.items()
    ]


_BUILT = {"who": "For", "built_at": "Built at", "source_sha256": "Source", "candidate_sha256": "Candidate"}


@dataclass(frozen=True)
class Inspected:
    """An inspection as its part of the page shows it."""

    row: KernelInspection
    calls: list[tuple[str, int]]
    functions: list[tuple[str, Code]]
    provenance: dict[str, Any]

    @property
    def grown_bytes(self) -> int:
        return int(self.row.observed.get("grown_bytes", 0))


def inspected(row: KernelInspection) -> Inspected:
    """Machine code function by function, calls the most frequent first."""
    calls = sorted(row.observed.get("calls", {}).items(), key=lambda one: -one[1])
    shown: list[tuple[str, Code]] = []
    for block in row.assembly.split("\n\n")[:FUNCTIONS_SHOWN]:
        name, _, text = block.partition(":\n")
        shown.append((name, highlighted(text[:FUNCTION_CHARACTERS], "text")))
    told = {_BUILT[name]: value for name, value in row.provenance.items() if name in _BUILT}
    return Inspected(row, calls, shown if row.assembly else [], told)


def _default_of(times: Sequence[dict[str, Any]]) -> str:
    """Its route; empty where it was not noted."""
    return next((str(one["route"]) for one in times if one["what"] == "default"), "")


def _dot(one: dict[str, Any]) -> operator_charts.Dot:
    whole = {"kernel": "this kernel", "default": default_name(one["route"])}.get(one["what"])
    name = whole or called(one["route"], one["label"])
    ratio = one["ratio_to_default"]
    return operator_charts.Dot(
        name=shortened(name, 44),
        method=one["method"] if one["method"] in METHODS else "library",
        value=ratio,
        low=one.get("ratio_low") or ratio,
        high=one.get("ratio_high") or ratio,
        hover=f"{name}<br>{wording.ratio(ratio)} the speed of the {default_name()}"
        f"<br>{wording.duration_us(one.get('median_us'))}, as its race saw it",
    )
