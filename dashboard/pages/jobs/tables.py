"""Tables of jobs and models: shown on pages and under charts, and exported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html

from catalog.selectors.jobs import Coverage, JobRow, JobSlot, Missing, OperatorRow, Prefetched, Saved
from dashboard.templatetags.opatlas import badge, times_100
from dashboard.web import wording
from dashboard.web.tables import Column, Table, exports, of_neighbours, operator_column, page
from tuning.ingest import ReportedOperator as ModelRow


def _named(row: JobRow) -> str:
    """No name that a job has looks like this: what is said for none is marked."""
    return row.job.name or format_html("<em>{}</em>", row.job.said)


_JOBS = (
    Column("name", "Job", value="job.name", show=_named, link=page("job", "job.pk"), css="lead"),
    Column("organisation", "Organisation", value="job.organisation.name", under="name"),
    Column("operators", "Operators", "count"),
    Column("hits", "Hits", "count"),
    Column("misses", "Misses", "count"),
    Column("hit_rate", "Hit rate", "percent", figure="job_hit_rate"),
    Column("cached_share", "From caches", "percent", figure="job_cached"),
    *exports("memory_hits", "machine_hits", "service_hits", "unasked_misses"),
    *exports(
        prefetched="prefetched.operators",
        prefetched_used="prefetched.used",
        prefetched_bytes="prefetched.bytes",
        prefetched_used_bytes="prefetched.used_bytes",
        prefetch_requests="prefetched.requests",
    ),
    Column("saved_us", "Saved", "us", figure="job_saved"),
    Column("last_at", "Last lookup", "when", css="number muted"),
)


def jobs_table(rows: Sequence[JobRow], every: Iterable[JobRow] | None = None) -> Table:
    return Table("jobs", "Jobs", _JOBS, rows, "No job.", every, css="stacks")


@dataclass(frozen=True)
class Portion:
    """One row of what makes a whole; ``mark`` is its colour in the picture beside."""

    mark: str
    title: str
    count: int
    share: float | None
    bytes: int = 0
    start: float = 0.0


def portions(whole: Sequence[tuple[str, str, int, int]]) -> list[Portion]:
    """Of (mark, title, count, bytes), with the shares of the counts and where each begins."""
    total, before, made = sum(one[2] for one in whole), 0, []
    for mark, title, count, size in whole:
        share = count / total if total else None
        made.append(Portion(mark, title, count, share, size, before / total if total else 0.0))
        before += count
    return made


def sources_table(row: JobRow) -> Table:
    """Who answered a job's lookups, the nearest first."""
    made = portions(
        [
            ("memory", "A process's memory", row.memory_hits, 0),
            ("machine", "A machine's cache", row.machine_hits, 0),
            ("service", "The service", row.service_hits, 0),
            ("missed", "Nobody (the service has none)", row.misses - row.unasked_misses, 0),
            ("unasked", "Nobody (it was not asked)", row.unasked_misses, 0),
        ]
    )
    columns = (
        Column("source", "Answered by", show=_marked, value="title"),
        Column("lookups", "Lookups", "count", "count"),
        Column("share", "Share", "percent"),
    )
    return Table("sources", "Who answered", columns, made if row.lookups else [], "It asked for nothing yet.")


def prefetched_table(found: Prefetched) -> Table:
    """What came along, used and not."""
    made = portions(
        [
            ("used", "Used", found.used, found.used_bytes),
            ("wasted", "Not used", found.wasted, found.wasted_bytes),
        ]
    )
    columns = (
        Column("outcome", "Came along", show=_marked, value="title"),
        Column("operators", "Operators", "count", "count"),
        Column("bytes", "Bytes", "bytes"),
        Column("share", "Share", "percent", figure="prefetched_used"),
    )
    return Table("prefetched", "Fetched for later", columns, made if found.operators else [])


def _marked(one: Portion) -> str:
    return format_html('<span class="swatch" data-part="{}"></span>{}', one.mark, one.title)


def missing_table(coverage: Coverage) -> Table:
    """What is not covered, by reason."""

    def share(one: Missing) -> float | None:
        return one.calls / coverage.calls if coverage.calls else None

    columns = (
        Column("state", "State", "badge"),
        Column("reason", "Why it is missing", css="lead"),
        Column("operators", "Operators", "count"),
        Column("calls", "Calls", "count"),
        Column("share", "Share of the calls", "percent", share),
    )
    empty = "Everything that was asked for is covered."
    return Table("missing", "Not covered", columns, coverage.missing, empty)


_SAVED = (
    Column(
        "title", "Method", "method", lambda one: one.method or "all", beside=lambda one: one.method or "none"
    ),
    Column("hits", "Hits", "count"),
    Column("calls", "Calls", "count"),
    Column("default_us", "With the defaults", "us"),
    Column("served_us", "As served", "us", lambda one: one.default_us - one.saved_us),
    Column("saved_us", "Saved", "us", figure="job_saved"),
    Column("speedup", "Speed-up", "ratio", figure="job_speedup"),
)


