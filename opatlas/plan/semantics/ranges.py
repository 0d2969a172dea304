"""Which numbers a model's values can be, and what each node meets of what frameworks differ in. PURE.

The model's inputs are within what its guard lets through (:mod:`opatlas.plan.guard`): finite floats, whole
numbers of a moderate size. What follows from them is bounded node by node; where nothing is known of an
operator, its result may be any number of its type. Sums and products of finite floats are taken to be finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from onnx import helper

from opatlas.graph.input_uses import InputUse
from opatlas.graph.normal import GraphNode, ModelGraph
from opatlas.graph.types import TensorType
from opatlas.identity.dtypes import NAMES
from opatlas.plan.semantics import intervals as of
from opatlas.plan.semantics.intervals import ANY, LIMITS, TRUTH, Interval

MODERATE = 2**24
"""A guarded run's whole numbers of 32 bits or more are at most so large, up or down: beyond every vocabulary,
and a product with a small constant still fits 32 bits."""
ALWAYS, WIDE, WRAPS, NEGATIVE = "always", "wide", "wraps", "negative"
"""What a node meets beside NaN and infinities: nothing particular; whole numbers beyond 32 bits; results beyond
the type; negative whole numbers."""
_POSITIONS = frozenset({"TopK", "Unique", "MaxPool"})
"""Whose further outputs are positions in the first input."""
MOST_CONSTANT = 1 << 20
"""Elements of a constant that is looked at."""
_INT32 = LIMITS["int32"]


@dataclass(frozen=True)
class _Context:
    """What an operator's rule may ask: its node, the types of what it reads and makes."""

    node: GraphNode
    kinds: Sequence[TensorType | None]
    made: TensorType | None

    def attribute(self, name: str, default: float) -> float:
        found = next((one for one in self.node.proto.attribute if one.name == name), None)
        return default if found is None else float(helper.get_attribute_value(found))

    @property
    def count(self) -> float:
        """Elements of what is read for each that is made; endless where nobody knows."""
        kind = self.kinds[0] if self.kinds else None
        return math.inf if kind is None or self.made is None else kind.size / max(1, self.made.size)


Rule = Callable[[Sequence[Interval], _Context], Interval]


def met_by_nodes(graph: ModelGraph, uses: Mapping[str, InputUse] | None) -> list[frozenset[str]]:
    """What each node can meet. ``uses``: of its inputs; None where nothing holds those back, as in a body of
    a branch or loop. Bodies are not looked into."""
    known = _given(graph, uses) | _constants(graph)
    found = []
    for node in graph.nodes:
        read = [known.get(one, ANY) for one in node.inputs if one >= 0]
        made = graph.type_of(node.outputs[0]) if node.outputs and node.outputs[0] >= 0 else None
        kinds = [graph.type_of(one) for one in node.inputs if one >= 0]
        raw = _result(read, _Context(node, kinds, made))
        found.append(_met(read, raw, kinds, made))
        for place, output in enumerate(node.outputs):
            known[output] = _made(place, raw, read, node, kinds, graph.type_of(output) if output >= 0 else None)
    return found


def _made(
    place: int,
    raw: Interval,
    read: Sequence[Interval],
    node: GraphNode,
    kinds: Sequence[TensorType | None],
    kind: TensorType | None,
) -> Interval:
    """One output, within its type."""
    if place == 0:
        return _within_type(raw, kind)
    if node.proto.op_type in _POSITIONS and kinds and kinds[0] is not None:
        return Interval(0, kinds[0].size)
    return _unknown(kind, read)


def guarded(kind: TensorType | None, use: InputUse) -> Interval:
    """What a guarded run gives an input."""
    name = NAMES.get(kind.element, "") if kind is not None else ""
    if name not in LIMITS:
        return TRUTH if name == "bool" else ANY
    low, high = LIMITS[name]
    if high >= _INT32[1]:
        low, high = max(low, -MODERATE), min(high, MODERATE)
    return Interval(max(low, use.low), min(high, use.high))


def _given(graph: ModelGraph, uses: Mapping[str, InputUse] | None) -> dict[int, Interval]:
    if uses is None:
        return {number: _anything(graph.type_of(number)) for number in graph.inputs}
    pairs = zip(graph.input_names, graph.inputs, strict=True)
    return {number: guarded(graph.type_of(number), uses.get(name, InputUse())) for name, number in pairs}


def _anything(kind: TensorType | None) -> Interval:
    return _unknown(kind, [Interval(special=of.SPECIAL)])


def _constants(graph: ModelGraph) -> dict[int, Interval]:
    known = [(number, graph.type_of(number)) for number in range(len(graph.names)) if graph.is_constant(number)]
    read = frozenset().union(*(node.reads for node in graph.nodes))
    small = [number for number, kind in known if number in read and kind and 0 < kind.size <= MOST_CONSTANT]
    values = graph.evaluate(small)
    return {number: Interval.of_array(value) for number, value in values.items() if value.dtype.kind not in "OSUc"}


