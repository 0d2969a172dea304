"""Tables of explorations, queues, workers and misses: shown on pages and under charts, and exported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.html import format_html, format_html_join

from dashboard.pages.work.progress import first_result_s, happening, left, steps
from dashboard.templatetags.opatlas import badge
from dashboard.web import wording
from dashboard.web.tables import Column, Table, exports, operator_column, page, read
from tuning.models import Exploration, Recheck
from tuning.statistics.collecting import MissRow, ReasonRow
from tuning.statistics.eta import Eta
from tuning.statistics.queues import CapabilityQueue, HourSlot, Lane
from tuning.statistics.shares import OrganisationShare


def explorations_table(
    rows: Sequence[Exploration],
    every: Iterable[Exploration],
    mine: Set[int],
    etas: Mapping[int, Eta],
) -> Table:
    """``mine``: those that the viewer may act on; ``etas``: what is left of those that run."""

    def eta(row: Exploration) -> Eta | None:
        return etas.get(row.pk)

    columns = (
        *_tick("", mine),
        *exports(id="pk"),
        Column("operator", "Key", value="operator.key", show=_short_key, under="summary", css="mono"),
        Column("summary", "Operator", "name", "operator.summary", link=page("exploration")),
        *exports("capability", "scope"),
        Column("state", "State", "badge"),
        *exports(stage=lambda row: row.get_stage_display()),
        Column("progress", "Progress", show=_steps, css="progress-cell", label="", only="page"),
        Column("happening", "Now", value=happening, under="progress", only="page"),
        Column("left", "Time left", show=lambda row: _left(eta(row)), under="progress", only="page"),
        Column("priority", "Priority", value="priority_name", sort="priority"),
        Column("worth_us", "Worth", "us", "worth", show=_worth, css="spare", sort="worth"),
        Column("first_result_s", "First result", "seconds", first_result_s, figure="time_to_first_result"),
        Column("spent_s", "Spent", "seconds", sort="spent"),
        Column("tries", "Tries", "count", show=_tries, under="state"),
        *exports("lease_owner", "lease_expires_at", "reason", "error"),
        Column("asked_at", "Asked", "when", css="number muted spare", sort="asked"),
        Column("updated_at", "Moved", "when", css="number muted", sort="recent"),
        *exports("finished_at"),
    )
    return Table("explorations", "Explorations", columns, rows, every=every, css="stacks")


def _short_key(row: Any) -> str:
    return wording.short_key(row.operator.key)


def _steps(row: Exploration) -> str:
    marks = format_html_join(
        "", '<li title="{}" data-state="{}"></li>', ((step["name"], step["state"]) for step in steps(row))
    )
    return format_html('<ol class="stages tiny" aria-hidden="true">{}</ol>', marks)


def _left(eta: Eta | None) -> str:
    return format_html('<span title="{}">{}</span>', eta.how, left(eta)) if eta else ""


def _worth(row: Exploration) -> str:
    text = '<span title="calls × time × expected gain">{}</span>'
    return format_html(text, wording.duration_us(row.worth))


def _tries(row: Exploration) -> str:
    return f"try {row.tries} of {row.max_tries}" if row.tries > 1 else ""


def _of_lane(lane: Lane) -> str:
    return f"{reverse('explorations')}?state=active&stage={lane.stage}&priority={lane.priority}"


_LANES = (
    Column("capability", "Hardware"),
    Column("stage", "Stage", value="stage_name"),
    Column("priority", "Priority", value="priority_name", link=_of_lane),
    Column("queued", "Queued", "count", figure="queue_depth"),
    Column("running", "Running", "count"),
    Column("paused", "Paused", "count"),
    Column("oldest_at", "Oldest", "when", figure="queue_oldest"),
    Column("worth_us", "Worth", "us", lambda lane: lane.worth_us if lane.queued else None, "queue_worth"),
)


def lanes_table(lanes: Sequence[Lane]) -> Table:
    """Explore queues, in the order in which they are served."""
    return Table("lanes", "Explore queues", _LANES, lanes, "Nothing is queued, runs or is paused.")


def _capability(row: CapabilityQueue) -> str:
    paused = badge("paused") if row.paused is not None else ""
    return format_html("{} {}", row.capability, paused)


def _drain(row: CapabilityQueue) -> str:
    said = row.drain_how if row.drain_s is None else wording.duration_s(row.drain_s)
    return format_html('<span title="{}">{}</span>', row.drain_how, said)


def _ended(row: CapabilityQueue) -> str:
    return f"{wording.compact(row.ended_last_hour)} / {wording.compact(row.ended_last_day)}"


_CAPABILITIES = (
    Column("capability", "Hardware", "head", show=_capability, css="lead"),
    Column(
        "workers",
        "Workers",
        "count",
        show=lambda row: row.workers or badge("silent", "none live"),
        room_px=104,
    ),
    *exports("paused"),
    Column("queued", "Queued", "count", figure="queue_depth"),
    Column("running", "Running", "count"),
    Column("held", "Paused", "count"),
    Column("oldest_at", "Oldest", "when", figure="queue_oldest", css="number"),
    Column("worth_us", "Worth waiting", "us", figure="queue_worth", label="Worth"),
    Column("ended_last_hour", "Ended 1 h / 24 h", "count", show=_ended, figure="queue_ended", label="Ended"),
    *exports("ended_last_day"),
    Column("wait_s", "Expected wait", "seconds", figure="expected_wait"),
    Column(
        "came_s", "First results", "seconds", "foretold.came_s", figure="first_result_foretold", room_px=134
    ),
    Column("expected_s", "", "seconds", "foretold.expected_s", say="expected after {}", under="came_s"),
    Column("off_s", "", "seconds", "foretold.off_s", say="off by {}", under="came_s"),
    *exports(foretold="foretold.count"),
    Column(
        "drain_s",
        "Time to drain",
        "seconds",
        show=_drain,
        figure="time_to_drain",
        label="To drain",
        room_px=168,
    ),
    *exports("drain_how"),
)
_PAUSE = Column("pause", "Actions", "actions", part="work/_pause.html", only="page")


def capabilities_table(rows: Sequence[CapabilityQueue], may_operate: bool) -> Table:
    """The same by capability."""
    columns = (*_CAPABILITIES, _PAUSE) if may_operate else _CAPABILITIES
    return Table("capabilities", "By hardware", columns, rows, css="stacks")


_SHARES = (
    *exports("organisation"),
    Column("name", "Organisation", css="lead"),
    Column("said", "In words", css="wrap-wide"),
    Column("portion", "Had lately", "percent", figure="share_portion"),
    Column("due", "Due", "percent", figure="share_due"),
    Column("waiting", "Waiting", "count"),
    *exports("explorations", "evaluations", "uploads", "recent_s"),
    Column("spent_s", "In all", "seconds"),
)
_WEIGHT = Column("weight", "Weight", part="work/_weight.html", room_px=162)


def shares_table(rows: Sequence[OrganisationShare], may_operate: bool) -> Table:
    """How the workers are shared out by organisation, for who runs the service."""
    weight = _WEIGHT if may_operate else replace(_WEIGHT, kind="quantity", part="")
    return Table(
        "shares", "By organisation", (*_SHARES, weight), rows, "Nobody has had a worker yet.", css="stacks"
    )


_THROUGHPUT = (
    Column("start", "Hour from (UTC)", value=lambda slot: f"{slot.start:%Y-%m-%d %H:%M}"),
    Column("ended", "Ended", "count", figure="queue_ended"),
    Column("done", "Done", "count"),
    Column("unsupported", "Unsupported", "count"),
    Column("discarded", "Discarded", "count"),
    Column("dead", "Given up", "count"),
    Column("first_results", "First results", "count", figure="queue_first_results"),
)


def throughput_table(slots: Sequence[HourSlot]) -> Table:
    """What ended hour by hour, the latest first; hours without anything only in the export."""
    shown = [slot for slot in reversed(slots) if slot.ended or slot.first_results]
    return Table("throughput", "Throughput", _THROUGHPUT, shown, "Nothing ended in this time.", slots)


def reasons_table(rows: Sequence[ReasonRow], undecided: str) -> Table:
    """Why misses are not explored, with a link to each reason's list."""

    def said(row: ReasonRow) -> str:
        return row.reason or undecided

    def misses(row: ReasonRow) -> str:
        return f"{reverse('collect')}?{urlencode({'state': row.state, 'reason': said(row)})}"

    columns = (
        Column("state", "State", "badge"),
        Column("reason", "Reason", value=said, link=misses),
        Column("count", "Misses", "count", figure="collect_depth"),
        Column("oldest_at", "First asked", "when"),
        Column("latest_at", "Last asked", "when"),
    )
    empty = "Every miss is explored or about to be."
    return Table("reasons", "Asked for, not explored now", columns, rows, empty)