def saved_table(rows: Sequence[Saved]) -> Table:
    """What hits saved, by method and in all."""
    shown = [one for one in rows if one.hits]
    return Table("saved", "What the catalogue saved", _SAVED, shown, "Nothing was served to it yet.")


_DAYS = (
    Column("start", "Day (UTC)", value=lambda slot: f"{slot.start:%Y-%m-%d}"),
    Column("library", "Library", "count", lambda slot: slot.hits.get("library", 0)),
    Column("compiler", "Compiler", "count", lambda slot: slot.hits.get("compiler", 0)),
    Column("manual", "Manual", "count", lambda slot: slot.hits.get("manual", 0)),
    Column("hits", "Hits", "count", "all_hits"),
    Column("cached_hits", "From caches", "count"),
    Column("saved_us", "Saved", "us", figure="job_saved"),
)


def days_table(slots: Sequence[JobSlot]) -> Table:
    shown = [slot for slot in reversed(slots) if slot.all_hits]
    return Table("days", "Day by day", _DAYS, shown, "Nothing was served in this time.", slots)


_JOB_OPERATORS = (
    operator_column("summary"),
    Column("state", "Now", "badge"),
    Column("reason", "Reason"),
    Column("route", "Best", "method", "best.route", beside="best.method"),
    Column("median_us", "Time", "us", "best.median_us"),
    Column("speedup", "Speed-up", "ratio", "best.ratio_to_default"),
    Column("hits", "Hits", "count"),
    of_neighbours("hits"),
    Column("misses", "Misses", "count", sort="misses"),
    Column("calls", "Calls", "count", sort="calls"),
    Column("saved_us", "Saved", "us", sort="saved"),
    Column("last_at", "Last asked", "when", sort="recent"),
)


def job_operators_table(rows: Sequence[OperatorRow], every: Iterable[OperatorRow] | None = None) -> Table:
    return Table("operators", "Operators", _JOB_OPERATORS, rows, "No operator passes.", every)


_MODELS = (
    Column("id", value="pk", only="export"),
    Column("name", "Model", link=page("model"), css="wide-text lead"),
    Column("form", "Form", css="spare"),
    Column("sha256", "Content", show=lambda row: row.sha256[:12], under="name", css="mono"),
    Column("capability", "Target", value="target.capability", css="nowrap", label="", room_px=150),
    Column("setting", "Setting", value=lambda row: row.setting.on(row.target), under="capability"),
    Column("operators", "Operators", "count", "operator_count"),
    Column("calls", "Calls", "count"),
    Column("hits_before", "Hit at first", "percent"),
    Column("created_at", "Given", "when", css="number muted", label=""),
)


def models_table(rows: Sequence[Any], every: Iterable[Any]) -> Table:
    """The list of models; rows have ``operator_count``."""
    return Table("models", "Models", _MODELS, rows, every=every, css="stacks")


def model_operators_table(
    rows: Sequence[ModelRow], every: Sequence[ModelRow], states: Mapping[int, str], first_rows: int
) -> Table:
    """A model's operators; on a telephone those after the first ones are folded away."""

    def now(row: ModelRow) -> str:
        return states.get(row.operator.pk, row.status)

    columns = (
        Column("operator", value="operator.key", only="export"),
        operator_column("summary", "name"),
        Column("calls", "Calls", "count"),
        Column("example", "Example", under="summary", css="clip-wide mono"),
        Column("status", "Status", show=lambda row: badge(now(row)), css=_kept, label="", room_px=210),
        Column("reason", "Reason", under="status", css="clip"),
        Column("route", "Best", "method", spare=True, room_px=210),
        *exports("method"),
        Column("label", "Variant", under="route", css="clip"),
        Column("median_us", "Time", "us", spare=True),
        Column("default_us", "Default", "us", figure="default_time", css="muted", spare=True),
        Column("ratio", "Speed-up", "speedup", beside="ratio", css="keep", spare=True),
        *exports("ratio_low", "ratio_high"),
        Column("share", "Share of the time", "percent", show=_share, spare=True, label="Share", room_px=122),
        Column("now", value=now, only="export"),
    )
    beyond = {row.operator.pk for row in rows[first_rows:]}
    return Table(
        "operators",
        "Operators",
        columns,
        rows,
        every=every,
        css="stacks lines",
        row_css=lambda row: "beyond" if row.operator.pk in beyond else "",
    )


def _kept(row: ModelRow) -> str:
    return "" if row.status == "hit" else "keep"


def _share(row: ModelRow) -> str:
    if row.share is None:
        return ""
    return format_html(
        '{}<svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect width="{}" height="10"></rect></svg>',
        wording.percent(row.share),
        times_100(row.share),
    )
