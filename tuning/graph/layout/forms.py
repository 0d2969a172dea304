"""Nodes of a model that run channels-last as one operator, and that operator. PURE.

It is the catalogue's operator for them in that layout (docs/plans.md): Transpose–X–Transpose over dense
tensors, or X over the transposed shapes if it is element-wise. It is looked up, and so explored, like any
other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from opatlas.errors import InvalidOperator
from opatlas.graph.fused import PlacedOperator, fused
from opatlas.graph.fusion.candidates import LocalValues, PartsShape, shape_of
from opatlas.graph.laid_out import TO_NHWC
from opatlas.graph.typed_nodes import RANK, TypedNodes
from opatlas.graph.types import TensorType
from opatlas.identity.dtypes import CODES
from opatlas.identity.operator import Operator
from opatlas.identity.operator_types import types_with
from opatlas.identity.parse import parse_canonical
from tuning.graph.layout.names import NHWC, ROW_MAJOR
from tuning.graph.layout.reorders import reorder_operator

SENSITIVE = (
    types_with(family="convolution")
    | types_with(family="pooling")
    | types_with(family="resize")
    | {"BatchNormalization", "Concat", "DepthToSpace", "GroupNormalization", "InstanceNormalization"}
    | {"LRN", "Pad", "SpaceToDepth"}
)
"""Types that depend on an image's layout, or stand between such: nothing else is looked up channels-last."""
MOST_MADE = 2_048
"""The most nodes in all different forms of several nodes made for one model, bodies included."""


@dataclass(frozen=True)
class LayoutForm:
    """``placed``: the operator, and its tensors and output by the model's value numbers, of which those in
    ``turned`` are NHWC like the output. ``parts``: for each element-wise node its own."""

    nodes: tuple[int, ...]
    placed: PlacedOperator
    turned: tuple[int, ...]
    parts: tuple[PlacedOperator, ...] = ()


class FormShape(NamedTuple):
    """The nodes' operators and how they are connected, which inputs are transposed, and the outputs: the same
    at any place of any model."""

    parts: PartsShape
    turned: tuple[int, ...]
    output: int
    by_element: bool


KnownForms = dict[FormShape, LayoutForm | None]
"""None if there is no form."""


class MadeForms:
    """The forms of one model and its bodies. ``known``: forms made before, for any model; new ones are added.
    The limit counts as if none had been made, or a plan would depend on earlier plans."""

    def __init__(self, known: KnownForms | None = None) -> None:
        self.known = {} if known is None else known
        self._mine = set[FormShape]()
        self._left = MOST_MADE

    def of(self, parts: Sequence[PlacedOperator], what: FormShape) -> LayoutForm | None:
        """By the numbers of ``what``. Also None for several nodes beyond :data:`MOST_MADE`."""
        if what not in self._mine and len(parts) > 1:
            if len(parts) > self._left:
                return None
            self._left -= len(parts)
        self._mine.add(what)
        if what not in self.known:
            here = [
                PlacedOperator(part.operator, tensors, outputs)
                for part, (_, tensors, outputs) in zip(parts, what.parts, strict=True)
            ]
            self.known[what] = _made(here, what.turned, what.output, what.by_element)
        return self.known[what]


def forms_of(
    model: TypedNodes,
    units: Iterable[tuple[int, ...]],
    placed: Mapping[int, PlacedOperator],
    made_before: MadeForms | None = None,
) -> list[LayoutForm]:
    """Of the units that can run channels-last. ``placed``: the operators of nodes. Units that differ in their
    place alone are made once, in another body of the model too if that says what was ``made_before``."""
    found, every = list[LayoutForm](), made_before or MadeForms()
    for unit in units:
        if model.misfit(unit) or not placed.keys() >= set(unit):
            continue
        by_element = model.goes_by_element(unit)
        if not by_element and SENSITIVE.isdisjoint(model.types[node] for node in unit):
            continue
        local = LocalValues()
        parts = [placed[node] for node in unit]
        kinds, turned = _kinds(parts), model.turned(unit)
        if any(kinds.get(one) is None for one in turned) or any(
            model.type_of(one) != kinds[one] for one in kinds
        ):
            continue  # a structure from anywhere may contradict its operators
        shape = shape_of(parts, local)
        output = local.of([model.output_of(unit)])[0]
        if (one := every.of(parts, FormShape(shape, local.of(turned), output, by_element))) is not None:
            own = tuple(_back(part, local) for part in one.parts)
            found.append(LayoutForm(unit, _back(one.placed, local), local.back(one.turned), own))
    return found


def _back(part: PlacedOperator, local: LocalValues) -> PlacedOperator:
    return PlacedOperator(part.operator, local.back(part.tensors), local.back(part.outputs))


def _made(
    parts: Sequence[PlacedOperator], turned: tuple[int, ...], output: int, by_element: bool
) -> LayoutForm | None:
    try:
        if by_element:
            own = tuple(_turned_part(part) for part in parts)
            return LayoutForm((), own[0] if len(own) == 1 else fused(own, (output,)), turned, own)
        return LayoutForm((), fused(_between_transposes(parts, turned, output), (output,)), turned)
    except InvalidOperator:  # nor need they fit together
        return None


def _between_transposes(
    parts: Sequence[PlacedOperator], turned: tuple[int, ...], output: int
) -> list[PlacedOperator]:
    beyond = 1 + max(value for part in parts for value in (*part.tensors, *part.outputs))
    inner = {value: beyond + at for at, value in enumerate((*turned, output))}
    kinds = _kinds(parts)
    before = [
        PlacedOperator(transpose(kinds[value], NHWC, ROW_MAJOR), (value,), (inner[value],))
        for value in turned
    ]
    within = [
        PlacedOperator(
            part.operator,
            tuple(inner.get(value, value) for value in part.tensors),
            tuple(inner.get(value, value) for value in part.outputs),
        )
        for part in parts
    ]
    after = PlacedOperator(transpose(kinds[output], ROW_MAJOR, NHWC), (inner[output],), (output,))
    return [*before, *within, after]


def _kinds(parts: Sequence[PlacedOperator]) -> dict[int, TensorType]:
    """The types of all inputs and outputs of the operators."""
    found = {}
    for part in parts:
        numbers = (*part.operator.tensor_inputs, *part.operator.outputs)
        for number, value in zip(numbers, (*part.tensors, *part.outputs), strict=True):
            described = part.operator.value(number)
            found[value] = TensorType(CODES[described.dtype], described.shape)
    return found


@lru_cache(maxsize=4096)
def transpose(kind: TensorType, source: str, target: str) -> Operator:
    """The operator that brings a value of this type from one layout into the other."""
    made = reorder_operator(kind, source, target)
    assert made is not None  # neither has blocks
    return made


def _turned_part(part: PlacedOperator) -> PlacedOperator:
    """An element-wise operator over tensors with their dimensions in another order."""
    document = part.operator.to_json()
    del document["produced"]
    for described in document["inputs"]:
        if len(described["shape"]) == RANK:
            described["shape"] = [described["shape"][axis] for axis in TO_NHWC]
    found = parse_canonical(document)
    value_of = dict(zip(part.operator.tensor_inputs, part.tensors, strict=True))
    read = (found.inputs[number] for number in found.operator.tensor_inputs)
    return PlacedOperator(
        found.operator,
        tuple(value_of[int(str(name).removeprefix("inputs[").removesuffix("]"))] for name in read),
        part.outputs,
    )
