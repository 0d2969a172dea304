"""Fused operators of a model whose structure is kept: what may be fused, made of the catalogue's operators
(:mod:`tuning.graph.fusion`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from catalog import models
from catalog.registry import read_graph
from opatlas.graph.fused import PlacedOperator
from opatlas.graph.fusion.candidates import (
    MOST_CANDIDATES,
    FusionCandidate,
    KnownFused,
    MadeOperators,
    TypedFlow,
    as_operators,
    proposals,
)
from opatlas.graph.fusion.dataflow import DataFlow
from opatlas.graph.linked import LEFT_OUT, BodyPath, NodePath
from opatlas.graph.structure import ModelStructure, StructureNode
from opatlas.identity import Operator, Setting
from tuning.graph.fusion.device import LibraryRules, by_compiled_kernels
from tuning.graph.fusion.partition import partition
from tuning.graph.passes.draft import KnownOperator, PlanDraft
from tuning.graph.passes.fusion import HEAVY, heavy_nodes
from tuning.plan_odds import FUSED, AnsweredQuestion
from tuning.routes.registry import route

COMPILERS = ("tvm", "halide")
"""Routes whose kernels run in a model, which are also what the table of operator types marks."""
BATCH = 512
MOST_KEPT = 4096
"""Fused operators that a process keeps, of some kB each: a plan is made again and again while what it asked
for is explored, and making them is what takes it longest."""

_kept: KnownFused = {}


@dataclass(frozen=True)
class UnknownFusion:
    """A fused operator that nothing is published of: where the nodes of each of its places in the model are,
    and what it would save there at best, in microseconds of one run."""

    operator: Operator
    places: tuple[tuple[NodePath, ...], ...]
    gain_us: float


def with_fusions(
    draft: PlanDraft,
    target: models.Target,
    setting: models.Setting,
    known: Mapping[str, Operator],
    published: Callable[[Sequence[str]], Mapping[str, KnownOperator]],
) -> PlanDraft:
    """The draft with what may be fused in the model and in each of its bodies, never across a body's end.
    ``known``: the model's operators by key; ``published``: what the catalogue has."""
    finder, fusions = _CandidateFinder(target, setting, known), dict[BodyPath, tuple[FusionCandidate, ...]]()
    for body, one in draft.everywhere():
        fusions[body] = finder.of(one.structure)
    keys = dict.fromkeys(one.placed.operator.key for some in fusions.values() for one in some)
    every = {**draft.published, **published(list(keys))}
    return draft.each(lambda body, one: replace(one, fusions=fusions.get(body, ()), published=every))


class _CandidateFinder:
    """For candidates of what compiled kernels can do on the target, in one model and its bodies, which share
    the bounds; operators that the catalogue has never seen are in none."""

    def __init__(self, target: models.Target, setting: models.Setting, known: Mapping[str, Operator]) -> None:
        wanted = Setting.from_json(setting.description)
        self._device = by_compiled_kernels(target.kind, COMPILERS)
        self._libraries = [LibraryRules.of_route(route(name), wanted) for name in COMPILERS]
        if len(_kept) > MOST_KEPT:
            _kept.clear()
        self._known, self._made, self._left = known, MadeOperators(_kept), MOST_CANDIDATES

    def of(self, structure: ModelStructure) -> tuple[FusionCandidate, ...]:
        placed = placed_operators(structure, self._known)
        numbers = range(len(structure.nodes))
        operators = [placed[node].operator if node in placed else None for node in numbers]
        flow = DataFlow.of_structure(structure)
        divisions = [partition(flow, operators, self._device, library) for library in self._libraries]
        eligible = frozenset(
            node
            for node, operator in enumerate(operators)
            if operator is not None
            and node not in flow.control
            and not self._device.refusal(operator)
            and self._has(operator)
        )
        typed = TypedFlow(flow, [node.op_type for node in structure.nodes], eligible)
        targets = [part for division in divisions for part in division.targets]
        proposed = proposals(typed, targets, most=self._left).found
        self._left -= len(proposed)
        found, _ = as_operators(proposed, placed, self._made)
        return tuple(one for one in found if self._has(one.placed.operator))

    def _has(self, operator: Operator) -> bool:
        return any(not library.refusal(operator) for library in self._libraries)


