"""A model's plan on its page: the drawing, the reason of each choice, and its measured times."""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from django.db.models import Case, Count, Max, When

from catalog.models import Best, Model, PlanMeasured
from dashboard.pages.jobs.plan_drawing import PlanDrawing
from dashboard.templatetags.opatlas import badge
from dashboard.web.charts import plan as drawing
from dashboard.web.tables import Column, Table, exports
from opatlas.errors import CallerError
from opatlas.graph.laid_out import laid_out_form
from opatlas.graph.structure import ModelStructure
from opatlas.graph.typed_nodes import TypedNodes
from opatlas.identity import Operator
from opatlas.identity.cost import describe
from tuning import planning
from tuning.graph.layout.forms import transpose
from tuning.graph.passes.draft import PlanDraft
from tuning.graph.passes.registry import PASSES, UNLESS_NAMED, passes_named
from tuning.ingest import ModelReport
from tuning.plan_choices import PlanChoice
from tuning.planning import MadePlan

KEPT, KEPT_S = 16, 60
"""Plans in a process, and for how long: the page is asked for again every few seconds."""
ROWS_SHOWN = 12
"""Choices on the page, the most expensive first; the export has all."""
ASKED_AT_ONCE = 8
"""The most unknown operators of each kind that the page's command asks for."""
_SAID = {"kernels": "Kernels", "fusion": "Fusion", "layout": "Layouts"}
_DOES = {
    "kernels": "single operators",
    "fusion": "several nodes as one",
    "layout": "channels-last, reorders counted",
}

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
    Column("default_us", "Default, alone", "us", figure="default_time", css="muted", spare=True),
    Column("ratio", "Over the default", "speedup", beside="ratio", spare=True),
    *exports("ratio_low", "ratio_high", "implementation"),
    Column("artifact", "Artifact", show=lambda one: one.artifact[:12], under="ratio", css="mono"),
    Column("charged", only="export"),
)


class UnseenChoice(PlanChoice):
    """For an operator that is new to the catalogue: it has no page."""

    @property
    def link(self) -> str:
        return ""


@dataclass(frozen=True)
class KeptPlan:
    """A plan and its drawing: unchanged until something else is published or missed."""

    made: MadePlan
    structure: ModelStructure
    draft: PlanDraft

    @cached_property
    def choices(self) -> Sequence[PlanChoice]:
        named = [one if one.summary else self._unseen(one) for one in self.made.choices]
        return sorted(named, key=_time, reverse=True)

    def _unseen(self, one: PlanChoice) -> PlanChoice:
        """An unknown operator in words, if a pass made it."""
        operator = self._made.get(one.operator)
        summary = describe(operator).summary if operator is not None else ""
        return UnseenChoice(**{**vars(one), "summary": summary})

    @cached_property
    def _made(self) -> dict[str, Operator]:
        """Operators that the pass for layouts made of the model's, by their keys."""
        forms = [form for _, one in self.draft.everywhere() for form in one.forms]
        placed = [one for form in forms for one in (form.placed, *form.parts)]
        made = {one.operator.key: one.operator for one in placed}
        return made | {key: transpose(*reorder) for reorder, key in self.draft.reorders.items()}

    @cached_property
    def drawn(self) -> drawing.DrawnPlan:
        by_key = {one.operator: one for one in self.made.choices}
        form = None
        if self.made.plan.nhwc:
            form = laid_out_form(TypedNodes.of_structure(self.structure), self.made.plan.nhwc)
        making = PlanDrawing(self.draft, by_key, form)
        making.add_all(self.made.plan.steps)
        return drawing.drawn(making.steps, making.edges)


@dataclass(frozen=True)
class PassedPlan:
    """One pass's effect on the predicted time, in microseconds; ``gain``: before ÷ after."""

    text: str
    does: str
    before_us: float
    after_us: float
    gain: float | None


