"""A rule for each operator: the range of its output from those of its inputs. PURE."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from onnx import helper

from opatlas.graph.normal import GraphNode
from opatlas.graph.types import TensorType
from opatlas.plan.semantics import intervals as of
from opatlas.plan.semantics.intervals import LIMITS, TRUTH, Interval


@dataclass(frozen=True)
class NodeContext:
    """The facts for a rule: the node, the types of its inputs and outputs if known, and the first output's
    element type."""

    node: GraphNode
    kinds: Sequence[TensorType | None]
    made: TensorType | None
    element: str

    def attribute(self, name: str, default: float) -> float:
        found = next((one for one in self.node.proto.attribute if one.name == name), None)
        return default if found is None else float(helper.get_attribute_value(found))

    @property
    def count(self) -> float:
        """Elements read for each element made; infinite if unknown."""
        kind = self.kinds[0] if self.kinds else None
        return math.inf if kind is None or self.made is None else kind.size / max(1, self.made.size)


Rule = Callable[[Sequence[Interval], NodeContext], Interval]


def unknown(element: str, read: Sequence[Interval]) -> Interval:
    if element in LIMITS:
        return Interval(*LIMITS[element])
    return TRUTH if element == "bool" else of.mixed(read)


def _same(read: Sequence[Interval], _: NodeContext) -> Interval:
    return read[0]


def _all(read: Sequence[Interval], _: NodeContext) -> Interval:
    return of.union(read)


def _with_zero(read: Sequence[Interval], _: NodeContext) -> Interval:
    return of.union([read[0], Interval(0, 0)])


def _one(function: Callable[[Interval], Interval]) -> Rule:
    return lambda read, _: function(read[0])


def _two(function: Callable[[Interval, Interval], Interval]) -> Rule:
    return lambda read, _: function(read[0], read[1])


def _truth(read: Sequence[Interval], _: NodeContext) -> Interval:
    return TRUTH


def _fixed(low: float, high: float) -> Rule:
    """A bounded result, NaN for NaN."""
    return lambda read, _: Interval(low, high, read[0].special & {of.NAN})


def _sum(read: Sequence[Interval], _: NodeContext) -> Interval:
    made = read[0]
    for one in read[1:]:
        made = of.added(made, one)
    return made


def _divide(read: Sequence[Interval], context: NodeContext) -> Interval:
    return of.divided_whole(read[0], read[1]) if LIMITS.get(context.element) else of.divided(read[0], read[1])


def _power(read: Sequence[Interval], context: NodeContext) -> Interval:
    ends, exponent = (read[0].low, read[0].high), read[1].high
    if context.element in LIMITS and exponent < 64 and all(map(math.isfinite, ends)):
        most = max(*map(abs, ends), 1) ** max(exponent, 0)
        return Interval(-most if read[0].low < 0 else 0, most)
    return of.power(read[0], read[1])


def _softmax(read: Sequence[Interval], context: NodeContext) -> Interval:
    special = {of.NAN} if read[0].special else of.NOTHING
    is_log = context.node.proto.op_type == "LogSoftmax"
    return Interval(-math.inf if is_log else 0, 0 if is_log else 1, frozenset(special))


def _clip(read: Sequence[Interval], context: NodeContext) -> Interval:
    inputs = context.node.inputs
    given = iter(read)
    bounds = [next(given) if number >= 0 else None for number in inputs]
    low, high = (*bounds[1:], None, None)[:2]
    lowest = low.low if low is not None else context.attribute("min", -math.inf)
    highest = high.high if high is not None else context.attribute("max", math.inf)
    return of.clipped(read[0], lowest, highest)


def _relu(read: Sequence[Interval], _: NodeContext) -> Interval:
    return of.clipped(replace(read[0], special=read[0].special - {of.MINUS}), 0, math.inf)


def _least(read: Sequence[Interval], _: NodeContext) -> Interval:
    return Interval(min(one.low for one in read), min(one.high for one in read), of.union(read).special)


def _most(read: Sequence[Interval], _: NodeContext) -> Interval:
    return Interval(max(one.low for one in read), max(one.high for one in read), of.union(read).special)


def _reduced_sum(read: Sequence[Interval], context: NodeContext) -> Interval:
    return of.sums_of(read[0], context.count)


def _sum_of_squares(read: Sequence[Interval], context: NodeContext) -> Interval:
    return of.sums_of(of.squared(read[0]), context.count)


def _running_sum(read: Sequence[Interval], context: NodeContext) -> Interval:
    kind = context.kinds[0]
    return of.sums_of(read[0], max(kind.shape, default=1) if kind else math.inf)


def _rounded(read: Sequence[Interval], _: NodeContext) -> Interval:
    one = read[0]
    low, high = (end if math.isinf(end) else math.floor(end) for end in (one.low, one.high))
    return Interval(low, high if math.isinf(high) else high + 1, one.special)


def _cast(read: Sequence[Interval], context: NodeContext) -> Interval:
    return TRUTH if context.element == "bool" else read[0]


def _position(read: Sequence[Interval], context: NodeContext) -> Interval:
    kind = context.kinds[0]
    return Interval(0, max(kind.shape, default=1) if kind else math.inf)


def _quantised(read: Sequence[Interval], context: NodeContext) -> Interval:
    """Saturated at the type's limits."""
    return Interval(*(LIMITS.get(context.element) or (-math.inf, math.inf)))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _mask(read: Sequence[Interval], _: NodeContext) -> Interval:
    return of.union(read[1:])


