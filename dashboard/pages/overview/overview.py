"""The overview: hit rate, reuse, what was saved and what it took, what waits, who works, money."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from catalog.models import STANDINGS, TRAFFIC, Operator, Rollup
from catalog.selectors import statistics
from catalog.selectors.changed import changed_since
from catalog.selectors.statistics_operators import top
from catalog.timerange import RANGES, TimeRange
from catalog.viewing import Viewer
from dashboard.billing import selectors as billing
from dashboard.pages.overview import tables
from dashboard.pages.overview.begin import begin_page
from dashboard.pages.overview.marks import marks_within
from dashboard.pages.overview.steps import open_steps
from dashboard.pages.work import current_work
from dashboard.pages.work.current_work import troubles_shown
from dashboard.pages.work.workers import fleet_said, workers_table
from dashboard.web import wording
from dashboard.web.asked import one_of, say_unknown, takes
from dashboard.web.charts import traffic as traffic_charts
from dashboard.web.charts.drawing import METHODS, marked
from dashboard.web.live import Part
from dashboard.web.organisations import every_organisation
from dashboard.web.ranges import range_of
from dashboard.web.requests import ViewerRequest, number_in
from dashboard.web.tables import exported
from tuning.statistics import collecting, paid_back, waiting
from tuning.statistics.queues import WorkNow
from tuning.statistics.workers import workers

_REASONS = 8
CHANGES_SHOWN = 6


@require_safe
def overview(request: ViewerRequest) -> HttpResponse:
    viewer = looked_at(request)
    began = statistics.began(viewer)
    if began is None and not Operator.objects.exists():
        return begin_page(request)
    takes(request, "by")
    chosen = chosen_range(request, began)
    slots = statistics.slots(viewer, chosen)
    noted = Rollup.noted(STANDINGS, TRAFFIC, paid_back.NAME)
    paid, spent = paid_back.both(viewer, chosen, noted)
    catalogue = statistics.catalogue(viewer, noted)
    shown = {
        "traffic_table": tables.traffic(slots),
        "saved_table": tables.saved(slots, spent),
        "routes_table": tables.routes(statistics.routes(viewer, chosen)),
        "reused_table": tables.operators("reused", "Most reused operators", top(viewer, "-jobs")),
        "savers_table": tables.operators("savers", "Operators that saved most", top(viewer, "-saved")),
        "wins_table": tables.wins(catalogue),
    }
    if (answer := exported(request, *shown.values())) is not None:
        return answer
    by = one_of(request, "by", traffic_charts.COUNTED, "lookups", "way to count")
    total = statistics.total(slots)
    now = timezone.now()
    work = WorkNow(request.viewer.shown(), now)
    state = waiting.waiting(work)
    wrong = troubles_shown(viewer, work.fleet)
    alarms, marks = wrong["alarms"], marks_within(chosen)
    withheld = billing.withheld_totals(viewer.owned(), *billing.days_of(chosen))
    context = shown | {
        "state": state,
        "steps": open_steps(viewer, began),
        "is_well": not any(
            (
                withheld,
                wrong["silent"],
                wrong["troubles"],
                alarms.failing,
                alarms.disturbed,
                wrong["alerts_firing"],
                wrong["alerts_taken"],
                work.pauses,
            )
        ),
        "changed": changed_since(viewer.shown(), now - timedelta(hours=24)),
        "changes_shown": CHANGES_SHOWN,
        "by": by,
        "counted_by": traffic_charts.COUNTED,
        "rate_figure": traffic_charts.COUNTED[by][2],
        "hit_rate": getattr(total, traffic_charts.COUNTED[by][2]),
        "total": total,
        "catalogue": catalogue,
        "win_shares": {name: n / max(catalogue.wins.values()) for name, n in catalogue.wins.items()},
        "methods": METHODS,
        "reuse": statistics.reuse(viewer, noted),
        "jobs": statistics.jobs_served(viewer),
        "paid": paid,
        "chosen": chosen,
        "ranges": list(RANGES),
        "organisations": [(one.number, one.name) for one in every_organisation(request)]
        if viewer.sees_all
        else [],
        "focus": viewer.focus,
        "marks": marks,
        "chart": marked(traffic_charts.hit_rate_by(slots, by), marks) if total.lookups else None,
        "saved_chart": marked(traffic_charts.saved(slots, spent), marks) if total.hits or spent else None,
        "has_spent": bool(spent),
        "waits": current_work.waits(viewer.shown()),
        "money": _money(viewer, chosen),
        "withheld": withheld,
        "rolled_up_at": noted[TRAFFIC].made_at if TRAFFIC in noted else None,
        "pauses": work.pauses,
        "live": _live(request, work, state).html,
        **wrong,
    }
    return render(request, "overview/overview.html", context)


@require_safe
def live(request: ViewerRequest) -> HttpResponse:
    """The parts that move: asked for again every few seconds."""
    work = WorkNow(request.viewer.shown(), timezone.now())
    return _live(request, work, waiting.waiting(work)).response()


def looked_at(request: ViewerRequest) -> Viewer:
    """Who looks; with ``?org=<id>`` at one organisation, where that is open to them."""
    viewer, number = request.viewer, number_in(request.GET.get("org", ""))
    if number is not None:
        known = viewer.sees_all and any(one.number == number for one in every_organisation(request))
        if known or number in viewer.roles:
            return viewer.focused(number)
    say_unknown(request, "org", what="organisation")
    return viewer


def chosen_range(request: ViewerRequest, began: datetime | None) -> TimeRange:
    """What the URL asks for. Where it asks for nothing: a week, or a day while there is no more; where it
    cannot be understood, the same and a sentence."""
    if any(request.GET.get(name) for name in ("range", "since", "until")):
        began = None
    default = "24h" if began and timezone.now() - began < timedelta(hours=24) else "7d"
    return range_of(request, default)


def _money(viewer: Viewer, chosen: TimeRange) -> dict[str, Any] | None:
    """The bill in short, for who may see one."""
    if not viewer.may_bill:
        return None
    totals = billing.totals(viewer.owned(), *billing.days_of(chosen))
    account = billing.account_of(viewer.focus) if viewer.focus is not None else None
    return {
        "charged": [(wording.money(sum_.charged_micros, sum_.currency), sum_.hits_billed) for sum_ in totals],
        "credit": wording.money(account.balance_micros, account.currency) if account else None,
    }


def _live(request: ViewerRequest, work: WorkNow, state: waiting.Waiting) -> Part:
    seen = work.visible
    rows = workers(work.fleet)
    silent = [one for one in rows if one.state == "silent"]
    context = {
        "waiting": state,
        "oldest_s": state.oldest_s(work.now),
        "queues": current_work.queues(work.lanes),
        "explored_today": current_work.finished_since(seen, work.now - timedelta(hours=24)),
        "reasons": collecting.reasons(seen, _REASONS),
        "recent": current_work.recent(seen),
        "workers_table": workers_table([one for one in rows if one not in silent], request, measured=False),
        "fleet_said": fleet_said(work.fleet, len(rows)),
        "silent_workers": workers_table(silent, request, measured=False),
        "pauses": work.pauses,
    }
    return Part(request, "overview/_overview_live.html", context, path=reverse("overview-live"), every_s=3)
