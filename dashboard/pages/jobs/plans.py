"""A model's plan on its page: drawn, with the reason of each choice, and what it came to where it ran."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from django.db.models import Count, Max

from catalog.models import Best, Model, PlanMeasured, StoredPlan
from dashboard.templatetags.opatlas import badge
from dashboard.web.charts import plan as drawing
from dashboard.web.charts.drawing import shortened
from dashboard.web.tables import Column, Table, exports
from opatlas.errors import CallerError
from opatlas.graph.structure import ModelStructure
from opatlas.plan.plan import ByKernel, PlanStep
from tuning import planning
from tuning.ingest import ModelReport
from tuning.planning import MadePlan, PlanChoice

KEPT, KEPT_S = 16, 60
"""Plans in a process, and for how long: the page is asked for again every few seconds."""
ROWS_SHOWN = 12
"""Choices on the page, those that take the most first; all of them are in the export."""

_MARKS = {"kernel": "hit", "fused": "hit", "default": "same", "miss": "waiting"}
_CHOICES = (
    Column("operator", only="export"),
    Column(
        "summary",
        "Operator",
        value=lambda one: one.summary or one.operator,
        link=lambda one: one.link,
        css="lead",
    ),
    Column("nodes", "Nodes", "count", lambda one: len(one.nodes)),
    Column("by", "Runs by", show=lambda one: badge(_MARKS[one.by], one.by), label=""),
    Column("reason", "Why", under="by", css="wrap-wide"),
    Column("route", "Kernel", "method", spare=True),
    *exports("method"),
    Column("label", "Variant", under="route", css="clip"),
    Column("median_us", "Alone", "us", spare=True),
    Column("default_us", "Default, alone", "us", css="muted", spare=True),
    Column("ratio", "Over the default", "speedup", beside="ratio", spare=True),
    *exports("ratio_low", "ratio_high", "implementation"),
    Column("artifact", "Artifact", show=lambda one: one.artifact[:12], under="ratio", css="mono"),
    Column("charged", only="export"),
)


@dataclass(frozen=True)
class PlanCard:
    """``why_none`` says why there is no plan, where there is none."""

    model: Model
    made: MadePlan | None
    structure: ModelStructure | None
    why_none: str = ""

    @cached_property
    def table(self) -> Table:
        choices = sorted(self.made.choices, key=_time, reverse=True) if self.made else []
        return Table(
            "plan", "The plan's choices", _CHOICES, choices[:ROWS_SHOWN], every=choices, css="stacks"
        )

    @cached_property
    def drawn(self) -> drawing.DrawnPlan:
        if self.made is None or self.structure is None:
            return drawing.drawn(())
        by_key = {one.operator: one for one in self.made.choices}
        return drawing.drawn([_step(one, self.structure, by_key) for one in self.made.plan.steps])

    @property
    def nodes(self) -> int:
        return sum(len(step.nodes) for step in self.made.plan.steps) if self.made else 0

    @property
    def gain(self) -> float | None:
        made = self.made
        return made.default_us / made.predicted_us if made and made.predicted_us else None

    @cached_property
    def measured(self) -> PlanMeasured | None:
        """What this plan came to; else what the model's last measured one did."""
        if self.made is None:
            return None
        reports = PlanMeasured.objects.filter(plan__given=self.model).select_related("plan")
        mine = reports.filter(plan__sha256=self.made.sha256).first()
        return mine or reports.order_by("-at").first()

    @property
    def is_of_this_plan(self) -> bool:
        return self.made is not None and self.measured is not None and self._plan.sha256 == self.made.sha256

    @property
    def _plan(self) -> StoredPlan:
        assert self.measured is not None
        return self.measured.plan


def plan_card(report: ModelReport) -> PlanCard:
    """By what is published now, in a constant number of queries; nothing is recorded. A process makes it
    once for what is published and reported, and again after a minute: prices are not asked for."""
    model = report.model
    here = Best.objects.filter(
        operator__models__model=model, target=model.target_id, setting=model.setting_id
    )
    published = here.aggregate(count=Count("pk"), last=Max("published_at"))
    known = (*published.values(), model.structure_key, *report.rows)
    try:
        made, structure = _made(model, known, int(time.monotonic() // KEPT_S))
    except CallerError as error:
        return PlanCard(model, None, None, str(error))
    return PlanCard(model, made, structure)


@lru_cache(maxsize=KEPT)
def _made(model: Model, known: Sequence[Hashable], minute: int) -> tuple[MadePlan, ModelStructure]:
    """``known`` and ``minute`` only tell plans apart."""
    structure = planning.structure_of_model(model)
    return planning.make_plan(structure, model.target, model.setting, model.organisation), structure


def _time(one: PlanChoice) -> float:
    return (one.default_us or 0.0) * len(one.nodes)


def _step(step: PlanStep, structure: ModelStructure, by_key: Mapping[str, PlanChoice]) -> drawing.DrawnStep:
    known = [_default_us(by_key, structure.nodes[node].operator) for node in step.nodes]
    before = sum(known)
    types = [structure.nodes[node].op_type for node in step.nodes]
    if isinstance(step.by, ByKernel):
        one = by_key[step.by.operator]
        said = f"{one.summary} by {step.by.said}"
        return drawing.DrawnStep(
            one.method, _named(types), shortened(said, 160), before, step.predicted_us or 0
        )
    after = sum(_left_us(by_key, structure.nodes[node].operator) for node in step.nodes)
    return drawing.DrawnStep(drawing.LEFT, _named(types), _region(types), before, after)


def _left_us(by_key: Mapping[str, PlanChoice], operator: str) -> float:
    one: Any = by_key.get(operator)
    return (one.left_us if one else None) or _default_us(by_key, operator)


def _default_us(by_key: Mapping[str, PlanChoice], operator: str) -> float:
    one: Any = by_key.get(operator)
    return (one.default_us if one else None) or 0.0


def _named(types: Sequence[str]) -> str:
    return types[0] if len(types) == 1 else f"{types[0]} … {types[-1]}"


def _region(types: Sequence[str]) -> str:
    count = f"{len(types)} nodes, " if len(types) > 1 else ""
    return f"{count}{shortened(', '.join(types), 120)} left to ONNX Runtime"