def _padded(read: Sequence[Interval], context: NodeContext) -> Interval:
    value = context.node.inputs[2] if len(context.node.inputs) > 2 else -1
    return of.union([read[0], read[2] if value >= 0 else Interval(0, 0)])


def _scattered(read: Sequence[Interval], context: NodeContext) -> Interval:
    reduction = next((one.s for one in context.node.proto.attribute if one.name == "reduction"), b"none")
    return (
        of.union([read[0], read[2]])
        if reduction in (b"none", b"min", b"max")
        else unknown(context.element, read)
    )


def _wave(read: Sequence[Interval], _: NodeContext) -> Interval:
    """NaN for infinities as well."""
    return Interval(-1, 1, frozenset({of.NAN}) if read[0].special else of.NOTHING)


def _boxes(read: Sequence[Interval], context: NodeContext) -> Interval:
    """Numbers of batch, class and box."""
    return Interval(-1, context.kinds[0].size if context.kinds[0] else math.inf)


def _spectral(read: Sequence[Interval], context: NodeContext) -> Interval:
    """Not negative; nothing else is known."""
    return Interval(0, math.inf, of.mixed(read).special)


def _logged_sum(read: Sequence[Interval], context: NodeContext) -> Interval:
    return of.mixed(read)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        (
            "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather",
            "GatherElements", "GatherND", "Expand", "Tile", "Split", "DepthToSpace", "SpaceToDepth",
            "Dropout", "ReverseSequence", "Compress", "Unique", "TopK", "ReduceMax", "ReduceMin",
            "ReduceMean", "MaxPool", "GlobalMaxPool", "GlobalAveragePool",
        ),
        _same,
    ),
    **dict.fromkeys(("AveragePool", "Trilu", "CenterCropPad", "MaxUnpool", "Col2Im"), _with_zero),
    **dict.fromkeys(("Concat", "Mean"), _all),
    **dict.fromkeys(
        (
            "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not", "IsNaN",
            "IsInf",
        ),
        _truth,
    ),
    **dict.fromkeys(("Sigmoid", "HardSigmoid"), _one(of.monotone(_sigmoid, 0.0, 1.0))),
    **dict.fromkeys(("Tanh", "Erf", "Softsign", "Sign"), _fixed(-1, 1)),
    **dict.fromkeys(("Sin", "Cos"), _wave),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("Floor", "Ceil", "Round"), _rounded),
    **dict.fromkeys(("ArgMax", "ArgMin", "NonZero"), _position),
    **dict.fromkeys(("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"), _quantised),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "Softplus"), _spectral),
    "NonMaxSuppression": _boxes,
    "Shape": lambda read, _: Interval(0, LIMITS["int32"][1]),
    "Size": lambda read, _: Interval(0, LIMITS["int32"][1]),
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
"""The range of an operator's first output. Of any other operator only the type is known, and special values
give special values."""
