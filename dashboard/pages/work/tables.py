"""Tables of explorations, queues, workers and misses: shown under charts, and exported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.urls import reverse

from dashboard.web.tables import Column, Table
from tuning.models import Exploration, Trial
from tuning.statistics.collecting import MissRow, ReasonRow
from tuning.statistics.queues import CapabilityQueue, HourSlot, Lane
from tuning.statistics.workers import WorkerRow


def explorations_table(rows: Iterable[Exploration]) -> Table:
    """The list's export: every filtered row, up to the bound of lists."""
    columns = (
        Column("id", "Exploration", "text", link="url"),
        Column("operator", "Operator", "code"),
        Column("summary", "Summary"),
        Column("capability", "Capability"),
        Column("scope", "Scope"),
        Column("state", "State", "badge"),
        Column("stage", "Stage"),
        Column("priority", "Priority"),
        Column("worth_us", "Worth", "us", figure="exploration_worth"),
        Column("first_result_s", "First result", "seconds", figure="time_to_first_result"),
        Column("spent_s", "Spent", "seconds", figure="exploration_spent"),
        Column("tries", "Tries", "count"),
        Column("lease_owner", "Lease owner"),
        Column("lease_expires_at", "Lease until", "when"),
        Column("reason", "Reason"),
        Column("error", "Error"),
        Column("asked_at", "Asked", "when"),
        Column("updated_at", "Moved", "when"),
        Column("finished_at", "Finished", "when"),
    )
    return Table("explorations", "Explorations", columns, (), every=(_exploration(row) for row in rows))


def _exploration(row: Exploration) -> dict[str, Any]:
    first_s = (row.first_result_at - row.asked_at).total_seconds() if row.first_result_at else None
    return {
        "id": row.pk, "operator": row.operator.key, "summary": row.operator.summary,
        "capability": row.capability, "scope": row.scope, "state": row.state,
        "stage": row.get_stage_display(), "priority": row.get_priority_display().lower(),
        "worth_us": row.worth, "first_result_s": first_s, "spent_s": row.spent_s, "tries": row.tries,
        "lease_owner": row.lease_owner, "lease_expires_at": row.lease_expires_at, "reason": row.reason,
        "error": row.error, "asked_at": row.asked_at, "updated_at": row.updated_at,
        "finished_at": row.finished_at, "url": reverse("exploration", args=[row.pk]),
    }  # fmt: skip


def trials_table(rows: Iterable[Trial]) -> Table:
    """Every trial of an exploration, failures included."""
    keys = (
        "id", "route", "method", "label", "stage", "round", "status", "detail", "median_us",
        "ratio_to_default", "ratio_low", "ratio_high", "max_error", "tolerance", "build_s", "took_s", "tier",
        "worker", "created_at", "log_tail",
    )  # fmt: skip
    columns = tuple(Column(key, key.replace("_", " ").capitalize()) for key in keys)
    return Table(
        "trials", "Trials", columns, (), every=({key: getattr(row, key) for key in keys} for row in rows)
    )


def lanes_table(lanes: Sequence[Lane]) -> Table:
    """Explore queues, in the order in which they are served."""
    columns = (
        Column("capability", "Capability"),
        Column("stage", "Stage"),
        Column("priority", "Priority", link="url"),
        Column("queued", "Queued", "count", figure="queue_depth"),
        Column("running", "Running", "count"),
        Column("paused", "Paused", "count"),
        Column("oldest_at", "Oldest", "when", figure="queue_oldest"),
        Column("worth_us", "Worth", "us", figure="queue_worth"),
    )
    link = reverse("explorations")
    rows = [
        {
            "capability": lane.capability, "stage": lane.stage_name, "priority": lane.priority_name,
            "queued": lane.queued, "running": lane.running, "paused": lane.paused,
            "oldest_at": lane.oldest_at, "worth_us": lane.worth_us if lane.queued else None,
            "url": f"{link}?state=active&stage={lane.stage}&priority={lane.priority}",
        }
        for lane in lanes
    ]  # fmt: skip
    return Table("lanes", "Explore queues", columns, rows, empty="Nothing is queued, runs or is paused.")


def capabilities_table(rows: Sequence[CapabilityQueue]) -> Table:
    """The same by capability, for exports; the page shows it with its buttons."""
    columns = (
        Column("capability", "Capability"),
        Column("workers", "Workers", "count"),
        Column("paused", "Paused, since"),
        Column("queued", "Queued", "count", figure="queue_depth"),
        Column("running", "Running", "count"),
        Column("held", "Paused one by one", "count"),
        Column("oldest_at", "Oldest", "when", figure="queue_oldest"),
        Column("worth_us", "Worth waiting", "us", figure="queue_worth"),
        Column("ended_last_hour", "Ended in the last hour", "count", figure="queue_ended"),
        Column("ended_last_day", "Ended in the last day", "count"),
        Column("drain_s", "Time to drain", "seconds", figure="time_to_drain"),
        Column("drain_how", "How it was estimated"),
    )
    made = [{column.key: getattr(row, column.key) for column in columns} for row in rows]
    return Table("capabilities", "By capability", columns, made)