def _result(read: Sequence[Interval], context: _Context) -> Interval:
    """As it would be without bounds of the type."""
    proto = context.node.proto
    rule = _RULES.get(proto.op_type) if proto.domain in ("", "ai.onnx") else None
    try:
        return rule(read, context) if rule is not None else _unknown(context.made, read)
    except (IndexError, OverflowError):
        return _unknown(context.made, read)


def _unknown(kind: TensorType | None, read: Sequence[Interval]) -> Interval:
    name = NAMES.get(kind.element, "") if kind is not None else ""
    if name in LIMITS:
        return Interval(*LIMITS[name])
    return TRUTH if name == "bool" else of.mixed(read)


def _within_type(raw: Interval, kind: TensorType | None) -> Interval:
    name = NAMES.get(kind.element, "") if kind is not None else ""
    if name not in LIMITS:
        return raw
    low, high = LIMITS[name]
    return replace(raw, special=of.NOTHING) if low <= raw.low and raw.high <= high else Interval(low, high)


def _met(
    read: Sequence[Interval], raw: Interval, kinds: Sequence[TensorType | None], made: TensorType | None
) -> frozenset[str]:
    whole = [one for one, kind in zip(read, kinds, strict=True) if kind is None or _limits(kind)]
    result = [raw] if made is None or _limits(made) else []
    wide = any(not _INT32[0] <= one.low <= one.high <= _INT32[1] for one in (*whole, *result))
    limits = _limits(made)
    wraps = limits is not None and not (limits[0] <= raw.low and raw.high <= limits[1])
    aspects = {ALWAYS: True, WIDE: wide, WRAPS: wraps, NEGATIVE: any(one.low < 0 for one in whole)}
    return frozenset(name for name, is_met in aspects.items() if is_met).union(
        raw.special, *(one.special for one in read)
    )


def _limits(kind: TensorType | None) -> tuple[int, int] | None:
    return LIMITS.get(NAMES.get(kind.element, "")) if kind is not None else None


# ---- rules by operator ------------------------------------------------------------------------------


def _same(read: Sequence[Interval], _: _Context) -> Interval:
    return read[0]


def _all(read: Sequence[Interval], _: _Context) -> Interval:
    return of.union(read)


def _with_zero(read: Sequence[Interval], _: _Context) -> Interval:
    return of.union([read[0], Interval(0, 0)])


def _one(function: Callable[[Interval], Interval]) -> Rule:
    return lambda read, _: function(read[0])


def _two(function: Callable[[Interval, Interval], Interval]) -> Rule:
    return lambda read, _: function(read[0], read[1])


def _truth(read: Sequence[Interval], _: _Context) -> Interval:
    return TRUTH


def _fixed(low: float, high: float) -> Rule:
    """Of a bounded result, NaN for NaN."""
    return lambda read, _: Interval(low, high, read[0].special & {of.NAN})


def _sum(read: Sequence[Interval], _: _Context) -> Interval:
    made = read[0]
    for one in read[1:]:
        made = of.added(made, one)
    return made


def _divide(read: Sequence[Interval], context: _Context) -> Interval:
    return of.divided_whole(read[0], read[1]) if _limits(context.made) else of.divided(read[0], read[1])


def _power(read: Sequence[Interval], context: _Context) -> Interval:
    made = of.power(read[0], read[1])
    if _limits(context.made) and read[1].high < 64 and math.isfinite(read[0].low) and math.isfinite(read[0].high):
        most = max(abs(read[0].low), abs(read[0].high), 1) ** max(read[1].high, 0)
        return Interval(-most if read[0].low < 0 else 0, most)
    return made


def _softmax(read: Sequence[Interval], context: _Context) -> Interval:
    special = {of.NAN} if read[0].special else of.NOTHING
    is_log = context.node.proto.op_type == "LogSoftmax"
    return Interval(-math.inf if is_log else 0, 0 if is_log else 1, frozenset(special))


def _clip(read: Sequence[Interval], context: _Context) -> Interval:
    inputs = context.node.inputs
    given = iter(read)
    bounds = [next(given) if number >= 0 else None for number in inputs]
    low, high = (*bounds[1:], None, None)[:2]
    lowest = low.low if low is not None else context.attribute("min", -math.inf)
    highest = high.high if high is not None else context.attribute("max", math.inf)
    return of.clipped(read[0], lowest, highest)


def _relu(read: Sequence[Interval], _: _Context) -> Interval:
    return of.clipped(replace(read[0], special=read[0].special - {of.MINUS}), 0, math.inf)


def _least(read: Sequence[Interval], _: _Context) -> Interval:
    return Interval(min(one.low for one in read), min(one.high for one in read), of.union(read).special)


def _most(read: Sequence[Interval], _: _Context) -> Interval:
    return Interval(max(one.low for one in read), max(one.high for one in read), of.union(read).special)


def _reduced_sum(read: Sequence[Interval], context: _Context) -> Interval:
    return of.sums_of(read[0], context.count)


def _sum_of_squares(read: Sequence[Interval], context: _Context) -> Interval:
    return of.sums_of(of.squared(read[0]), context.count)


def _running_sum(read: Sequence[Interval], context: _Context) -> Interval:
    kind = context.kinds[0]
    return of.sums_of(read[0], max(kind.shape, default=1) if kind else math.inf)