@dataclass(frozen=True)
class PlanCard:
    """``why_none``: why there is no plan, if there is none."""

    model: Model
    kept: KeptPlan | None
    why_none: str = ""
    passes: tuple[str, ...] = UNLESS_NAMED
    every_pass: tuple[str, ...] = tuple(PASSES)

    @property
    def made(self) -> MadePlan | None:
        return self.kept.made if self.kept else None

    @property
    def drawn(self) -> drawing.DrawnPlan | None:
        return self.kept.drawn if self.kept else None

    @cached_property
    def table(self) -> Table:
        choices = self.kept.choices if self.kept else []
        return Table(
            "plan", "The plan's choices", _CHOICES, choices[:ROWS_SHOWN], every=choices, css="stacks"
        )

    @property
    def gain(self) -> float | None:
        made = self.made
        return made.default_us / made.predicted_us if made and made.predicted_us else None

    @property
    def is_plain(self) -> bool:
        """Whether only the default passes were used."""
        return self.passes == UNLESS_NAMED

    @property
    def can_ask(self) -> bool:
        """Whether its passes find unknown operators that could change it."""
        return self.made is not None and bool({"fusion", "layout"} & set(self.passes))

    @property
    def query(self) -> str:
        """The address part that other pages of the report add."""
        return "" if self.is_plain else f"&passes={','.join(self.passes)}"

    @property
    def is_whole(self) -> bool:
        return self.passes == self.every_pass

    @property
    def passed(self) -> list[PassedPlan]:
        if self.made is None or not any(self.made.passed_us.values()):
            return []
        made, before = self.made, [*self.made.passed_us.values()]
        return [
            PassedPlan(_SAID[name], _DOES[name], before_us, made.passed_us[name], made.gains.get(name))
            for name, before_us in zip(made.passes, before, strict=False)
        ]

    @property
    def asking(self) -> dict[str, Any]:
        """The request that makes this plan and asks for the most promising unknown operators."""
        names = self.passes if not self.is_plain else self.every_pass
        many = {"fusion": "fusions", "layout": "layouts"}
        counts = {many[name]: ASKED_AT_ONCE for name in names if name in many}
        return {"model": self.model.pk, "passes": list(names)} | counts

    @property
    def request(self) -> str:
        """The request that makes this plan, as JSON."""
        named = {} if self.is_plain else {"passes": list(self.passes)}
        return json.dumps({"model": self.model.pk} | named)

    @property
    def asking_request(self) -> str:
        return json.dumps(self.asking)

    @property
    def asking_command(self) -> str:
        asking = self.asking
        counts = [f"--{name} {asking[name]}" for name in ("fusions", "layouts") if name in asking]
        return " ".join([f"manage.py plan {self.model.pk} --passes {','.join(asking['passes'])}", *counts])

    @cached_property
    def measured(self) -> PlanMeasured | None:
        """This plan's measured times; else those of the model's last measured plan."""
        if self.made is None:
            return None
        plans = planning.plans_of_model(self.model)
        reports = PlanMeasured.objects.filter(plan__in=plans).select_related("plan")
        of_this = Case(When(plan__sha256=self.made.sha256, then=1), default=0)
        return reports.order_by(of_this.desc(), "-at").first()

    @property
    def measured_of(self) -> str:
        """The measured plan, if it is another one."""
        if self.made is None or self.measured is None or self.measured.plan.sha256 == self.made.sha256:
            return ""
        if self.measured.plan.key != self.made.plan.model:
            return "a session's plan of the model's simpler form"
        return "an earlier plan"


def plan_card(report: ModelReport, passes: str = "") -> PlanCard:
    """The plan by what is published now, in a constant number of queries; nothing is recorded. A process
    makes it once for the same published and reported data, and again after a minute, since prices may change.
    ``passes``: those named in the address, with commas; such a plan may take seconds, so it is made again
    only after a minute."""
    model = report.model
    if not model.structure_key:
        return PlanCard(model, None, planning.why_no_structure(model))
    try:
        names = passes_named(passes.split(",") if passes else None)
    except CallerError as error:
        return PlanCard(model, None, str(error))
    standing: tuple[Hashable, ...] = (model.structure_key,)
    if names == UNLESS_NAMED:
        here = Best.objects.filter(
            operator__models__model=model, target=model.target_id, setting=model.setting_id
        )
        published = here.aggregate(count=Count("pk"), last=Max("published_at"))
        standing = (*published.values(), model.structure_key, *report.rows)
    try:
        kept = _made(model, standing, int(time.monotonic() // KEPT_S), names)
    except CallerError as error:
        return PlanCard(model, None, str(error), names)
    return PlanCard(model, kept, passes=names)


@lru_cache(maxsize=KEPT)
def _made(model: Model, known: Sequence[Hashable], minute: int, passes: tuple[str, ...]) -> KeptPlan:
    """``known`` and ``minute`` are only cache keys."""
    structure = planning.structure_of_model(model)
    made = planning.make_plan(structure, model.target, model.setting, model.organisation, passes)
    assert made.draft is not None  # it was made just now
    return KeptPlan(made, structure, made.draft)


def _time(one: PlanChoice) -> float:
    return (one.default_us or 0.0) * len(one.nodes)
