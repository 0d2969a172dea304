"""Explorations: the list with actions for several at once, and one with its stages, log, trials and error."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from catalog.default_names import default_name
from catalog.search import Words
from dashboard.pages.work import current_work, operations, tables
from dashboard.pages.work.progress import first_result_s, progress, steps
from dashboard.pages.work.trials import trials_table
from dashboard.web import wording
from dashboard.web.asked import one_of, sort_of, takes, words_of
from dashboard.web.charts import operators as operator_charts
from dashboard.web.charts import work as work_charts
from dashboard.web.charts.drawing import METHODS, Figure, called
from dashboard.web.live import Part
from dashboard.web.paging import exportable, page_of, with_query
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import exported
from tuning.explore.slice_history import tuning_accuracy
from tuning.models import Exploration, Stage, State, Trial
from tuning.priority import PRIORITIES
from tuning.queue.permissions import may_operate
from tuning.queue.rates import PAGES_S, lately
from tuning.statistics.eta import Eta, eta, work_left
from tuning.statistics.log import log
from tuning.withheld import shown_one_by_one, shown_trials

TRIALS_SHOWN = 300
LOG_LINES = 30
SLICES_DRAWN = 600
OP_TYPES_SHOWN = 12
_SORTS = {
    "recent": "updated_at",
    "asked": "asked_at",
    "worth": "worth",
    "priority": "priority",
    "spent": "spent_s",
}


@dataclass(frozen=True)
class ExplorationFilters:
    """What the URL asks for."""

    q: str = ""
    state: str = ""
    stage: str = ""
    priority: str = ""
    sort: str = "-recent"

    @property
    def narrowed(self) -> bool:
        return any((self.q, self.state, self.stage, self.priority))


@require_safe
def explorations(request: ViewerRequest) -> HttpResponse:
    filters = _read_filters(request)
    viewer = request.viewer
    found = _filtered(current_work.explorations(viewer.shown()), filters)
    page = page_of(request, found)
    shown = [] if "export" in request.GET else list(page.object_list)
    mine = {row.pk for row in shown if may_operate(viewer, row.owner_id)}
    table = tables.explorations_table(shown, exportable(found), mine, _etas(shown))
    if (answer := exported(request, table)) is not None:
        return answer
    here = with_query(request)
    moving = any(row.state in current_work.ACTIVE for row in shown)
    part = Part(
        request,
        "work/_explorations_rows.html",
        {
            "filters": filters,
            "page": page,
            "table": table,
            "priorities": PRIORITIES,
            "mine": mine,
            "here": here,
        },
        path=here,
        every_s=4 if moving else None,
    )
    if "seen" in request.GET:  # the rows ask for themselves
        return part.response()
    context = {
        "filters": filters,
        "states": State.choices,
        "stages": Stage.choices,
        "priorities": PRIORITIES,
        "live": part.html,
    }
    template = "work/_explorations_results.html"
    if not request.htmx:
        template = "work/explorations.html"
        context |= _tuning(request)
    response = render(request, template, context)
    patch_vary_headers(response, ["HX-Request"])
    return response


def _etas(rows: Iterable[Exploration]) -> dict[int, Eta]:
    """What is left of those that run; nothing is asked where none does."""
    active = [row for row in rows if row.state == State.RUNNING]
    pace = lately(PAGES_S) if active else None
    return {row.pk: work_left(row, pace) for row in active} if pace else {}


def _tuning(request: ViewerRequest) -> dict[str, object]:
    """How well the expectations held that tuning goes by; the chart shows the latest slices only."""
    accuracy = tuning_accuracy(request.viewer.shown("exploration__"))
    rows = list(accuracy.by_op_type.items())[:OP_TYPES_SHOWN]
    chart = work_charts.tuning_gains(accuracy.pairs[:SLICES_DRAWN]) if accuracy.pairs else None
    return {"accuracy": accuracy, "accuracy_rows": rows, "chart": chart}


@require_safe
def exploration(request: ViewerRequest, pk: int) -> HttpResponse:
    """One exploration; htmx asks for its moving part every two seconds until it has ended."""
    viewer = request.viewer
    row = get_object_or_404(current_work.explorations(viewer.shown()), pk=pk)
    trials = row.trials.select_related("implementation").defer(
        "candidate", "implementation__schedule", "implementation__source", "implementation__candidate"
    )
    newest = [] if "export" in request.GET else shown_trials(viewer, trials.order_by("-pk")[:TRIALS_SHOWN])
    timed = row.trials.of_the_default().values_list("route", flat=True)[:1]
    default = next(iter(timed), "")
    every = shown_one_by_one(viewer, exportable(row.trials.order_by("pk")))
    table = trials_table(newest, every, default=default)
    if (answer := exported(request, table)) is not None:
        return answer
    context = {
        "exploration": row,
        "steps": steps(row),
        "progress": progress(row),
        "first_result_s": first_result_s(row),
        "eta": eta(row, lately(PAGES_S)) if row.state in (State.QUEUED, State.RUNNING) else None,
        "log": log(row, viewer, LOG_LINES),
        "trials": newest,
        "trials_table": table,
        "trial_count": row.trials.count() if len(newest) == TRIALS_SHOWN else len(newest),
        "chart": _chart(newest[::-1], default_name(default)) if newest else None,
        "default": default_name(default),
        "moving": row.state in current_work.ACTIVE,
        "best": max(
            (t for t in newest if t.status == "ok" and t.ratio_to_default),
            key=lambda t: t.ratio_to_default or 0,
            default=None,
        ),
        "methods": METHODS,
        "priorities": PRIORITIES,
        "actions": operations.possible(row, request),
    }
    every_s = 2 if context["moving"] else None
    part = Part(request, "work/_exploration_body.html", context, path=request.path, every_s=every_s)
    if request.htmx:
        return part.response()
    return render(request, "work/exploration.html", context | {"live": part.html})


def _chart(trials: list[Trial], default: str) -> Figure:
    dots, failures = [], []
    for number, trial in enumerate(trials, 1):
        name = called(trial.route, trial.label)
        if trial.status == "ok" and trial.ratio_to_default is not None:
            ratio = trial.ratio_to_default
            hover = f"{name}<br>{wording.ratio(ratio)} the {default}, {wording.duration_us(trial.median_us)}"
            low, high = trial.ratio_low or ratio, trial.ratio_high or ratio
            dots.append(operator_charts.Dot(str(number), trial.method, ratio, low, high, hover))
        elif trial.status != "unsupported":
            failures.append((number, f"{name}<br>{trial.status.replace('_', ' ')}"))
    return operator_charts.trials(dots, failures, default)


def _read_filters(request: ViewerRequest) -> ExplorationFilters:
    takes(request, "q", "state", "stage", "priority", "sort")
    return ExplorationFilters(
        q=words_of(request),
        state=one_of(request, "state", [*State.values, "active"]),
        stage=one_of(request, "stage", [str(value) for value in Stage.values]),
        priority=one_of(request, "priority", [str(value) for value, _ in PRIORITIES]),
        sort=sort_of(request, _SORTS, "-recent"),
    )


def _filtered(found: QuerySet[Exploration], filters: ExplorationFilters) -> QuerySet[Exploration]:
    found = found.filter(Words.of(filters.q).condition("operator"))
    if filters.state:
        found = found.filter(state__in=current_work.ACTIVE if filters.state == "active" else [filters.state])
    if filters.stage:
        found = found.filter(stage=filters.stage)
    if filters.priority:
        found = found.filter(priority=filters.priority)
    sign = "-" if filters.sort.startswith("-") else ""
    # One direction for both: an index is read forwards or backwards.
    return found.order_by(sign + _SORTS[filters.sort.removeprefix("-")], f"{sign}pk")
