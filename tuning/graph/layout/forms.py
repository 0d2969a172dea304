"""Nodes of a model that run as one operator channels-last, as that operator. PURE.

It is what the catalogue has of them in that layout (docs/plans.md): Transpose–X–Transpose over dense tensors,
or X over the turned shapes where it goes element by element. Looked up, and so explored, like any other.
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
"""Types of which it matters how a picture lies, or that stand between such: of anything else channels-last is
not looked up."""
MOST_MADE = 2_048
"""Nodes of all forms of several nodes that differ and are made for one model, its bodies included."""


@dataclass(frozen=True)
class LayoutForm:
    """``placed``: the operator, its tensors and its output by the model's own numbers of values, ``turned``
    of which lie in NHWC as the output does. ``parts``: of each node by itself, where it goes by element."""

    nodes: tuple[int, ...]
    placed: PlacedOperator
    turned: tuple[int, ...]
    parts: tuple[PlacedOperator, ...] = ()


class FormShape(NamedTuple):
    """Nodes' operators and how these hang together, what they read turned and what they make: the same in any
    place of any model."""

    parts: PartsShape
    turned: tuple[int, ...]
    output: int
    by_element: bool


KnownForms = dict[FormShape, LayoutForm | None]
"""None where there is none."""


class MadeForms:
    """Forms of one model and its bodies. ``known``: those that were made before, for whichever model; its own
    are put there too. So many are made as if none had been, or a plan would depend on the plans before."""

    def __init__(self, known: KnownForms | None = None) -> None:
        self.known = {} if known is None else known
        self._mine = set[FormShape]()
        self._left = MOST_MADE

    def of(self, parts: Sequence[PlacedOperator], what: FormShape) -> LayoutForm | None:
        """By the numbers that ``what`` has. None too for several nodes where :data:`MOST_MADE` were made."""
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
    """Of those units that can run channels-last. ``placed``: the operators of nodes. Units that differ in
    their place alone are made once, in another body of the model too where that says what was
    ``made_before``."""
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
    """Of all values that the operators read and make."""
    found = {}
    for part in parts:
        numbers = (*part.operator.tensor_inputs, *part.operator.outputs)
        for number, value in zip(numbers, (*part.tensors, *part.outputs), strict=True):
            described = part.operator.value(number)
            found[value] = TensorType(CODES[described.dtype], described.shape)
    return found


@lru_cache(maxsize=4096)
def transpose(kind: TensorType, source: str, target: str) -> Operator:
    """What brings a value of this type in the model from one layout into the other."""
    made = reorder_operator(kind, source, target)
    assert made is not None  # neither has blocks
    return made


def _turned_part(part: PlacedOperator) -> PlacedOperator:
    """An operator that goes by element over tensors whose dimensions are in another order."""
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