def _rounded(read: Sequence[Interval], _: _Context) -> Interval:
    one = read[0]
    low, high = (end if math.isinf(end) else math.floor(end) for end in (one.low, one.high))
    return Interval(low, high if math.isinf(high) else high + 1, one.special)


def _cast(read: Sequence[Interval], context: _Context) -> Interval:
    return TRUTH if context.made is not None and NAMES.get(context.made.element) == "bool" else read[0]


def _position(read: Sequence[Interval], context: _Context) -> Interval:
    kind = context.kinds[0]
    return Interval(0, max(kind.shape, default=1) if kind else math.inf)


def _quantised(read: Sequence[Interval], context: _Context) -> Interval:
    """Saturated."""
    return Interval(*(_limits(context.made) or (-math.inf, math.inf)))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _mask(read: Sequence[Interval], _: _Context) -> Interval:
    return of.union(read[1:])


def _padded(read: Sequence[Interval], context: _Context) -> Interval:
    value = context.node.inputs[2] if len(context.node.inputs) > 2 else -1
    return of.union([read[0], read[2] if value >= 0 else Interval(0, 0)])


def _scattered(read: Sequence[Interval], context: _Context) -> Interval:
    reduction = next((one.s for one in context.node.proto.attribute if one.name == "reduction"), b"none")
    return of.union([read[0], read[2]]) if reduction in (b"none", b"min", b"max") else _unknown(context.made, read)


def _spectral(read: Sequence[Interval], context: _Context) -> Interval:
    """What is not negative, and nothing else is known of."""
    return Interval(0, math.inf, of.mixed(read).special)


def _logged_sum(read: Sequence[Interval], context: _Context) -> Interval:
    return of.mixed(read)


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        (
            "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather", "GatherElements",
            "GatherND", "Expand", "Tile", "Split", "DepthToSpace", "SpaceToDepth", "Dropout", "ReverseSequence",
            "Compress", "Unique", "TopK", "ReduceMax", "ReduceMin", "ReduceMean", "MaxPool", "GlobalMaxPool",
            "GlobalAveragePool",
        ),
        _same,
    ),
    **dict.fromkeys(("AveragePool", "Trilu", "CenterCropPad", "MaxUnpool", "Col2Im"), _with_zero),
    **dict.fromkeys(("Concat", "Mean"), _all),
    **dict.fromkeys(
        (
            "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf",
        ),
        _truth,
    ),
    **dict.fromkeys(("Sigmoid", "HardSigmoid"), _one(of.monotone(_sigmoid, 0.0, 1.0))),
    **dict.fromkeys(("Tanh", "Erf", "Softsign", "Sign"), _fixed(-1, 1)),
    **dict.fromkeys(("Sin", "Cos"), lambda read, _: Interval(-1, 1, frozenset({of.NAN}) if read[0].special else of.NOTHING)),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("Floor", "Ceil", "Round"), _rounded),
    **dict.fromkeys(("ArgMax", "ArgMin", "NonZero"), _position),
    **dict.fromkeys(("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"), _quantised),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "Softplus"), _spectral),
    "NonMaxSuppression": lambda read, context: Interval(-1, context.kinds[0].size if context.kinds[0] else math.inf),
    "Shape": lambda read, _: Interval(0, _INT32[1]),
    "Size": lambda read, _: Interval(0, _INT32[1]),
    "Range": lambda read, _: of.union(read[:2]),
    "Pad": _padded,
    "Where": _mask,
    "OneHot": lambda read, _: read[2],
    "ScatterND": _scattered,
    "ScatterElements": _scattered,
    "Scatter": _scattered,
    "Cast": _cast,
    "CastLike": _cast,
    "Add": _sum,
    "Sum": _sum,
    "Sub": _two(lambda one, other: of.added(one, of.negated(other))),
    "Mul": lambda read, context: (
        of.squared(read[0]) if len(set(context.node.inputs)) == 1 else of.multiplied(read[0], read[1])
    ),
    "Div": _divide,
    "Mod": _two(of.remainder),
    "Pow": _power,
    "Neg": _one(of.negated),
    "Abs": _one(of.absolute),
    "Min": _least,
    "Max": _most,
    "Clip": _clip,
    "Relu": _relu,
    "Exp": _one(of.exponential),
    "Log": _one(of.logarithm),
    "Sqrt": _one(of.root),
    "Reciprocal": _one(lambda one: of.divided(Interval(1, 1), one)),
    "ReduceSum": _reduced_sum,
    "ReduceSumSquare": _sum_of_squares,
    "ReduceLogSum": lambda read, _: of.logarithm(read[0]),
    "ReduceLogSumExp": _logged_sum,
    "CumSum": _running_sum,
    **dict.fromkeys(
        ("Acos", "Asin", "Acosh", "Atanh", "Tan", "Cosh", "Sinh", "RMSNormalization"),
        lambda read, _: Interval(special=of.SPECIAL),
    ),
}  # fmt: skip
"""How an operator's first output follows from what it reads; of any other operator its type is all that is
known, and that what is special makes special."""
