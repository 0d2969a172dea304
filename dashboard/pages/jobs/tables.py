"""Tables of jobs and models: shown on pages and under charts, and exported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.urls import reverse

from catalog.selectors.jobs import Coverage, JobRow, JobSlot, OperatorRow, Saved
from dashboard.web.tables import Column, Table
from tuning.ingest import ReportedOperator as ModelRow


def jobs_table(rows: Iterable[JobRow], every: Iterable[JobRow] | None = None) -> Table:
    columns = (
        Column("name", "Job", link="url"),
        Column("organisation", "Organisation"),
        Column("operators", "Operators", "count"),
        Column("hits", "Hits", "count"),
        Column("misses", "Misses", "count"),
        Column("hit_rate", "Hit rate", "percent", figure="job_hit_rate"),
        Column("saved_us", "Saved", "us", figure="job_saved"),
        Column("last_at", "Last lookup", "when"),
    )

    def cells(row: JobRow) -> dict[str, Any]:
        return {
            "name": row.job.name, "organisation": row.job.organisation.name, "operators": row.operators,
            "hits": row.hits, "misses": row.misses, "hit_rate": row.hit_rate, "saved_us": row.saved_us,
            "last_at": row.last_at, "url": reverse("job", args=[row.job.pk]),
        }  # fmt: skip

    shown = [cells(row) for row in rows]
    return Table("jobs", "Jobs", columns, shown, "No job.", (cells(row) for row in every) if every else None)


def missing_table(coverage: Coverage) -> Table:
    """What is not covered, by reason."""
    columns = (
        Column("state", "State", "badge"),
        Column("reason", "Why it is missing"),
        Column("operators", "Operators", "count"),
        Column("calls", "Calls", "count"),
        Column("share", "Share of the calls", "percent"),
    )
    made = [
        {
            "state": one.state, "reason": one.reason, "operators": one.operators, "calls": one.calls,
            "share": one.calls / coverage.calls if coverage.calls else None,
        }
        for one in coverage.missing
    ]  # fmt: skip
    return Table("missing", "Not covered", columns, made, "Everything that was asked for is covered.")


def saved_table(rows: Sequence[Saved]) -> Table:
    """What hits saved, by method and in all."""
    columns = (
        Column("title", "Method", "method"),
        Column("hits", "Hits", "count"),
        Column("calls", "Calls", "count"),
        Column("default_us", "With the defaults", "us"),
        Column("served_us", "As served", "us"),
        Column("saved_us", "Saved", "us", figure="job_saved"),
        Column("speedup", "Speed-up", "ratio", figure="job_speedup"),
    )
    made = [
        {
            "title": one.method or "all", "method": one.method or "none", "hits": one.hits,
            "calls": one.calls, "default_us": one.default_us, "saved_us": one.saved_us,
            "served_us": one.default_us - one.saved_us, "speedup": one.speedup,
        }
        for one in rows
        if one.hits
    ]  # fmt: skip
    return Table("saved", "What the catalogue saved", columns, made, "Nothing was served to it yet.")


def days_table(slots: Sequence[JobSlot]) -> Table:
    columns = (
        Column("start", "Day (UTC)"),
        Column("library", "Library", "count"),
        Column("compiler", "Compiler", "count"),
        Column("manual", "Manual", "count"),
        Column("hits", "Hits", "count"),
        Column("saved_us", "Saved", "us", figure="job_saved"),
    )
    every = [
        {
            "start": f"{slot.start:%Y-%m-%d}", "hits": slot.all_hits, "saved_us": slot.saved_us,
            **{method: slot.hits.get(method, 0) for method in ("library", "compiler", "manual")},
        }
        for slot in slots
    ]  # fmt: skip
    shown = [row for row in reversed(every) if row["hits"]]
    return Table("days", "Day by day", columns, shown, "Nothing was served in this time.", every)


def job_operators_table(rows: Iterable[OperatorRow], every: Iterable[OperatorRow] | None = None) -> Table:
    columns = (
        Column("summary", "Operator", link="url"),
        Column("state", "Now", "badge"),
        Column("reason", "Reason"),
        Column("route", "Best", "method"),
        Column("median_us", "Time", "us"),
        Column("speedup", "Speed-up", "ratio"),
        Column("hits", "Hits", "count"),
        Column("misses", "Misses", "count", sort="misses"),
        Column("calls", "Calls", "count", sort="calls"),
        Column("saved_us", "Saved", "us", sort="saved"),
        Column("last_at", "Last asked", "when", sort="recent"),
    )

    def cells(row: OperatorRow) -> dict[str, Any]:
        best = row.best
        return {
            "summary": row.operator.summary, "state": row.state, "reason": row.reason,
            "route": best.route if best else None, "method": best.method if best else None,
            "median_us": best.median_us if best else None,
            "speedup": best.ratio_to_default if best else None, "hits": row.hits, "misses": row.misses,
            "calls": row.calls, "saved_us": row.saved_us, "last_at": row.last_at,
            "url": reverse("operator", args=[row.operator.key]),
        }  # fmt: skip

    shown = [cells(row) for row in rows]
    empty = "No operator passes."
    return Table(
        "operators", "Operators", columns, shown, empty, (cells(row) for row in every) if every else None
    )


def models_table(rows: Iterable[Any]) -> Table:
    """The list of models, for exports; rows have ``operator_count``."""
    columns = (
        Column("id", "Model"),
        Column("name", "Name"),
        Column("form", "Form"),
        Column("sha256", "Content"),
        Column("capability", "Target"),
        Column("setting", "Setting"),
        Column("operators", "Operators", "count"),
        Column("calls", "Calls", "count"),
        Column("hits_before", "Hit at first", "percent"),
        Column("created_at", "Given", "when"),
    )
    every = (
        {
            "id": row.pk, "name": row.name, "form": row.form, "sha256": row.sha256,
            "capability": row.target.capability, "setting": str(row.setting),
            "operators": row.operator_count, "calls": row.calls, "hits_before": row.hits_before,
            "created_at": row.created_at,
        }
        for row in rows
    )  # fmt: skip
    return Table("models", "Models", columns, (), every=every)


def model_operators_table(rows: Iterable[ModelRow], states: Mapping[int, str]) -> Table:
    """A model's operators, for exports."""
    keys = (
        "calls", "example", "status", "reason", "route", "method", "label", "median_us", "default_us",
        "ratio", "ratio_low", "ratio_high", "share",
    )  # fmt: skip
    columns = tuple(
        Column(key, key.replace("_", " ").capitalize()) for key in ("operator", "summary", *keys, "now")
    )
    every = (
        {
            "operator": row.operator.key,
            "summary": row.operator.summary,
            "now": states.get(row.operator.pk, row.status),
            **{key: getattr(row, key) for key in keys},
        }
        for row in rows
    )
    return Table("operators", "Operators", columns, (), every=every)