def misses_table(rows: Sequence[MissRow], mine: Set[int]) -> Table:
    """The collect queue; ``mine``: those that the viewer may act on."""
    columns = (
        *_tick("miss", mine),
        *exports(id="miss.pk"),
        Column("operator", "Key", value="miss.operator.key", show=_miss_key, under="summary", css="mono"),
        operator_column("summary", "name", "miss.operator"),
        Column("state", "State", "badge", "miss.state"),
        Column("reason", "Why it is not explored", value="miss.reason", show=_why, css="reason", label=""),
        Column("worth", "Worth", "us", "worth_us", figure="miss_worth", only="page"),
        *exports("capability", of="miss.target"),
        *exports("scope", of="miss"),
        Column("count", "Asked", "count", "miss.count"),
        Column("calls", "Calls", "count", "miss.calls"),
        Column("for", "For", value="miss.target.capability", css="nowrap", only="page", room_px=150),
        Column("setting", "Setting", value=_setting, under="for", only="page"),
        Column("related", "Only related", value="miss.related", show=_related, under="reason"),
        *exports("worth_us"),
        *exports("first_asked_at", of="miss"),
        Column("last_asked_at", "Last asked", "when", "miss.last_asked_at", css="number muted"),
    )
    return Table("misses", "Misses", columns, rows, css="stacks")


