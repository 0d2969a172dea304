"""What each operator type's inputs are drawn as, in one table: a new type is a line here.

A *role* says which kinds of values an input gets (:mod:`tuning.measure.judging.drawing.kinds`) and what one
row of it is: each row is of one kind, and rows of a set are of all kinds. Whole numbers, truth values and
places are drawn by their element type and by what is legal there (``domains``), whatever their role.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from opatlas.identity import Node, Operator

Apart = Callable[[Operator, Node, int], tuple[int, ...]]
"""Axes of a node's input, by its position, along which its rows lie; the others are a row's own."""

_SIGNED = (
    "normal", "behind a Relu", "negative", "behind a Sigmoid", "behind a Tanh", "behind a Gelu", "sparse",
    "one of a row", "magnitudes", "outliers", "large channels", "heavy-tailed", "sizes of rows",
    "sizes of places", "far from zero", "equal", "few values", "sorted", "periodic", "smooth",
)  # fmt: skip
DATA = (*_SIGNED, "behind a Softmax", "pixels", "tiny")
CHOSEN = (*DATA, "infinite")
HIDDEN = (*_SIGNED, "behind a Softmax", "pixels", "masked")
BLOCKS = tuple(
    name for name in DATA if name not in ("one of a row", "large channels", "sizes of rows", "tiny")
)
FACTORS = ("near one", "turning signs", "with a zero", "powers of two", "sizes that cancel")
SCORES = (
    "normal", "behind a Tanh", "behind a Gelu", "sparse", "one of a row", "outliers", "large channels",
    "heavy-tailed", "sizes of rows", "sizes of places", "few values", "periodic",
)  # fmt: skip
"""Sums of products of one sign lose more than a softmax over them has room for."""
SIGNAL = ("normal", "heavy-tailed", "behind a Tanh", "few values")
"""A Fourier transform by one of another length loses of each result what the largest is rounded by."""
WEIGHTS = (
    "normal", "heavy-tailed", "outliers", "large channels", "sparse", "one of a row", "negative",
    "behind a Sigmoid", "few values", "equal", "periodic", "smooth", "far from zero", "sizes of rows",
    "sizes of places",
)  # fmt: skip
"""Timed as well: nothing in them makes a product denormal or infinite."""
CONSTANT = frozenset(WEIGHTS)
WEIGHTS_REACH = 6


def _rank(operator: Operator, node: Node, position: int) -> int:
    return len(operator.value(node.inputs[position]).shape)


def _each(operator: Operator, node: Node, position: int) -> tuple[int, ...]:
    return tuple(range(_rank(operator, node, position)))


def _lines(operator: Operator, node: Node, position: int) -> tuple[int, ...]:
    return tuple(range(_rank(operator, node, position) - 1))


def _maps(operator: Operator, node: Node, position: int) -> tuple[int, ...]:
    return tuple(range(min(2, _rank(operator, node, position))))


def _first(operator: Operator, node: Node, position: int) -> tuple[int, ...]:
    return (0,) if _rank(operator, node, position) else ()


def _second(operator: Operator, node: Node, position: int) -> tuple[int, ...]:
    return (1,) if _rank(operator, node, position) > 1 else ()


def _without(axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    folded = {axis % rank for axis in axes} if rank else set()
    return tuple(axis for axis in range(rank) if axis not in folded)


def _but_axis(operator: Operator, node: Node, position: int) -> tuple[int, ...]:
    axis = node.attributes.get("axis", -1)
    return _without((axis if isinstance(axis, int) else -1,), _rank(operator, node, position))


def _before_axis(operator: Operator, node: Node, position: int) -> tuple[int, ...]:
    rank = _rank(operator, node, position)
    return tuple(range(node.attributes.get("axis", -1) % rank)) if rank else ()


def but_folded(operator: Operator, node: Node, position: int) -> tuple[int, ...]:
    """What a reduction leaves; its axes are its second input, or attributes."""
    rank = _rank(operator, node, position)
    given = operator.value(node.inputs[1]).data if len(node.inputs) > 1 and node.inputs[1] >= 0 else None
    axes = given if given is not None else node.attributes.get("axes", node.attributes.get("axis"))
    if axes is None:
        return ()
    return _without(tuple(map(int, axes if isinstance(axes, tuple | list) else (axes,))), rank)


def _but_channels(operator: Operator, node: Node, position: int) -> tuple[int, ...]:
    return _without((1,), _rank(operator, node, position))


def _columns(operator: Operator, node: Node, position: int) -> tuple[int, ...]:
    rank = _rank(operator, node, position)
    return _without((rank - 2,), rank) if rank > 1 else ()


def _gemm(operator: Operator, node: Node, position: int) -> tuple[int, ...]:
    turned = bool(node.attributes.get("transB" if position else "transA"))
    return (1,) if turned != bool(position) else (0,)


@dataclass(frozen=True)
class InputRole:
    """``by_element``: each element has a stratum of its own (:mod:`tuning.measure.judging.strata`), and
    ``kinds`` are those of blocks. ``reach``: by how many powers of two sizes differ; ``calm``: see
    :class:`~tuning.measure.judging.drawing.kinds.Rows`. ``added``:
    products of several rows add up. ``row``: what one is, for people."""

    kinds: tuple[str, ...]
    apart: Apart
    row: str
    reach: int = 20
    calm: bool = False
    by_element: bool = False
    added: bool = False


_MODEST, _CODED, _ALL = 3, 30, 100
"""Exponentials of rows that differ by 2^20 are infinite or nothing; codes end far before, and what chooses a
number keeps it as it is."""

ROLES: dict[str, InputRole] = {
    "element": InputRole(BLOCKS, _each, "each element of a stratum of its own, and blocks", by_element=True),
    "moved": InputRole(BLOCKS, _each, "each element of a stratum of its own, and blocks", by_element=True),
    "left": InputRole(DATA, _lines, "a row of the product", added=True),
    "right": InputRole(DATA, _columns, "a column of the product", added=True),
    "factor": InputRole(DATA, _gemm, "a row or column of the product", added=True),
    "terms": InputRole(DATA, _lines, "the last axis"),
    "added": InputRole(DATA, _each, "an element"),
    "image": InputRole(DATA, _maps, "a map", added=True),
    "powered": InputRole(tuple(name for name in DATA if name != "tiny"), _maps, "a map", _MODEST),
    "pooled": InputRole(CHOSEN, _maps, "a map", _ALL),
    "filters": InputRole((*WEIGHTS, "magnitudes"), _first, "what makes one map", WEIGHTS_REACH),
    "spread filters": InputRole((*WEIGHTS, "magnitudes"), _second, "what makes one map", WEIGHTS_REACH),
    "weights": InputRole(WEIGHTS, _each, "an element", WEIGHTS_REACH),
    "folded": InputRole(DATA, but_folded, "what is folded"),
    "picked": InputRole(CHOSEN, but_folded, "what is folded", _ALL),
    "multiplied": InputRole(FACTORS, but_folded, "what is folded", _MODEST),
    "powers": InputRole(HIDDEN, but_folded, "what is folded", _MODEST),
    "squared": InputRole(tuple(name for name in DATA if name != "tiny"), but_folded, "what is folded"),
    "logits": InputRole(HIDDEN, _but_axis, "what is weighed together", _MODEST),
    "compared": InputRole(CHOSEN, _but_axis, "what is compared", _ALL),
    "normed": InputRole(_SIGNED, _before_axis, "what has one mean", calm=True),
    "normed maps": InputRole(_SIGNED, _maps, "a map", calm=True),
    "batches": InputRole(
        tuple(name for name in _SIGNED if name not in ("negative", "equal", "far from zero")), _maps, "a map",
        _MODEST, calm=True,
    ),
    "normed groups": InputRole(_SIGNED, _first, "an image", calm=True),
    "normed axes": InputRole(
        tuple(name for name in _SIGNED if name not in ("equal", "one of a row", "sparse")),
        but_folded, "what has one mean", _MODEST, calm=True,
    ),
    "scaled lines": InputRole(
        tuple(name for name in _SIGNED if name not in ("equal", "sparse")), _but_axis, "what has one norm"
    ),
    "scaled maps": InputRole(DATA, _maps, "a map", calm=True),
    "windows": InputRole(_SIGNED, _but_channels, "what has one window", _MODEST),
    "scores": InputRole(SCORES, _lines, "one place of a sequence", _MODEST),
    "values": InputRole(DATA, _lines, "one place of a sequence", _MODEST),
    "mask": InputRole(("masked",), _lines, "one place of a sequence", _MODEST),
    "angles": InputRole(SCORES, _lines, "one place of a sequence", _MODEST),
    "matrix": InputRole(("normal", "outliers", "heavy-tailed", "few values", "behind a Tanh", "magnitudes"),
                   lambda operator, node, at: tuple(range(max(0, _rank(operator, node, at) - 2))), "a matrix",
                   _MODEST, calm=True),
    "signal": InputRole(SIGNAL, _first, "a signal", _MODEST, calm=True),
    "losses": InputRole(HIDDEN[:-1], _but_channels, "a sample", _MODEST),
    "codes": InputRole(DATA, _lines, "the last axis", _CODED),
    "measured": InputRole(DATA, lambda operator, node, at: (), "the whole tensor", _MODEST),
    "steps": InputRole((), _each, "an element"),
    "zero points": InputRole((), _each, "an element: the ends of its type, and between"),
    "whole": InputRole((), _each, "runs: random, ends of what is legal, equal, in order"),
    "nothing": InputRole((), _each, "no tensor is passed"),
    "other": InputRole(_SIGNED, _lines, "the last axis", _MODEST, calm=True),
}  # fmt: skip

_TABLE = """
Abs element
Acos element
Acosh element
Add element
And whole
ArgMax compared
ArgMin compared
Asin element
Asinh element
Atan element
Atanh element
Attention scores, scores, values, mask, scores, values
AveragePool image
BatchNormalization scaled maps, weights
BitShift whole
BitwiseAnd whole
BitwiseNot whole
BitwiseOr whole
BitwiseXor whole
Cast element
Ceil element
Celu element
CenterCropPad moved
Clip element
Col2Im image
Concat moved
ConstantOfShape nothing
Conv image, filters, weights
ConvInteger whole, whole, zero points
ConvTranspose image, spread filters, weights
Cos element
Cosh element
CumSum folded
DepthToSpace moved
DequantizeLinear whole, steps, zero points
Det matrix
DFT signal
Div element
DynamicQuantizeLinear measured
Einsum terms
Elu element
Equal element
Erf element
Exp element
Expand moved
EyeLike nothing
Flatten moved
Floor element
Gather moved, whole
GatherElements moved, whole
GatherND moved, whole
Gelu element
Gemm factor, factor, added
GlobalAveragePool image
GlobalLpPool powered
GlobalMaxPool pooled
Greater element
GreaterOrEqual element
GridSample image, other
GroupNormalization normed groups, weights
Hardmax compared
HardSigmoid element
HardSwish element
Identity moved
InstanceNormalization normed maps, weights
IsInf element
IsNaN element
LayerNormalization normed, weights
LeakyRelu element
Less element
LessOrEqual element
Log element
LogSoftmax logits
LpNormalization scaled lines
LpPool powered
LRN windows
MatMul left, right
MatMulInteger whole, whole, zero points
Max element
MaxPool pooled
Mean element
MeanVarianceNormalization normed axes
Min element
Mish element
Mod element
Mul element
Neg element
NegativeLogLikelihoodLoss losses, whole, weights
Not whole
OneHot whole, nothing, weights
Or whole
Pad moved
Pow element
PRelu element
QuantizeLinear codes, steps, zero points
Range nothing
Reciprocal element
ReduceL1 folded
ReduceL2 squared
ReduceLogSum folded
ReduceLogSumExp powers
ReduceMax picked
ReduceMean folded
ReduceMin picked
ReduceProd multiplied
ReduceSum folded
ReduceSumSquare squared
Relu element
Reshape moved
Resize image
ReverseSequence moved, whole
RMSNormalization normed, weights
RotaryEmbedding angles, angles, angles, whole
Round element
ScatterElements moved, whole, moved
ScatterND moved, whole, moved
Selu element
Shape nothing
Shrink element
Sigmoid element
Sign element
Sin element
Sinh element
Size nothing
Slice moved
Softmax logits
SoftmaxCrossEntropyLoss losses, whole, weights
Softplus element
Softsign element
SpaceToDepth moved
Split moved
Sqrt element
Squeeze moved
STFT signal
Sub element
Sum element
Tan element
Tanh element
ThresholdedRelu element
Tile moved
TopK compared
Transpose moved
Trilu moved
Unsqueeze moved
Where whole, element
Xor whole
"""


def _read(line: str) -> tuple[str, tuple[str, ...]]:
    op, _, roles = line.partition(" ")
    return op, tuple(roles.split(", "))


BY_TYPE: dict[str, tuple[str, ...]] = dict(map(_read, _TABLE.strip().splitlines()))
"""Type → its inputs' roles by position; the last one is that of all further inputs."""
TRAINED = ("batches", "weights")
"""Of a batch normalisation in training: sums over a whole batch, added one by one, lose much."""
OTHERS = ("other",)
"""Of types that the table does not have."""


