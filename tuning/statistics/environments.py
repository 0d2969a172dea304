"""Any two environments of a target side by side: what became better or worse, beyond noise.

Paired by (operator, setting, scope, route, candidate): the same code, built and timed with other versions.
Both ratios are against the default of their own day; where that had other versions too, the pair says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import Exists, Max, OuterRef, Q, Subquery

from catalog.models import Environment, Implementation, Measurement, Setting, Target
from tuning.statistics.comparing import Comparison, Taken, compare

PAIRS = 2_000
"""Implementations of the second environment that are looked at: the latest."""
_VERDICTS = {"faster": "better", "slower": "worse", "same": "same"}
_ORDER = {"worse": 0, "better": 1, "same": 2}


@dataclass(frozen=True)
class Known:
    """An environment with evidence on a target, and one route that it is of."""

    environment: Environment
    route: str

    def __str__(self) -> str:
        return f"{self.route}: {self.environment}"


@dataclass(frozen=True)
class Pair:
    """One candidate measured in both. ``change`` is B against A: a factor above 1 is faster in B."""

    operator: str  # its key
    summary: str
    setting: str
    route: str
    method: str
    label: str
    ratio_a: float
    ratio_b: float
    change: Comparison
    default_changed: bool
    scope: str

    @property
    def verdict(self) -> str:
        return _VERDICTS[self.change.verdict]


@dataclass(frozen=True)
class Compared:
    """A against B: every pair, regressions first, then improvements; the largest change first."""

    pairs: Sequence[Pair]
    looked_at: int  # implementations of B
    most: int = PAIRS

    @property
    def counts(self) -> Counter[str]:
        return Counter(pair.verdict for pair in self.pairs)

    @property
    def change(self) -> float | None:
        """Geometric mean of the factors."""
        if not self.pairs:
            return None
        return math.exp(sum(math.log(pair.change.factor) for pair in self.pairs) / len(self.pairs))

    @property
    def default_changed(self) -> int:
        return sum(pair.default_changed for pair in self.pairs)

    @property
    def sentence(self) -> str:
        count = len(self.pairs)
        if not count:
            return "No candidate was measured in both environments, so nothing can be compared."
        n = self.counts
        said = f"{count} candidate{'s' * (count > 1)} measured in both: {n['worse']} worse, "
        said += f"{n['better']} better, {n['same']} with no significant difference"
        return f"{said}. On the geometric mean B is {self.change:.3f}× as fast as A."


def known(target: Target, seen: Q, limit: int = 200) -> list[Known]:
    """Environments with evidence on this target that may be seen, the latest first."""
    made = Implementation.objects.filter(seen, target=target, environment=OuterRef("pk"))
    rows = (
        Environment.objects.filter(Exists(made))
        .annotate(route=Subquery(made.order_by("pk").values("route")[:1]))
        .order_by("-pk")
    )
    return [Known(row, str(row.route)) for row in rows[:limit]]


def suggested(of: Sequence[Known]) -> tuple[Known, Known] | None:
    """The newest environment and the latest one before it of the same packages: (earlier, newest)."""
    for number, newer in enumerate(of):
        for older in of[number + 1 :]:
            if set(older.environment.versions) & set(newer.environment.versions):
                return older, newer
    return None


def compare_environments(target: Target, a: Environment, b: Environment, seen: Q) -> Compared:
    """``seen``: which scopes may be seen (``viewer.shown()``)."""
    twin = Implementation.objects.filter(
        operator=OuterRef("operator"), target=target, setting=OuterRef("setting"), scope=OuterRef("scope"),
        route=OuterRef("route"), candidate_sha256=OuterRef("candidate_sha256"), environment=a,
    )  # fmt: skip
    chosen = (
        Implementation.objects.filter(seen, target=target, environment=b)
        .annotate(twin=Subquery(twin.values("pk")[:1]))
        .order_by("-pk")
        .values_list(
            "pk", "twin", "route", "method", "label", "scope", "operator__key", "operator__summary", "setting"
        )
    )[:PAIRS]
    rows = list(chosen)
    both = [row for row in rows if row[1] is not None and row[1] != row[0]]
    evidence = _evidence([number for row in both for number in row[:2]])
    words = {one.pk: one.on(target) for one in Setting.objects.filter(pk__in={row[-1] for row in both})}
    pairs = [
        _pair(row, words[row[-1]], evidence[row[1]], evidence[row[0]])
        for row in both
        if row[0] in evidence and row[1] in evidence
    ]
    pairs.sort(key=_first)
    return Compared(pairs, len(rows))


def _first(pair: Pair) -> tuple[int, float, str]:
    size = abs(math.log(pair.change.factor))
    return _ORDER[pair.verdict], -size, pair.operator


def _pair(row: tuple, setting: str, a: Measurement, b: Measurement) -> Pair:
    _, _, route, method, label, scope, key, summary, _ = row
    return Pair(
        operator=key,
        summary=summary,
        setting=setting,
        route=route,
        method=method,
        label=label,
        ratio_a=a.ratio_to_default,
        ratio_b=b.ratio_to_default,
        # Each against the default of its day: another default is said, not refused.
        change=compare(_taken(b), _taken(a)),
        default_changed=a.against != b.against and bool(a.against and b.against),
        scope=scope,
    )


def _taken(m: Measurement) -> Taken:
    return Taken(m.ratios, len(m.samples_us))


def _evidence(implementations: Iterable[int]) -> dict[int, Measurement]:
    """Implementation → its newest measurement."""
    numbers = list(implementations)
    found: dict[int, Measurement] = {}
    for start in range(0, len(numbers), 500):
        part = numbers[start : start + 500]
        newest = (
            Measurement.objects.filter(implementation__in=part)
            .values("implementation")
            .annotate(newest=Max("pk"))
            .order_by()
            .values_list("newest", flat=True)
        )
        for row in Measurement.objects.filter(pk__in=list(newest)):
            found[row.implementation_id] = row
    return found
