"""Fused operators of a model whose structure is kept: what may be fused, made of the catalogue's operators
(:mod:`tuning.graph.fusion`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from catalog import models
from opatlas.graph.fused import PlacedOperator
from opatlas.graph.linked import LEFT_OUT
from opatlas.graph.structure import ModelStructure, StructureNode
from opatlas.identity import Operator, Setting
from tuning.graph.fusion.candidates import FusionCandidate, TypedFlow, as_operators, proposals
from tuning.graph.fusion.choosing import FusionQuestion
from tuning.graph.fusion.dataflow import DataFlow
from tuning.graph.fusion.device import LibraryRules, by_compiled_kernels
from tuning.graph.fusion.partition import partition
from tuning.routes.registry import route

COMPILERS = ("tvm", "halide")
"""Routes whose kernels run in a model, which are also what the table of operator types marks."""
BATCH = 512


@dataclass(frozen=True)
class UnknownFusion:
    """A fused operator that nothing is published of: where it is in the model, each place by its nodes, and
    what it would save there at best, in microseconds of one run."""

    operator: Operator
    places: tuple[tuple[int, ...], ...]
    gain_us: float


def fusions_of(
    structure: ModelStructure, target: models.Target, setting: models.Setting
) -> tuple[FusionCandidate, ...]:
    """Candidates of what compiled kernels can do on the target; operators that the catalogue has never seen
    are in none. A few statements."""
    device = by_compiled_kernels(target.kind, COMPILERS)
    wanted = Setting.from_json(setting.description)
    libraries = [LibraryRules.of_route(route(name), wanted) for name in COMPILERS]
    placed = _placed(structure)
    operators = [placed[node].operator if node in placed else None for node in range(len(structure.nodes))]
    flow = DataFlow.of_structure(structure)
    divisions = [partition(flow, operators, device, library) for library in libraries]
    eligible = frozenset(
        node
        for node, operator in enumerate(operators)
        if operator is not None
        and node not in flow.control
        and not device.refusal(operator)
        and any(not library.refusal(operator) for library in libraries)
    )
    typed = TypedFlow(flow, [node.op_type for node in structure.nodes], eligible)
    targets = [part for division in divisions for part in division.targets]
    found, _ = as_operators(proposals(typed, targets).found, placed)
    has = dict[str, bool]()
    for one in found:
        operator = one.placed.operator
        if operator.key not in has:
            has[operator.key] = any(not library.refusal(operator) for library in libraries)
    return tuple(one for one in found if has[one.placed.operator.key])


def unknown_fusions(
    fusions: Sequence[FusionCandidate], questions: Sequence[FusionQuestion]
) -> list[UnknownFusion]:
    """Each operator once, those that might save most in the model first."""
    found: dict[str, UnknownFusion] = {}
    for question in questions:
        one = fusions[question.option]
        before = found.get(one.placed.operator.key)
        places, gain_us = (before.places, before.gain_us) if before else ((), 0.0)
        taken = {node for place in places for node in place}
        if taken.isdisjoint(one.nodes):  # of places that share a node only one can be fused
            places, gain_us = (*places, one.nodes), gain_us + question.gain_us
        found[one.placed.operator.key] = UnknownFusion(one.placed.operator, places, gain_us)
    return sorted(found.values(), key=lambda one: (-one.gain_us, one.places))


def _placed(structure: ModelStructure) -> dict[int, PlacedOperator]:
    """The operators of nodes, as far as they fit: a structure may come from anybody."""
    known = dict(_operators(list(structure.operators)))
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


def _operators(keys: Sequence[str]) -> Iterator[tuple[str, Operator]]:
    for start in range(0, len(keys), BATCH):
        rows: Mapping[str, models.Operator] = models.Operator.objects.in_bulk(
            keys[start : start + BATCH], field_name="key"
        )
        for key, row in rows.items():
            yield key, Operator.from_json(row.graph)