def answered_fusions(draft: PlanDraft) -> list[AnsweredQuestion]:
    """Those of the draft and its bodies that are published, each operator once."""
    ratios, operators = dict[str, float | None](), dict[str, Operator]()
    for _, part in draft.everywhere():
        ratios = {**part.ratios, **ratios}
        operators |= {one.placed.operator.key: one.placed.operator for one in part.fusions}
    return [AnsweredQuestion(operators[key], FUSED, ratio) for key, ratio in ratios.items()]


def unknown_fusions(draft: PlanDraft) -> list[UnknownFusion]:
    """Each operator once, those first that may be expected to save most in the model: a body's as often as it
    runs. A kernel of several products has to be the fastest at each of them, of which the model's own say how
    often kernels are."""
    operators, taken = dict[str, Operator](), dict[str, set[NodePath]]()
    places, gains_us = dict[str, list[tuple[NodePath, ...]]](), dict[str, float]()
    for body, part in draft.everywhere():
        for question in part.questions:
            one = part.fusions[question.option]
            key, place = one.placed.operator.key, tuple((*body, node) for node in one.nodes)
            operators[key] = one.placed.operator
            if taken.setdefault(key, set()).isdisjoint(place):  # else only one of the two can be fused
                taken[key].update(place)
                places.setdefault(key, []).append(place)
                gains_us[key] = gains_us.get(key, 0.0) + part.runs * question.gain_us
    found = [UnknownFusion(one, tuple(places[key]), gains_us[key]) for key, one in operators.items()]
    share = _share_by_kernels(draft)

    def expected_us(one: UnknownFusion) -> float:
        return one.gain_us * share ** sum(op_type in HEAVY for op_type in one.operator.op_types)

    return sorted(found, key=lambda one: (-expected_us(one), one.places))


def _share_by_kernels(draft: PlanDraft) -> float:
    """Of the products and convolutions in the model that something is known of, which share runs by kernels;
    as if one more did and one did not."""
    heavy = by_kernels = 0
    for _, part in draft.everywhere():
        own = {node for last, one in part.chosen.items() for node in one.fused or (last,)}
        known = heavy_nodes(part, [node for node in range(len(part.structure.nodes)) if part.left_us(node)])
        heavy += len(known)
        by_kernels += len(own.intersection(known))
    return (by_kernels + 1) / (heavy + 2)


def placed_operators(structure: ModelStructure, known: Mapping[str, Operator]) -> dict[int, PlacedOperator]:
    """The operators of nodes, as far as they fit: a structure may come from anybody. ``known``: by their
    keys."""
    placed = {}
    for number, node in enumerate(structure.nodes):
        operator = known.get(node.operator)
        made = tuple(value for value in node.outputs if value != LEFT_OUT)
        if operator is not None and _fits(operator, node, made):
            placed[number] = PlacedOperator(operator, node.tensors, made)
    return placed


def _fits(operator: Operator, node: StructureNode, made: Sequence[int]) -> bool:
    return (
        len(operator.tensor_inputs) == len(node.tensors)
        and len(operator.outputs) == len(made)
        and node.reads.issuperset(node.tensors)
    )


def operators_of(keys: Sequence[str]) -> dict[str, Operator]:
    """Those that the catalogue has seen, by their keys."""
    return dict(_operators(keys))


def _operators(keys: Sequence[str]) -> Iterator[tuple[str, Operator]]:
    for start in range(0, len(keys), BATCH):
        rows: Mapping[str, models.Operator] = models.Operator.objects.in_bulk(
            keys[start : start + BATCH], field_name="key"
        )
        for key, row in rows.items():
            if (operator := read_graph(row.graph)) is not None:
                yield key, operator
