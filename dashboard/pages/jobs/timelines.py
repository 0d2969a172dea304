"""One run of a model by a plan, as a session reported it: drawn, as tables and as Chrome's trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.http import HttpResponse, JsonResponse

from catalog.models import Model, PlanTimeline, StoredPlan
from dashboard.templatetags.opatlas import method
from dashboard.web.charts import timeline as drawing
from dashboard.web.tables import Column, Table, exports
from opatlas.streams.timeline import OTHERS, RowWait, Timeline, TimelineBox
from tuning import planning
from tuning.timelines import kept_timeline

ROWS_SHOWN = 12
"""Boxes in the page's table, the model's slowest; the export has all."""

_BOXES = (
    Column("said", "What", css="lead"),
    Column("row", "Where"),
    Column("by", "Run by", show=lambda one: method(one.method, one.by) if one.method else one.by, spare=True),
    *exports("method"),
    Column("start_us", "From", "us"),
    Column("took_us", "Takes", "us"),
)
_ROWS = (
    Column("row", "Where", css="lead"),
    Column("boxes", "Boxes", "count"),
    Column("busy_us", "At work", "us"),
    Column("share", "Of the run", "percent"),
    Column("waits", "Waits", "count"),
    Column("waited_us", "Waited in all", "us", spare=True),
)
_EXPECTED = (
    Column("expected_us", "Expected, each", "us", "expected.expected_us", spare=True),
    Column("real_us", "Waited, each", "us", "expected.waited_us", spare=True),
)


@dataclass(frozen=True)
class ToldBox:
    """A box with its row by name; ``method``: the kernel's, empty if a framework ran it."""

    row: str
    said: str
    by: str
    method: str
    start_us: float
    took_us: float


@dataclass(frozen=True)
class ToldRow:
    """A stream or an engine. ``expected``: its expected waits, None if unknown."""

    row: str
    boxes: int
    busy_us: float
    share: float
    waits: int
    waited_us: float
    expected: RowWait | None


@dataclass(frozen=True)
class TimelineCard:
    """The last reported run of any of a model's plans."""

    model: Model
    told: PlanTimeline
    timeline: Timeline

    @property
    def plan(self) -> StoredPlan:
        return self.told.plan

    @property
    def of_simpler_form(self) -> bool:
        return self.plan.key != self.model.structure_key

    @cached_property
    def drawn(self) -> drawing.DrawnTimeline:
        return drawing.drawn(self.timeline, self._methods)

    @cached_property
    def _methods(self) -> Mapping[str, str]:
        choices = planning.kept_plan(self.plan).choices
        return {f"{one.route} {one.label}": one.method for one in choices if one.method}

    @cached_property
    def table(self) -> Table:
        mine = [one for one in self.timeline.boxes if one.model != OTHERS]
        longest = sorted(mine, key=lambda one: -one.took_us)[:ROWS_SHOWN]
        every = map(self._box, self.timeline.boxes)
        return Table("timeline", "The run's boxes", _BOXES, [*map(self._box, longest)], every=every)

    @cached_property
    def rows(self) -> Table:
        expected = {one.row: one for one in self.timeline.row_waits}
        made = [self._row(number, name, expected.get(name)) for number, name in enumerate(self.timeline.rows)]
        columns = (*_ROWS, *_EXPECTED) if expected else _ROWS
        return Table("timeline-rows", "Streams and engines of the run", columns, made)

    def _box(self, one: TimelineBox) -> ToldBox:
        row, by = self.timeline.rows[one.row], self._methods.get(one.by, "")
        return ToldBox(row, one.said, one.by, by, one.start_us, one.took_us)

    def _row(self, number: int, name: str, expected: RowWait | None) -> ToldRow:
        took = [one.took_us for one in self.timeline.boxes if one.row == number]
        waited = [one.took_us for one in self.timeline.waits if one.row == number]
        share = sum(took) / self.timeline.took_us if self.timeline.took_us else 0.0
        return ToldRow(name, len(took), sum(took), share, len(waited), sum(waited), expected)

    def trace(self) -> HttpResponse:
        """Chrome's trace events, as a file."""
        name = f"opatlas-plan-{self.plan.pk}.trace.json"
        attached = {"Content-Disposition": f'attachment; filename="{name}"'}
        return JsonResponse(self.timeline.chrome_trace(self.model.name), headers=attached)


def timeline_card(model: Model) -> TimelineCard | None:
    """None if no run was reported yet."""
    told = PlanTimeline.objects.filter(plan__in=planning.plans_of_model(model))
    last = told.select_related("plan").order_by("-at").first()
    return None if last is None else TimelineCard(model, last, kept_timeline(last))


def trace_asked(query: Mapping[str, Any], card: TimelineCard | None) -> HttpResponse | None:
    """The download that the address asks for; None if it asks for none."""
    if query.get("export") != "trace":
        return None
    if card is None:
        return HttpResponse("Nobody told of a run yet.", status=404, content_type="text/plain")
    return card.trace()
