"""One operator's tables: what its page shows and exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from catalog.charging import Terms
from catalog.models import Operator
from catalog.selectors.detail import RankedImplementation
from catalog.selectors.reuse import OperatorReuse
from catalog.selectors.traffic import LookupSlot
from dashboard.pages.operators.history import TimelineEntry
from dashboard.templatetags.opatlas import badge
from dashboard.web import wording
from dashboard.web.charts.methods import Point
from dashboard.web.paging import with_query
from dashboard.web.tables import Column, Table, read
from tuning.models import TuningSlice
from tuning.statistics.comparing import Comparison, share
from tuning.statistics.sides import Side, SideBySide


def _evidence(made: str = "") -> tuple[Column, ...]:
    """What was measured; ``made`` is the path to the implementation with its measurement."""
    m = f"{made}measurement"
    return (
        Column("median_us", "Time", "us", f"{m}.median_us"),
        Column(
            "spread_us", "Spread", "us", f"{m}.spread_us", under="median_us", show=lambda row: _spread(row, m)
        ),
        Column("default_us", "Default", "us", f"{m}.default_us", only="export"),
        Column(
            "ratio_to_default",
            "Over the default",
            "speedup",
            f"{m}.ratio_to_default",
            beside=lambda row: (read(row, f"{m}.ratio_low"), read(row, f"{m}.ratio_high")),
            figure="operator_speedup",
        ),
        Column("ratio_low", "from", "ratio", f"{m}.ratio_low", only="export"),
        Column("ratio_high", "to", "ratio", f"{m}.ratio_high", only="export"),
    )


def _spread(row: object, measurement: str) -> str:
    spread_us = read(row, f"{measurement}.spread_us")
    return "" if spread_us is None else f"± {wording.duration_us(spread_us)}"


def sides(of: SideBySide, request: HttpRequest) -> Table:
    """Library, compiler and manual: the best of each."""

    def verdict(side: Side) -> str:
        return side.sentence if side.against_best else _FASTEST

    def code(side: Side) -> str:
        return with_query(request, page=None, implementation=side.made.implementation.pk) + "#code"

    columns = (
        Column("method", "Method", "method"),
        Column("route", "Its best", value="made.implementation.route", link=code, css="wide-text lead"),
        Column("label", "Variant", value="made.implementation.label", under="route"),
        *_evidence("made."),
        Column("samples", "Samples", "count", "made.samples"),
        Column(
            "verdict",
            "Compared with the best",
            value=lambda side: side.sentence or "The fastest known.",
            show=verdict,
            css="wide-text verdict lead",
            figure="comparison",
        ),
    )
    first = of.sides[0] if of.sides else None
    return Table(
        "methods",
        "Methods side by side",
        columns,
        of.sides,
        "No method has a verified one yet.",
        css="stacks",
        row_css=lambda side: "best" if side is first else "",
    )


_FASTEST = format_html("<strong>{}</strong>", "The fastest known here.")


def implementations(
    made: Sequence[RankedImplementation],
    against: Mapping[int, Comparison],
    terms: Mapping[int, Terms],
    operator: Operator,
    chosen: RankedImplementation | None = None,
) -> Table:
    def compared(one: RankedImplementation) -> Comparison | None:
        return against.get(one.implementation.pk)

    def price(one: RankedImplementation) -> str:
        found = terms.get(one.implementation.pk)
        return found.sentence if found else ""

    def priced(one: RankedImplementation) -> str:
        found = terms.get(one.implementation.pk)
        if found is None:
            return ""
        withheld = badge("revoked", "withheld") if found.withheld else ""
        pay = "Pay" if found.withheld else "Price"
        return format_html('{} {} <a href="{}">{}</a>', withheld, found.sentence, found.pay_url, pay)

    def verdict(one: RankedImplementation) -> str:
        found = compared(one)
        return found.verdict if found else "best" if one.rank == 0 else ""

    def code(one: RankedImplementation) -> str:
        path = reverse("operator-code", args=[operator.key, one.implementation.pk])
        text = '<a class="button small" href="{}">Code<span class="visually-hidden"> of {}</span></a>'
        return format_html(text, path, one.implementation)

    def marked(one: RankedImplementation) -> str:
        return "best" if one.rank == 0 else "chosen" if one is chosen else ""

    columns = (
        Column(
            "rank",
            "Rank",
            value=lambda one: None if one.rank is None else one.rank + 1,
            show=_rank,
            css="nowrap",
            label="",
        ),
        Column(
            "route", "Route and versions", "method", "implementation.route", beside="implementation.method"
        ),
        Column("label", "Variant", value="implementation.label", show=_variant, css="variant lead"),
        Column(
            "environment",
            "Versions",
            value=lambda one: str(one.implementation.environment),
            under="route",
            css="clip",
        ),
        *_evidence(),
        Column("samples", "Samples", "count", only="export"),
        Column(
            "against_best",
            "Against the best",
            "ratio",
            lambda one: read(compared(one), "factor"),
            show=lambda one: _against(compared(one)),
            css="nowrap",
            figure="comparison",
        ),
        Column("against_low", "from", "ratio", lambda one: read(compared(one), "low"), only="export"),
        Column("against_high", "to", "ratio", lambda one: read(compared(one), "high"), only="export"),
        Column("verdict", "Verdict", value=verdict, only="export"),
        Column(
            "confidence",
            "Confidence",
            value=lambda one: share(found.confidence) if (found := compared(one)) else "",
            only="export",
        ),
        Column("max_error", "Error", "scientific", "measurement.max_error", css="spare"),
        Column(
            "tolerance", "Tolerance", value="measurement.tolerance", show=_of_tolerance, under="max_error"
        ),
        Column("prepare_us", "Prepare", "us", "measurement.prepare_us", only="export"),
        Column("prepare_bytes", "Prepared", "bytes", "measurement.prepare_bytes", only="export"),
        Column(
            "artifact",
            "Artifact",
            "code",
            "implementation.artifact.sha256",
            show=_artifact,
            css="nowrap spare",
        ),
        Column("kind", "Kind", value="implementation.artifact.kind", only="export"),
        Column(
            "tier",
            "Sandbox",
            value=lambda one: one.measurement.tier if one.measurement else "",
            only="export",
        ),
        Column(
            "build_s",
            "Build",
            "seconds",
            "implementation.build_s",
            under="measured_at",
            show=lambda one: f"built in {wording.duration_s(one.implementation.build_s)}",
        ),
        Column("measured_at", "Measured", "when", "measurement.created_at", css="number muted spare nowrap"),
        Column("price", "Price", value=price, show=priced, under="label"),
        Column("implementation", "Number", "count", "implementation.pk", only="export"),
        Column("code", "Code", "actions", show=code, only="page", css="end"),
    )
    return Table(
        "implementations",
        "Implementations",
        columns,
        made,
        css="stacks implementations",
        row_css=marked,
        row_id=lambda one: f"i{one.implementation.pk}",
    )


def _rank(one: RankedImplementation) -> str:
    if one.rank == 0:
        return badge("hit", "best")
    if one.rank is not None:
        return f"{one.rank + 1}"
    return format_html('<span class="faint" title="{}">–</span>', "Another candidate of this route is faster")


def _variant(one: RankedImplementation) -> str:
    private = format_html(' <span class="chip">{}</span>', "private")
    return format_html(
        "{}{}", one.implementation.label, "" if one.implementation.scope == "shared" else private
    )


def _against(compared: Comparison | None) -> str:
    if compared is None:
        return ""
    if compared.verdict == "incomparable":
        text = '<span class="faint" title="{}">not comparable</span>'
        return format_html(text, "Timed against another default")
    factor: str = "no difference"
    if compared.verdict != "same":
        factor = format_html('<span class="{}">{}</span>', compared.verdict, wording.ratio(compared.factor))
    low, high = wording.ratio(compared.low), wording.ratio(compared.high)
    return format_html('{}<span class="sub">{} – {}</span>', factor, low, high)


def _of_tolerance(one: RankedImplementation) -> str:
    return f"of {wording.scientific(one.measurement.tolerance)}" if one.measurement else ""


def _artifact(one: RankedImplementation) -> SafeString:
    artifact, m, how = one.implementation.artifact, one.measurement, ""
    if m is not None:
        prepared = f"{wording.duration_us(m.prepare_us)}, {wording.quantity(m.prepare_bytes, 'B')}"
        how = f", measured in sandbox tier {m.tier}; prepared in {prepared}"
    text = '<span title="{}{}">{}<span class="sub mono">{}</span></span>'
    return format_html(text, artifact.sha256, how, artifact.kind, artifact.sha256[:8])


_LEADERS = (
    Column("at", "Since", "when"),
    Column("name", "Who led", "method"),
    Column("ratio", "Over the default", "ratio", figure="operator_speedup"),
    Column("low", "from", "ratio"),
    Column("high", "to", "ratio"),
    Column("reason", "Why"),
)


def leaders(points: Sequence[Point]) -> Table:
    return Table("best", "The best over time", _LEADERS, points[::-1], "No best yet.")


_EVENTS = (
    Column("at", "At", "when"),
    Column("kind", "Kind"),
    Column("method", "Method"),
    Column("route", "Route"),
    Column("title", "Title"),
    Column("detail", "Detail"),
    Column("environment", "Environment"),
)


def events(found: Sequence[TimelineEntry]) -> Table:
    return Table("history", "What happened to the best", _EVENTS, found)


_JOBS = (
    Column("job", "Job", value="job.name"),
    Column("hits", "Hits", "count"),
    Column("misses", "Misses", "count"),
    Column("last_at", "Last asked", "when"),
)


def jobs(reuse: OperatorReuse) -> Table:
    return Table("jobs", "Jobs", _JOBS, reuse.jobs, "No job has used it yet.")


_MODELS = (
    Column("model", "Model", value="model.name", link=lambda row: reverse("model", args=[row.model_id])),
    Column("example", "As"),
    Column("calls", "Calls of a run", "count"),
)


def models(reuse: OperatorReuse) -> Table:
    return Table("models", "Models", _MODELS, reuse.models, "No model has it.")


_LOOKUPS = (
    Column("start", "From", "when"),
    Column("hits", "Hits", "count"),
    Column("misses", "Misses", "count"),
    Column("hit_rate", "Hit rate", "percent", figure="hit_rate"),
)


def lookups(slots: Sequence[LookupSlot]) -> Table:
    every = slots[::-1]
    return Table(
        "lookups", "Lookups", _LOOKUPS, [one for one in every if one.hit_rate is not None], every=every
    )


_SLICES = (
    Column("at", "When", "when", "created_at"),
    Column("route", "Route"),
    Column("expected", "Expected", "percent", "expected_gain"),
    Column("gained", "Gained", "percent"),
    Column("seconds", "Took", "seconds"),
    Column("after_us", "Time after", "us"),
)


def slices(rows: Sequence[TuningSlice]) -> Table:
    return Table("slices", "Slices of tuning", _SLICES, rows, "It was not tuned yet.")