BLOCK = 64
"""Elements of one kind beside each other, where they have no rows of their own. Of few elements there are so
many blocks, of as many as that gives each."""


@dataclass(frozen=True)
class Layout:
    """An input as the first ``node`` takes it: its role there, and a tensor of its elements whose rows lie
    along ``apart``. ``in_blocks``: it has no rows of its own, and some elements of the last block may be too
    many."""

    role: InputRole
    node: Node
    shape: tuple[int, ...]
    apart: tuple[int, ...]
    in_blocks: bool

    @property
    def rows(self) -> int:
        return prod(self.shape[axis] for axis in self.apart)


def layout_of(operator: Operator, number: int) -> Layout:
    """Of an input that no node takes: blocks."""
    shape = operator.inputs[number].shape
    for node in operator.nodes:
        if number in node.inputs:
            position = node.inputs.index(number)
            roles = TRAINED if node.attributes.get("training_mode") else BY_TYPE.get(node.op, OTHERS)
            role = ROLES[roles[min(position, len(roles) - 1)]]
            apart = role.apart(operator, node, position)
            if not role.by_element and len(apart) < len(shape):
                return Layout(role, node, shape, apart, False)
            return Layout(role, node, blocks(prod(shape)), (0,), True)
    return Layout(ROLES["other"], operator.nodes[0], blocks(prod(shape)), (0,), True)


def blocks(count: int) -> tuple[int, int]:
    """How many blocks hold so many elements, and of which length."""
    length = max(1, min(BLOCK, count // BLOCK))
    return -(-count // length), length


def rows_to_deal(operator: Operator) -> tuple[int, int]:
    """Of the floating input with the fewest rows for its kinds: how many rows it has, and kinds."""
    layouts = [layout_of(operator, n) for n in operator.runtime_inputs if "float" in operator.inputs[n].dtype]
    found = [
        (max(1, one.rows), len(one.role.kinds))
        for one in layouts
        if one.role.kinds and not one.role.by_element
    ]
    return min(found, key=lambda one: one[0] / one[1], default=(1, 1))
