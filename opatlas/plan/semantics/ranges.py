"""Which numbers a model's values can have, and which special cases each node can meet. PURE.

The guard bounds the model's inputs (:mod:`opatlas.plan.guard`): finite floats, whole numbers of moderate
size. From there values are bounded node by node. The result of an unknown operator may be any number of its
type. Sums and products of finite floats count as finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from opatlas.graph.input_uses import MODERATE, SHAPING, InputUse, input_uses
from opatlas.graph.normal import GraphBody, GraphNode, ModelGraph
from opatlas.graph.types import TensorType
from opatlas.identity.dtypes import NAMES
from opatlas.plan.semantics import intervals as of
from opatlas.plan.semantics.intervals import ANY, LIMITS, TRUTH, Interval
from opatlas.plan.semantics.rules import RULES, NodeContext, unknown

ALWAYS, LARGE, WIDE, WRAPS, NEGATIVE = "always", "large", "wide", "wraps", "negative"
"""What a node meets beside NaN and infinities: nothing particular; whole numbers beyond what float32 holds;
those beyond 32 bits; results beyond the type; negative whole numbers."""
_POSITIONS = frozenset({"TopK", "Unique", "MaxPool"})
"""Operators whose further outputs are positions in the first input."""
MOST_CONSTANT = 1 << 20
"""The most elements of a constant that is examined."""
_INT32 = LIMITS["int32"]


@dataclass(frozen=True)
class ValueRanges:
    """What each value of a model or body can be, by number, and what each node can meet."""

    values: Mapping[int, Interval]
    met: Sequence[frozenset[str]]


def bounded(graph: ModelGraph, given: Mapping[int, Interval]) -> ValueRanges:
    """``given``: the ranges of the graph's inputs. Bodies of branches and loops are not examined."""
    values = {**given, **_constants(graph)}
    met = []
    for node in graph.nodes:
        slots = [slot for slot, one in enumerate(node.inputs) if one >= 0]
        read = [values.get(node.inputs[slot], ANY) for slot in slots]
        makes = [element_in(graph, one) for one in node.outputs]
        kinds = [graph.type_of(node.inputs[slot]) for slot in slots]
        made = graph.type_of(node.outputs[0]) if node.outputs and node.outputs[0] >= 0 else None
        context = NodeContext(node, kinds, made, makes[0] if makes else "")
        raw = _result(read, context)
        sized = SHAPING.get(node.proto.op_type, ())  # the end of a Slice may be the largest number there is
        counted = [
            (one, element_in(graph, node.inputs[slot]))
            for slot, one in zip(slots, read, strict=True)
            if slot not in sized
        ]
        met.append(_met(counted, raw, context.element))
        for place, (output, element) in enumerate(zip(node.outputs, makes, strict=True)):
            if output >= 0:
                values[output] = _made(place, raw, read, context, element)
    return ValueRanges(values, met)


def of_model(graph: ModelGraph) -> ValueRanges:
    """The ranges in a guarded run."""
    uses = input_uses(graph)
    pairs = zip(graph.input_names, graph.inputs, strict=True)
    return bounded(graph, {number: guarded(graph.type_of(number), uses[name]) for name, number in pairs})


def of_body(node: GraphNode, body: GraphBody, outer: ValueRanges) -> ValueRanges:
    """The ranges in a branch or loop. A carried value counts as finite if no iteration makes it otherwise."""
    graph = body.graph
    captured = {inner: outer.values.get(number, ANY) for inner, number in body.captured}
    given = of.mixed(outer.values.get(one, ANY) for one in node.inputs if one >= 0)
    for special in (given.special, of.SPECIAL):
        formal = {one: unknown(element_in(graph, one), [Interval(special=special)]) for one in body.formal}
        if node.proto.op_type == "Loop" and body.formal:
            formal[body.formal[0]] = Interval(0, MODERATE)  # rounds so far
        found = bounded(graph, captured | formal)
        if not any(found.values.get(one, ANY).special for one in graph.outputs):
            break
    return found


def element_in(graph: ModelGraph, number: int) -> str:
    """The name of a value's element type; empty if unknown."""
    if number < 0:
        return ""
    if (kind := graph.type_of(number)) is not None:
        return NAMES.get(kind.element, "")
    proto = graph.proto_of(graph.names[number])
    return NAMES.get(proto.tensor_type.elem_type, "") if proto is not None else ""


def _made(
    place: int, raw: Interval, read: Sequence[Interval], context: NodeContext, element: str
) -> Interval:
    """The range of one output, within its type."""
    if place == 0:
        return _within_type(raw, element)
    if context.node.proto.op_type in _POSITIONS and context.kinds and context.kinds[0] is not None:
        return Interval(0, context.kinds[0].size)
    return unknown(element, read)


def guarded(kind: TensorType | None, use: InputUse) -> Interval:
    """The range that the guard allows for an input."""
    name = NAMES.get(kind.element, "") if kind is not None else ""
    if name not in LIMITS:
        return TRUTH if name == "bool" else ANY
    low, high = LIMITS[name]
    if high >= _INT32[1]:
        low, high = max(low, -MODERATE), min(high, MODERATE)
    return Interval(max(low, use.low), min(high, use.high))


def _constants(graph: ModelGraph) -> dict[int, Interval]:
    """The constants that rules ask for. Weights of sums and products are left out: any run shows a NaN
    there."""
    ruled = frozenset().union(*(node.reads for node in graph.nodes if node.proto.op_type in RULES))
    known = [(number, graph.type_of(number)) for number in ruled if graph.is_constant(number)]
    small = [number for number, kind in known if kind and 0 < kind.size <= MOST_CONSTANT]
    values = graph.evaluate(sorted(small))
    return {
        number: Interval.of_array(value) for number, value in values.items() if value.dtype.kind not in "OSUc"
    }


def _result(read: Sequence[Interval], context: NodeContext) -> Interval:
    """The range before the type's bounds apply."""
    proto = context.node.proto
    rule = RULES.get(proto.op_type) if proto.domain in ("", "ai.onnx") else None
    try:
        return rule(read, context) if rule is not None else unknown(context.element, read)
    except (IndexError, OverflowError):
        return unknown(context.element, read)


def _within_type(raw: Interval, element: str) -> Interval:
    if element not in LIMITS:
        return raw
    low, high = LIMITS[element]
    return replace(raw, special=of.NOTHING) if low <= raw.low and raw.high <= high else Interval(low, high)


def _met(read: Sequence[tuple[Interval, str]], raw: Interval, element: str) -> frozenset[str]:
    limits = LIMITS.get(element)
    whole = [one for one, element in read if element in LIMITS]
    held = [*whole, *([raw] if limits is not None else [])]
    wraps = limits is not None and not (limits[0] <= raw.low and raw.high <= limits[1])
    aspects = {
        ALWAYS: True,
        LARGE: any(one.low < -MODERATE or one.high > MODERATE for one in held),
        WIDE: any(one.low < _INT32[0] or one.high > _INT32[1] for one in held),
        WRAPS: wraps,
        NEGATIVE: any(one.low < 0 for one in whole),
    }
    return frozenset(name for name, is_met in aspects.items() if is_met).union(
        raw.special, *(one.special for one, _ in read)
    )
