"""The table of workers: what each can do, does and gets done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from django.template.backends.utils import csrf_input
from django.utils.html import format_html
from django.utils.safestring import SafeString

from dashboard.templatetags.opatlas import ago, badge
from dashboard.web import wording
from dashboard.web.addresses import address
from dashboard.web.markup import filled
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import Column, Table, exports
from tuning.statistics.workers import Fleet, LeasedExploration, WorkerRow


def _host(row: WorkerRow) -> str:
    return f"{row.worker.host}, process {row.worker.pid}"


def _target(row: WorkerRow) -> str:
    return format_html('<span title="{}">{}</span>', row.worker.target.key, row.worker.target.capability)


def _device(row: WorkerRow) -> str:
    """``cuda:0, NVIDIA H100 80GB HBM3``; empty where the worker serves the processor."""
    product = row.worker.target.description.get("product", "")
    return ", ".join(part for part in (row.worker.device, product) if part) if row.worker.device else ""


def _now(row: WorkerRow, name: str) -> Any:
    return row.worker.device_state.get(name)


def _video_memory(row: WorkerRow) -> str:
    if not row.worker.device_memory_bytes:
        return ""
    used, total = _now(row, "used_bytes"), wording.quantity(row.worker.device_memory_bytes, "B")
    return f"{wording.quantity(used, 'B')} of {total}" if used is not None else total


def _clocks(row: WorkerRow) -> str:
    """What the device said at the worker's last sign of life."""
    state = row.worker.device_state
    if "sm_mhz" not in state:
        return str(state.get("why_not", ""))
    said = f"{state['sm_mhz']} MHz, {state['temperature_c']} °C"
    return "; ".join([said, *state.get("slowed", ())])


def _free_in(row: WorkerRow) -> str | None:
    if not row.free_in_s:
        return "now" if row.free_in_s == 0 else None
    return wording.duration_s(row.free_in_s)


def _routes(row: WorkerRow) -> str:
    return " ".join(name for name, _ in row.available)


def _unavailable(row: WorkerRow) -> str:
    return "; ".join(f"{name}: {facts.get('reason', '')}" for name, facts in row.unavailable)


def _doing(row: WorkerRow) -> SafeString:
    said = (row.worker.doing or "idle") if row.state == "alive" else wording.NOTHING
    return filled("{}\n{}", said, SafeString("".join(map(_held, row.holds))))


def _held(one: LeasedExploration) -> SafeString:
    doing = f": {one.doing}" if one.doing else ""
    ends = filled("; its reservation ends {}", ago(one.lease_expires_at)) if one.lease_expires_at else ""
    link = '<span class="sub"><a href="{}">{}</a>{}{}</span>'
    return filled(link, address("exploration", one.id), one.summary, doing, ends)


class RoutesCell:
    """A worker's routes with their versions; which differ from what is declared; which it lacks."""

    def __init__(self, request: ViewerRequest) -> None:
        self._request = request

    def __call__(self, row: WorkerRow) -> SafeString:
        chips = (
            filled('<span class="chip" title="{}">{}</span> ', _versions(facts), name)
            for name, facts in row.available
        )
        differing = (self._differing(row, name, how) for name, how in row.undeclared)
        lacking = (
            filled('<span class="chip off">{}</span> {}', name, facts.get("reason") or "not available")
            for name, facts in row.unavailable
        )
        return SafeString("".join(chips) + _listed(differing) + _listed(lacking))

    def _differing(self, row: WorkerRow, route: str, how: str) -> SafeString:
        mark, name = badge("noisy", "not declared"), row.worker.name
        where, form = address("environment-declare"), ""
        if self._request.viewer.may_operate:
            form = filled(_DECLARE, where, self._token, name, route, name, route)
        return filled("{} <strong>{}</strong>: {}{}", mark, route, how, form)

    @cached_property
    def _token(self) -> SafeString:
        return csrf_input(self._request)


_DECLARE = (
    ' <form class="inline" method="post" action="{}">{}<input type="hidden" name="worker" value="{}">'
    '<input type="hidden" name="route" value="{}"><button class="button small" type="submit">Declare'
    '<span class="visually-hidden"> what {} brings for {}</span></button></form>'
)


def _versions(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{package} {version}" for package, version in facts.get("versions", {}).items())


def _listed(items: Iterable[SafeString]) -> str:
    made = "".join(f"<li>{one}</li>" for one in items)
    return f'<ul class="without">{made}</ul>' if made else ""


def _sandbox(row: WorkerRow) -> str:
    return wording.sandbox(row.worker.tier)


def _warm(row: WorkerRow) -> str:
    return "compilers warm" if row.worker.warm else "warming up" if row.state == "alive" else ""


_WORKERS = (
    Column("name", "Worker", "head", "worker.name", css="lead"),
    Column("host", "Host", value="worker.host", show=_host, under="name"),
    Column("state", "State", "badge"),
    Column("capability", "Target", value="worker.target.capability", show=_target, label=""),
    Column("device", "Device", value=_device, under="capability"),
    Column("device_memory", "Its memory", value=_video_memory, under="capability", say="{} of memory"),
    Column("clocks", "Its clocks", value=_clocks, under="capability", figure="device_clocks"),
    *exports("device_memory_bytes", of="worker"),
    *exports(
        device_used_bytes=lambda row: _now(row, "used_bytes"),
        sm_mhz=lambda row: _now(row, "sm_mhz"),
        memory_mhz=lambda row: _now(row, "memory_mhz"),
        temperature_c=lambda row: _now(row, "temperature_c"),
    ),
    Column("tier", "Sandbox", value="worker.tier", show=_sandbox),
    Column("memory_bytes", "Memory", "bytes", "worker.memory_bytes", say="{} memory", under="tier"),
    Column("warm", "Compilers", value=_warm, under="tier", only="page"),
    Column("doing", "Doing", value="worker.doing", show=_doing, css="wide-text", label=""),
    *exports(holds=lambda row: " ".join(str(held.id) for held in row.holds)),
    Column("free_in_s", "Takes the next in", "seconds", show=_free_in, figure="worker_wait", label="Next in"),
    Column("slices_per_hour", "Capacity", "count", "per_hour", say="{}/h", figure="worker_capacity"),
    Column(
        "slices_last_hour", "", "count", "ended_last_hour", say="{} in the last hour", under="slices_per_hour"
    ),
    Column("routes", "Routes", value=_routes, css="routes", label=""),
    *exports(unavailable=_unavailable),
    Column("last_seen_at", "Heard", "when", "worker.last_seen_at", say="heard {}", under="state"),
)


def fleet_said(of: Fleet, shown: int) -> str:
    """Who is there, by hardware: ``3 on cpu.zen5, 1 on cuda.sm_90``; and how many the table does not show."""
    by_hardware = sorted(Counter(one.target.capability for one in of.live).items())
    said = ", ".join(f"{count} on {name}" for name, count in by_hardware) or "None is there now"
    left_out = len(of.workers) - shown
    return f"{said}. {left_out} more are not shown." if left_out > 0 else f"{said}."


def workers_table(rows: Sequence[WorkerRow], request: ViewerRequest, measured: bool = True) -> Table:
    """``measured``: with what each gets done. ``request``: of who may declare what a worker brings."""
    routes = RoutesCell(request)
    shown = [one for one in _WORKERS if measured or not one.key.startswith(("slices_", "free_in"))]
    columns = [replace(one, show=routes) if one.key == "routes" else one for one in shown]
    return Table("workers", "Workers", columns, rows, css="stacks")
