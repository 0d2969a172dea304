"""The queues: what waits, how fast it goes, who works, and what was asked for and is not explored."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from catalog.models import MissState
from dashboard.pages.work import current_work, tables
from dashboard.pages.work.workers import fleet_said, workers_table
from dashboard.web.asked import one_of, takes, words_of
from dashboard.web.charts import work as work_charts
from dashboard.web.live import Part
from dashboard.web.paging import answer_of, exportable, page_of
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import exported
from tuning.priority import PRIORITIES
from tuning.queue.permissions import may_operate
from tuning.queue.rates import PAGES_S, lately
from tuning.rechecks.selectors import latest_rechecks
from tuning.statistics import collecting, queues
from tuning.statistics.shares import organisations_shares
from tuning.statistics.workers import workers

DEAD_SHOWN = 20
RECHECKS_SHOWN = 20
REASONS_SHOWN = 30


@require_safe
def queues_page(request: ViewerRequest) -> HttpResponse:
    """Explore queues, workers, throughput, the collect queue's reasons, dead letters."""
    viewer = request.viewer
    visible = viewer.shown()
    work = queues.WorkNow(visible, timezone.now())
    live = _moving(request, work)
    part = Part(request, "work/_queues_live.html", live, path=reverse("queues"), every_s=4)
    if "seen" in request.GET:
        return part.response()
    slots = queues.throughput(work)
    dead = queues.dead_letters(visible)
    made = {
        "throughput": tables.throughput_table(slots),
        "reasons": tables.reasons_table(collecting.reasons(visible, REASONS_SHOWN), collecting.UNDECIDED),
        "rechecks": tables.rechecks_table(latest_rechecks(viewer.shown("implementation__"), RECHECKS_SHOWN)),
        "dead": tables.dead_table(list(dead[:DEAD_SHOWN]), exportable(dead)),
    }
    if viewer.sees_all:
        made["shares"] = tables.shares_table(organisations_shares(viewer.focus), viewer.may_operate)
    answer = exported(
        request, live["lanes"], live["capabilities_table"], live["workers_table"], *made.values()
    )
    if answer is not None:
        return answer
    context = made | {
        "live": part.html,
        "alerts_firing": live["alerts_firing"],
        "chart": work_charts.throughput(slots)
        if any(slot.ended or slot.first_results for slot in slots)
        else None,
        "dead_shown": DEAD_SHOWN,
    }
    return render(request, "work/queues.html", context)


def _moving(request: ViewerRequest, work: queues.WorkNow) -> dict[str, Any]:
    """What changes while one looks."""
    viewer, pace = request.viewer, lately(PAGES_S)
    lines = queues.capability_queues(work, pace)
    lanes = [lane for line in lines for lane in line.lanes]
    rows = workers(work.fleet, pace, work.held)
    drains = [line.drain_s for line in lines if line.queued]
    known = [seconds for seconds in drains if seconds is not None]
    return {
        "lanes": tables.lanes_table(
            sorted(lanes, key=lambda lane: (lane.stage, lane.priority, lane.capability))
        ),
        "capabilities_table": tables.capabilities_table(lines, viewer.may_operate),
        "workers_table": workers_table(rows, request),
        "fleet_said": fleet_said(work.fleet, len(rows)),
        "pauses": work.pauses,
        **current_work.troubles_shown(viewer, work.fleet),
        "queued": sum(line.queued for line in lines),
        "running_now": sum(line.running for line in lines),
        "oldest_at": min((line.oldest_at for line in lines if line.oldest_at), default=None),
        "worth_us": sum(line.worth_us for line in lines),
        "ended_last_hour": sum(line.ended_last_hour for line in lines),
        "ended_last_day": sum(line.ended_last_day for line in lines),
        "drain_s": max(known) if known and len(known) == len(drains) else (None if drains else 0.0),
        "alive": len(work.fleet.living),
    }


@require_safe
def collect(request: ViewerRequest) -> HttpResponse:
    """The collect queue: misses that nobody explores now, filtered by state, reason and words."""
    viewer = request.viewer
    visible = viewer.shown()
    takes(request, "state", "reason", "q")
    state = one_of(request, "state", collecting.IDLE)
    reasons = [row.reason or collecting.UNDECIDED for row in collecting.reasons(visible)]
    reason = one_of(request, "reason", reasons)
    q = words_of(request)
    found = collecting.misses(visible, state, reason, q)
    page = page_of(request, found)
    exports = "export" in request.GET
    rows = collecting.with_worth(list(exportable(found) if exports else page.object_list))
    mine = {row.miss.pk for row in rows if may_operate(viewer, row.miss.owner_id)}
    table = tables.misses_table(rows, mine)
    if (answer := exported(request, table)) is not None:
        return answer
    context = {
        "page": page,
        "mine": mine,
        "state": state,
        "reason": reason,
        "q": q,
        "narrowed": bool(state or reason or q),
        "states": [value for value in MissState if value in collecting.IDLE],
        "reasons": [one for n, one in enumerate(reasons) if n < REASONS_SHOWN or one == reason],
        "priorities": PRIORITIES,
        "table": table,
    }
    return answer_of(request, "work/collect.html", "work/_collect_results.html", context)
