"""One operator's tables: what its page shows and exports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse

from catalog.charging import Terms
from catalog.models import Operator
from catalog.selectors.detail import RankedImplementation
from catalog.selectors.reuse import OperatorReuse
from catalog.selectors.traffic import LookupSlot
from dashboard.pages.operators.history import TimelineEntry
from dashboard.web.charts.methods import Point
from dashboard.web.tables import Column, Table
from opatlas.evidence import TIMES
from tuning.models import Trial, TuningSlice
from tuning.statistics.comparing import Comparison, share
from tuning.statistics.sides import SideBySide

_RATIOS = (
    Column("median_us", "Time", "us"),
    Column("spread_us", "Spread", "us"),
    Column("default_us", "Default", "us"),
    Column("ratio_to_default", "Over the default", "ratio", figure="operator_speedup"),
    Column("ratio_low", "from", "ratio"),
    Column("ratio_high", "to", "ratio"),
    Column("samples", "Samples", "count"),
)


def sides(of: SideBySide) -> Table:
    """Library, compiler and manual: the best of each."""
    columns = [
        Column("method", "Method", "method"), Column("route", "Route"), Column("label", "Variant"), *_RATIOS,
        Column("verdict", "Compared with the best", figure="comparison"),
    ]  # fmt: skip
    rows = [
        _evidence(side.made)
        | {
            "method": side.method, "route": side.made.implementation.route,
            "label": side.made.implementation.label,
            "verdict": side.sentence or "The fastest known.",
        }
        for side in of.sides
    ]  # fmt: skip
    return Table("methods", "Methods side by side", columns, rows, empty="No method has a verified one yet.")


def implementations(
    made: Sequence[RankedImplementation],
    against: Mapping[int, Comparison],
    terms: Mapping[int, Terms],
    operator: Operator,
) -> Table:
    columns = [
        Column("rank", "Rank", "count"), Column("route", "Route", "method"), Column("label", "Variant"),
        Column("environment", "Versions"), *_RATIOS,
        Column("against_best", "Against the best", "ratio", figure="comparison"),
        Column("against_low", "from", "ratio"), Column("against_high", "to", "ratio"),
        Column("verdict", "Verdict"), Column("confidence", "Confidence", figure="comparison_confidence"),
        Column("max_error", "Error"), Column("tolerance", "Tolerance"),
        Column("prepare_us", "Prepare", "us"), Column("prepare_bytes", "Prepared", "bytes"),
        Column("artifact", "Artifact", "code"), Column("kind", "Kind"), Column("tier", "Sandbox"),
        Column("build_s", "Build", "seconds"), Column("measured_at", "Measured", "when"),
        Column("price", "Price"), Column("implementation", "Number", "count"),
    ]  # fmt: skip
    rows = [_implementation(one, against.get(one.implementation.pk), terms) for one in made]
    return Table("implementations", "Implementations", columns, rows)


def _implementation(
    one: RankedImplementation, comparison: Comparison | None, terms: Mapping[int, Terms]
) -> dict[str, Any]:
    i, m = one.implementation, one.measurement
    price = terms.get(i.pk)
    return _evidence(one) | {
        "rank": None if one.rank is None else one.rank + 1, "route": i.route, "method": i.method,
        "label": i.label, "environment": str(i.environment),
        "against_best": comparison.factor if comparison else None,
        "against_low": comparison.low if comparison else None,
        "against_high": comparison.high if comparison else None,
        "verdict": comparison.verdict if comparison else "best" if one.rank == 0 else "",
        "confidence": share(comparison.confidence) if comparison else "",
        "max_error": m.max_error if m else None, "tolerance": m.tolerance if m else None,
        "prepare_us": m.prepare_us if m else None, "prepare_bytes": m.prepare_bytes if m else None,
        "artifact": i.artifact.sha256, "kind": i.artifact.kind, "tier": m.tier if m else "",
        "build_s": i.build_s, "measured_at": m.created_at if m else None,
        "price": price.sentence if price else "", "implementation": i.pk,
    }  # fmt: skip


def _evidence(one: RankedImplementation) -> dict[str, Any]:
    m = one.measurement
    return {name: getattr(m, name) if m else None for name in TIMES} | {"samples": one.samples}


def trials(rows: QuerySet[Trial]) -> Table:
    """Those that the filters leave; the page shows them in its own form."""
    columns = [
        Column("trial", "Trial", "count"), Column("route", "Route", "method"), Column("label", "Variant"),
        Column("stage", "Stage"), Column("round", "Round", "count"), Column("status", "Ended", "badge"),
        Column("detail", "What happened"), Column("median_us", "Time", "us"),
        Column("ratio_to_default", "Over the default", "ratio"), Column("ratio_low", "from", "ratio"),
        Column("ratio_high", "to", "ratio"), Column("max_error", "Error"), Column("tolerance", "Tolerance"),
        Column("build_s", "Build", "seconds"), Column("took_s", "Took", "seconds"),
        Column("worker", "Worker"), Column("ended_at", "When", "when"),
    ]  # fmt: skip
    return Table("trials", "Trials", columns, [], every=_trials(rows))


def _trials(rows: QuerySet[Trial]) -> Iterable[dict[str, Any]]:
    for one in rows.iterator(chunk_size=500):
        yield {
            "trial": one.pk, "route": one.route, "method": one.method, "label": one.label,
            "stage": one.get_stage_display(), "round": one.round, "status": one.status, "detail": one.detail,
            "median_us": one.median_us, "ratio_to_default": one.ratio_to_default,
            "ratio_low": one.ratio_low, "ratio_high": one.ratio_high, "max_error": one.max_error,
            "tolerance": one.tolerance, "build_s": one.build_s, "took_s": one.took_s, "worker": one.worker,
            "ended_at": one.created_at,
        }  # fmt: skip


def leaders(points: Sequence[Point]) -> Table:
    columns = [
        Column("at", "Since", "when"), Column("name", "Who led", "method"),
        Column("ratio", "Over the default", "ratio", figure="operator_speedup"),
        Column("low", "from", "ratio"), Column("high", "to", "ratio"), Column("reason", "Why"),
    ]  # fmt: skip
    rows = [
        {"at": one.at, "name": one.name, "method": one.method, "ratio": one.ratio, "low": one.low,
         "high": one.high, "reason": one.reason}
        for one in reversed(points)
    ]  # fmt: skip
    return Table("best", "The best over time", columns, rows, empty="No best yet.")


def events(found: Sequence[TimelineEntry]) -> Table:
    names = ("at", "kind", "method", "route", "title", "detail", "environment")
    rows = [{name: getattr(one, name) for name in names} for one in found]
    columns = [Column(name, name.capitalize(), "when" if name == "at" else "text") for name in names]
    return Table("history", "What happened to the best", columns, rows)


def jobs(reuse: OperatorReuse) -> Table:
    columns = [
        Column("job", "Job"), Column("hits", "Hits", "count"), Column("misses", "Misses", "count"),
        Column("last_at", "Last asked", "when"),
    ]  # fmt: skip
    rows = [
        {"job": row.job.name, "hits": row.hits, "misses": row.misses, "last_at": row.last_at}
        for row in reuse.jobs
    ]
    return Table("jobs", "Jobs", columns, rows, empty="No job has used it yet.")


def models(reuse: OperatorReuse) -> Table:
    columns = [
        Column("model", "Model", link="address"), Column("example", "As"),
        Column("calls", "Calls of a run", "count"),
    ]  # fmt: skip
    rows = [
        {"model": row.model.name, "example": row.example, "calls": row.calls,
         "address": reverse("model", args=[row.model_id])}
        for row in reuse.models
    ]  # fmt: skip
    return Table("models", "Models", columns, rows, empty="No model has it.")


def lookups(slots: Sequence[LookupSlot]) -> Table:
    columns = [
        Column("start", "From", "when"), Column("hits", "Hits", "count"), Column("misses", "Misses", "count"),
        Column("hit_rate", "Hit rate", "percent", figure="hit_rate"),
    ]  # fmt: skip
    rows = [
        {"start": one.start, "hits": one.hits, "misses": one.misses, "hit_rate": one.hit_rate}
        for one in reversed(slots)
    ]
    return Table(
        "lookups", "Lookups", columns, [row for row in rows if row["hit_rate"] is not None], every=rows
    )


def slices(rows: Sequence[TuningSlice]) -> Table:
    columns = [
        Column("at", "When", "when"), Column("route", "Route"), Column("expected", "Expected", "percent"),
        Column("gained", "Gained", "percent"), Column("seconds", "Took", "seconds"),
        Column("after_us", "Time after", "us"),
    ]  # fmt: skip
    made = [
        {"at": one.created_at, "route": one.route, "expected": one.expected_gain, "gained": one.gained,
         "seconds": one.seconds, "after_us": one.after_us}
        for one in rows
    ]  # fmt: skip
    return Table("slices", "Slices of tuning", columns, made, empty="It was not tuned yet.")