def _miss_key(row: MissRow) -> str:
    return wording.short_key(row.miss.operator.key)


def _why(row: MissRow) -> str:
    return row.miss.reason or "Not decided yet: that comes next."


def _setting(row: MissRow) -> str:
    return row.miss.setting.on(row.miss.target)


def _related(row: MissRow) -> str:
    return "only named as related" if row.miss.related else ""


def _tick(of: str, mine: Set[int]) -> list[Column]:
    """A box before each row that the viewer may act on; ``of``: the path to what is ticked."""

    def number(row: Any) -> int | None:
        pk: int = read(row, of).pk if of else row.pk
        return pk if pk in mine else None

    name = f"{of}.operator.summary" if of else "operator.summary"
    tick = Column("tick", "Choose all of this page", "tick", number, beside=name, only="page", css="tick")
    return [tick] if mine else []


def _last_line(row: Exploration) -> str:
    lines = row.error.strip().splitlines()
    return lines[-1][:300] if lines else row.reason


_DEAD = (
    Column("summary", "Operator", value="operator.summary", link=page("exploration")),
    Column("capability", "Hardware"),
    Column("tries", "Tries", "count"),
    Column("last_line", "Error", value=_last_line),
    Column("finished_at", "Given up", "when"),
)


_MADE = "implementation"
_RECHECKS = (
    operator_column("operator", "name", "implementation.operator"),
    Column("route", "Implementation", "method", f"{_MADE}.route", beside=f"{_MADE}.method"),
    Column("label", "Variant", value=f"{_MADE}.label", under="route", css="clip"),
    Column("target", "Target", value="target.capability", css="nowrap"),
    Column("state", "State", "badge"),
    Column("detail", "What came of it", css="wide-text", spare=True),
    Column("asked_at", "Reported", "when", css="number muted"),
    Column("finished_at", "Ended", "when", css="number muted", spare=True),
)


def rechecks_table(rows: Sequence[Recheck]) -> Table:
    """Implementations that failed for jobs, and what proving them again has found."""
    return Table("rechecks", "Proved again", _RECHECKS, rows, "No job has reported a failure.")


def dead_table(shown: Sequence[Exploration], every: Iterable[Exploration]) -> Table:
    """Explorations that were given up, with their errors."""
    return Table("dead", "Given up", _DEAD, shown, "Nothing was given up.", every)
