"""Operators of a model that may run channels-last: what they are as operators of the catalogue
(:mod:`tuning.graph.layout.forms`), what is published of them, and what asking for the rest would take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from opatlas.graph.linked import BodyPath, NodePath
from opatlas.graph.typed_nodes import TypedNodes
from opatlas.identity import Operator
from opatlas.identity.cost import describe
from tuning.fusions import placed_operators
from tuning.graph.layout.forms import KnownForms, LayoutForm, MadeForms, forms_of, transpose
from tuning.graph.layout.names import NHWC, ROW_MAJOR
from tuning.graph.layout.problem import ReorderOf
from tuning.graph.passes.draft import KnownOperator, LayoutQuestion, PlanDraft
from tuning.models import Stage
from tuning.plan_odds import CHANNELS_LAST, AnsweredQuestion
from tuning.queue import rates

MOST_KEPT = 4096
"""Forms that a process keeps, as it keeps fused operators."""

_kept: KnownForms = {}


@dataclass(frozen=True)
class UnknownLayout:
    """An operator that nothing is published of and that layouts of the model would need: one channels-last,
    with where the nodes of each of its places are, or a reorder, which has none; and what it is worth at
    best, in microseconds of one run."""

    operator: Operator
    places: tuple[tuple[NodePath, ...], ...]
    gain_us: float


def with_forms(
    draft: PlanDraft,
    known: Mapping[str, Operator],
    published: Callable[[Sequence[str]], Mapping[str, KnownOperator]],
) -> tuple[PlanDraft, dict[str, Operator]]:
    """The draft with what its nodes, and those of its bodies, are channels-last, by themselves and as the
    draft might fuse them, and what reorders their values, as far as both are known; and the operators of all
    of these by their keys. ``known``: the model's operators by key; ``published``: what the catalogue has."""
    if len(_kept) > MOST_KEPT:
        _kept.clear()
    forms, reorders, made = dict[BodyPath, list[LayoutForm]](), dict[ReorderOf, Operator](), MadeForms(_kept)
    whole = TypedNodes.of_structure(draft.structure)
    for body, one in draft.everywhere():
        model = whole.within(body)
        forms[body] = forms_of(model, _units(one), placed_operators(one.structure, known), made)
        reorders |= _reorders(forms[body], model)
    operators = {one.placed.operator.key: one.placed.operator for some in forms.values() for one in some}
    operators |= {operator.key: operator for operator in reorders.values()}
    every = {**draft.published, **published(list(operators))}
    keys = {reorder: operator.key for reorder, operator in reorders.items()}
    draft = draft.each(lambda body, one: replace(one, forms=tuple(forms.get(body, ())), published=every))
    return replace(draft, reorders=keys), operators


def _units(draft: PlanDraft) -> list[tuple[int, ...]]:
    """Each node by itself, then what is fused now, then what might be: small ones first, of which more are
    made within the bound."""
    single = [(node,) for node in range(len(draft.structure.nodes))]
    every = sorted((one.nodes for one in draft.fusions), key=len)
    return list(dict.fromkeys([*single, *draft.units.values(), *every]))


def _reorders(forms: Iterable[LayoutForm], model: TypedNodes) -> dict[ReorderOf, Operator]:
    """Of every value that one of these reads or makes, both ways."""
    values = {value for one in forms for value in (*one.turned, *one.placed.outputs)}
    kinds = dict.fromkeys(model.kind(value) for value in sorted(values))
    ways = ((ROW_MAJOR, NHWC), (NHWC, ROW_MAJOR))
    return {(kind, *way): transpose(kind, *way) for kind in kinds for way in ways}


def unknown_layouts(
    questions: Iterable[LayoutQuestion], operators: Mapping[str, Operator]
) -> list[UnknownLayout]:
    """Each operator once, those first whose answer may change most."""
    found = dict[str, UnknownLayout]()
    for one in questions:
        before = found.get(one.operator, UnknownLayout(operators[one.operator], (), 0.0))
        place = tuple((*one.body, node) for node in one.nodes)
        places = (*before.places, place) if place else before.places
        found[one.operator] = replace(before, places=places, gain_us=before.gain_us + one.gain_us)
    return sorted(found.values(), key=lambda one: (-one.gain_us, one.places))


def answered_layouts(draft: PlanDraft, operators: Mapping[str, Operator]) -> list[AnsweredQuestion]:
    """Units of which that is published."""
    ratios = draft.layouts.ratios if draft.layouts is not None else {}
    return [AnsweredQuestion(operators[key], CHANNELS_LAST, ratio) for key, ratio in ratios.items()]


def exploring_s(operators: Iterable[Operator]) -> float:
    """Seconds of one worker to explore these to the end of their contests, by what such took lately."""
    types = [describe(one).op_type for one in operators]
    if not types:
        return 0.0
    lately = rates.lately()
    return math.fsum(
        lately.pace(stage, one).seconds for one in types for stage in (Stage.FIRST, Stage.CONTEST)
    )