def throughput_table(slots: Sequence[HourSlot]) -> Table:
    """What ended hour by hour, the latest first; hours without anything only in the export."""
    columns = (
        Column("start", "Hour from (UTC)"),
        Column("ended", "Ended", "count", figure="queue_ended"),
        Column("done", "Done", "count"),
        Column("unsupported", "Unsupported", "count"),
        Column("discarded", "Discarded", "count"),
        Column("dead", "Given up", "count"),
        Column("first_results", "First results", "count", figure="queue_first_results"),
    )
    every = [
        {column.key: getattr(slot, column.key) for column in columns}
        | {"start": f"{slot.start:%Y-%m-%d %H:%M}"}
        for slot in slots
    ]
    shown = [row for row in reversed(every) if row["ended"] or row["first_results"]]
    return Table("throughput", "Throughput", columns, shown, "Nothing ended in this time.", every)


def workers_table(rows: Sequence[WorkerRow]) -> Table:
    """Workers, for exports; the page shows them with their routes and leases."""
    columns = (
        Column("name", "Worker"),
        Column("host", "Host"),
        Column("state", "State", "badge"),
        Column("capability", "Capability"),
        Column("tier", "Sandbox"),
        Column("memory_bytes", "Memory", "bytes"),
        Column("doing", "Doing"),
        Column("holds", "Explorations held"),
        Column("slices_per_hour", "Capacity", "quantity", figure="worker_capacity"),
        Column("slices_last_hour", "Slices in the last hour", "count", figure="worker_slices"),
        Column("routes", "Routes"),
        Column("unavailable", "Not available"),
        Column("last_seen_at", "Heard", "when"),
    )
    made = [
        {
            "name": row.worker.name, "host": row.worker.host, "state": row.state,
            "capability": row.worker.target.capability, "tier": row.worker.tier,
            "memory_bytes": row.worker.memory_bytes, "doing": row.worker.doing,
            "holds": " ".join(str(held.id) for held in row.holds), "slices_per_hour": row.per_hour,
            "slices_last_hour": row.ended_last_hour,
            "routes": " ".join(name for name, _ in row.available),
            "unavailable": "; ".join(f"{name}: {facts.get('reason', '')}" for name, facts in row.unavailable),
            "last_seen_at": row.worker.last_seen_at,
        }
        for row in rows
    ]  # fmt: skip
    return Table("workers", "Workers", columns, made)


def reasons_table(rows: Sequence[ReasonRow], undecided: str) -> Table:
    """Why misses are not explored, with a link to each reason's list."""
    from urllib.parse import urlencode

    columns = (
        Column("state", "State", "badge"),
        Column("reason", "Reason", link="url"),
        Column("count", "Misses", "count", figure="collect_depth"),
        Column("oldest_at", "First asked", "when"),
        Column("latest_at", "Last asked", "when"),
    )
    link = reverse("collect")
    made = [
        {
            "state": row.state, "reason": row.reason or undecided, "count": row.count,
            "oldest_at": row.oldest_at, "latest_at": row.latest_at,
            "url": f"{link}?{urlencode({'state': row.state, 'reason': row.reason or undecided})}",
        }
        for row in rows
    ]  # fmt: skip
    return Table(
        "reasons", "Asked for, not explored now", columns, made, "Every miss is explored or about to be."
    )


def misses_table(rows: Iterable[MissRow]) -> Table:
    """The collect queue's export."""
    columns = (
        Column("id", "Miss"),
        Column("operator", "Operator", "code"),
        Column("summary", "Summary"),
        Column("state", "State", "badge"),
        Column("reason", "Reason"),
        Column("capability", "Capability"),
        Column("scope", "Scope"),
        Column("count", "Asked", "count"),
        Column("calls", "Calls", "count"),
        Column("related", "Only related"),
        Column("worth_us", "Worth", "us", figure="miss_worth"),
        Column("first_asked_at", "First asked", "when"),
        Column("last_asked_at", "Last asked", "when"),
    )
    every = (
        {
            "id": row.miss.pk, "operator": row.miss.operator.key, "summary": row.miss.operator.summary,
            "state": row.miss.state, "reason": row.miss.reason, "capability": row.miss.target.capability,
            "scope": row.miss.scope, "count": row.miss.count, "calls": row.miss.calls,
            "related": row.miss.related, "worth_us": row.worth_us,
            "first_asked_at": row.miss.first_asked_at, "last_asked_at": row.miss.last_asked_at,
        }
        for row in rows
    )  # fmt: skip
    return Table("misses", "Misses", columns, (), every=every)


def dead_table(shown: Iterable[Exploration], every: Iterable[Exploration]) -> Table:
    """Explorations that were given up, with their errors."""
    columns = (
        Column("summary", "Operator", link="url"),
        Column("capability", "Capability"),
        Column("tries", "Tries", "count"),
        Column("last_line", "Error"),
        Column("finished_at", "Given up", "when"),
    )

    def cells(row: Exploration) -> dict[str, Any]:
        lines = row.error.strip().splitlines()
        return {
            "summary": row.operator.summary, "capability": row.capability, "tries": row.tries,
            "last_line": lines[-1][:300] if lines else row.reason, "finished_at": row.finished_at,
            "url": reverse("exploration", args=[row.pk]),
        }  # fmt: skip

    rows = [cells(row) for row in shown]
    empty = "Nothing was given up."
    return Table("dead", "Dead letters", columns, rows, empty, (cells(row) for row in every))
