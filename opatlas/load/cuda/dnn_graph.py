"""An operator as a cuDNN graph: tensors with strides, and a few kinds of steps over them. PURE.

One step computes (a convolution, a product, a norm, attention); pointwise steps may follow. Tensors between
steps are virtual: float32, never written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from opatlas.errors import LoadError
from opatlas.identity.operator import Node, Operator, Value
from opatlas.identity.strides import dense_strides

DTYPES = ("float32", "float16", "bfloat16")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class DnnTensor:
    """``input``, ``output``: the operator's; ``constant``: one number; otherwise virtual."""

    dtype: str
    shape: Shape
    strides: Shape
    input: int | None = None
    output: int | None = None
    constant: float | None = None

    @property
    def virtual(self) -> bool:
        return self.input is None and self.output is None and self.constant is None


@dataclass(frozen=True)
class DnnStep:
    """``tensors``: numbers of the graph's tensors, by their part; ``numbers``: attributes of this kind of
    step."""

    kind: str
    tensors: Mapping[str, int]
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DnnGraph:
    """``channels_last``: where the operator does not say, results are laid out like the inputs. ``rounds``:
    for float32 only plans exist that round operands to TF32; ``plain``: nothing follows the head but, after a
    convolution with a bias, one activation."""

    tensors: tuple[DnnTensor, ...]
    steps: tuple[DnnStep, ...]
    channels_last: bool = False
    rounds: bool = False
    plain: bool = True

    @property
    def dtype(self) -> str:
        """The inputs' type."""
        return next(one.dtype for one in self.tensors if one.input is not None)


def graph_of(operator: Operator) -> DnnGraph:
    """Raises :class:`LoadError` with the reason if the operator is none that cuDNN is asked for."""
    heads = [node for node in operator.nodes if node.op in _HEADS]
    foreign = [node.op for node in operator.nodes if node.domain or node.op not in (*_HEADS, *POINTWISE)]
    if foreign or len(heads) != 1:
        raise LoadError(
            f"{foreign[0]} is no step of its graphs"
            if foreign
            else f"one of {', '.join(sorted(_HEADS))} is in a graph of it, not {len(heads) or 'none'}"
        )
    read = {operator.value(number).dtype for number in operator.tensor_inputs}
    made = {value.dtype for value in operator.output_values}
    if len(read | made) != 1 or not read <= set(DTYPES):
        raise LoadError(f"its graphs are of one of {', '.join(DTYPES)}")
    if any(0 in operator.value(number).shape for number in operator.tensor_inputs):
        raise LoadError("there is nothing to compute")
    building = _Building(operator)
    if operator.nodes[0] is not heads[0]:
        raise LoadError(f"what comes before {heads[0].op} is left to other routes")
    _HEADS[heads[0].op](building, heads[0])
    plain = _ends_plainly(operator, building)
    if not (plain or _may_have_more(building)):
        raise LoadError(f"what follows {heads[0].op} here is left to other routes")
    for node in building.left:
        building.pointwise(node)
    rounds = building.steps[0].kind == "product" or not plain
    return DnnGraph(tuple(building.tensors), tuple(building.steps), building.channels_last, rounds, plain)


def results_of(operator: Operator, graph: DnnGraph) -> tuple[Value, ...]:
    """The operator's outputs with the strides that the graph writes."""
    if not graph.channels_last:
        return operator.output_values
    return tuple(
        value if value.strides else replace(value, strides=_channels_last(value.shape))
        for value in operator.output_values
    )


# What cuDNN 9.28 has plans for, on sm_80, sm_90 and sm_100 alike.


def _ends_plainly(operator: Operator, building: _Building) -> bool:
    """Whether nothing follows its head but, after a convolution with a bias, one activation."""
    left = building.left
    biased = building.steps[0].kind == "convolution" and len(building.steps) > 1
    return not left or (biased and len(left) == 1 and _ends_convolution(operator, left[0]))


def _may_have_more(building: _Building) -> bool:
    """Whether any pointwise steps may follow: yes for products, and for convolutions that write channels
    last, unless each channel is convolved by itself."""
    head = building.steps[0]
    if head.kind != "convolution":
        return head.kind == "product"
    x, w = (building.tensors[head.tensors[name]].shape for name in ("x", "w"))
    return building.channels_last and (w[1] > 1 or x[1] == 1)


def _ends_convolution(operator: Operator, node: Node) -> bool:
    if node.op == "Clip":
        return POINTWISE["Clip"](operator, node)[1].get("lower_clip") == 0
    return node.op in ("Elu", "Relu", "Sigmoid", "Tanh")


class _Building:
    """The tensors and steps so far. ``view``: how the head sees the tensors, and all others like it;
    ``left``: nodes that it has not taken; ``channels_last``: the layout of what is made."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.tensors: list[DnnTensor] = []
        self.steps: list[DnnStep] = []
        self.view: Callable[[Value], tuple[Shape, Shape]] = _as_it_is
        self.left = list(operator.nodes[1:])
        self.channels_last = False
        self._known: dict[tuple[int, Shape, Shape], int] = {}

    def of(self, number: int, view: Callable[[Value], tuple[Shape, Shape]] | None = None) -> int:
        """The tensor of an operator's value, one for each way to see it."""
        value = self.operator.value(number)
        shape, strides = (view or self.view)(value)
        if self.channels_last and number >= len(self.operator.inputs) and not value.strides:
            strides = _channels_last(shape)
        if (number, shape, strides) not in self._known:
            operator = self.operator
            given = number if number < len(operator.inputs) else None
            made = operator.outputs.index(number) if number in operator.outputs else None
            dtype = value.dtype if given is not None or made is not None else "float32"
            tensor = DnnTensor(dtype, shape, strides, input=given, output=made)
            self._known[number, shape, strides] = self.add(tensor)
        return self._known[number, shape, strides]

    def add(self, tensor: DnnTensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def between(self, like: int) -> int:
        """A virtual tensor that is no value of the operator, with another's shape and layout."""
        return self.add(DnnTensor("float32", self.tensors[like].shape, self.tensors[like].strides))

    def scalar(self, value: float, rank: int) -> int:
        return self.add(DnnTensor("float32", (1,) * rank, (1,) * rank, constant=float(value)))

    def step(self, kind: str, numbers: Mapping[str, Any], /, **tensors: int) -> None:
        self.steps.append(DnnStep(kind, tensors, dict(numbers)))

    def pointwise(self, node: Node) -> None:
        mode, numbers = POINTWISE[node.op](self.operator, node)
        tensors = [n for n in node.inputs if n >= 0 and self.operator.value(n).data is None]
        if len(tensors) > 2:
            raise LoadError(f"{node.op} of {len(tensors)} tensors is left to other routes")
        operands = dict(zip("xb", map(self.of, tensors), strict=False))
        self.step("pointwise", {"mode": mode, **numbers}, y=self.of(node.outputs[0]), **operands)

    def value(self, number: int) -> Value:
        return self.operator.value(number)


def _as_it_is(value: Value) -> tuple[Shape, Shape]:
    return value.shape, value.strides or dense_strides(value.shape)


def _channels_last(shape: Shape) -> Shape:
    """Strides of a dense tensor whose second dimension is innermost."""
    first, *inner, channels = dense_strides((shape[0], *shape[2:], shape[1]))
    return (first, channels, *inner)


def _lies_channels_last(value: Value) -> bool:
    """As PyTorch defines it: two or three dimensions beside batch and channels, and not row-major as well."""
    if value.strides is None or len(value.shape) not in (4, 5):
        return False
    wanted = _channels_last(value.shape)
    return all(
        size == 1 or found == want
        for size, found, want in zip(value.shape, value.strides, wanted, strict=True)
    )


def _seen_as(rank: int, at: int) -> Callable[[Value], tuple[Shape, Shape]]:
    """The tensor with dimensions of 1 inserted at ``at`` up to ``rank``; broadcast ones get them in front."""

    def view(value: Value) -> tuple[Shape, Shape]:
        shape, strides = _as_it_is(value)
        whole = rank - 1 if at else rank
        lack = whole - len(shape)
        if lack < 0:
            raise LoadError(f"tensors of {len(shape)} dimensions are left to other routes")
        shape = (1,) * lack + shape
        strides = (math.prod(value.shape),) * lack + strides
        if at:
            shape, strides = (*shape[:at], 1, *shape[at:]), (*strides[:at], strides[at - 1], *strides[at:])
        return shape, strides

    return view


# The heads.


def _convolution(building: _Building, node: Node) -> None:
    x = building.value(node.inputs[0])
    spatial = len(x.shape) - 2
    if spatial not in (1, 2, 3):
        raise LoadError(f"convolutions over {spatial} dimensions are left to other routes")
    building.view = _seen_as(max(4, len(x.shape)), 2 if spatial == 1 else 0)
    building.channels_last = _lies_channels_last(x)
    transposed = node.op == "ConvTranspose"
    attributes = node.attributes
    pads = attributes["pads"]
    numbers = {
        "strides": attributes["strides"],
        "dilations": attributes["dilations"],
        "before": pads[:spatial],
        "after": pads[spatial:],
    }
    if spatial == 1:  # seen as two
        numbers = {name: ((0 if name in ("before", "after") else 1), *of) for name, of in numbers.items()}
    bias = node.inputs[2] if len(node.inputs) > 2 else -1
    if transposed and bias >= 0:
        raise LoadError("transposed convolutions with a bias are left to other routes")
    first, weights, made = building.of(node.inputs[0]), building.of(node.inputs[1]), node.outputs[0]
    added = -1 if bias < 0 else _added(building, made)
    into = building.of(building.left.pop(0).outputs[0] if added >= 0 else made)
    between = [building.between(into) for one in (bias, added) if one >= 0]
    computed = (*between, into)  # one step after another
    kind = "transposed" if transposed else "convolution"
    building.step(kind, numbers, x=first, w=weights, y=computed[0])
    if added >= 0:  # before the bias: the library has no plan for it after
        summand = building.of(added)
        building.step("pointwise", {"mode": "add"}, x=computed[0], b=summand, y=computed[1])
    if bias >= 0:
        rank = len(building.tensors[first].shape)
        channels = building.of(bias, lambda value: _along(1, rank, value))
        building.step("pointwise", {"mode": "add"}, x=computed[-2], b=channels, y=computed[-1])


def _added(building: _Building, made: int) -> int:
    """The tensor of the same size that is added to a convolution's result at once; -1 if there is none."""
    following = building.left[:1]
    if not following or following[0].op != "Add" or made in building.operator.outputs:
        return -1
    if any(made in node.inputs for node in building.left[1:]):
        return -1
    (other,) = [n for n in following[0].inputs if n != made] or (-1,)
    given = 0 <= other < len(building.operator.inputs)
    return other if given and building.value(other).shape == building.value(made).shape else -1


def _along(axis: int, rank: int, value: Value) -> tuple[Shape, Shape]:
    """One dimension among others of 1."""
    (size,) = value.shape
    shape = tuple(size if number == axis else 1 for number in range(rank))
    return shape, dense_strides(shape)


def _product(building: _Building, node: Node) -> None:
    a, b = (building.value(number) for number in node.inputs[:2])
    made = building.value(node.outputs[0])
    if min(len(a.shape), len(b.shape)) < 2 or a.strides or b.strides:
        raise LoadError("products of strided or one-dimensional tensors are left to other routes")
    batch = made.shape[:-2]
    building.view = lambda value: _in_batches(value, batch)
    attributes = node.attributes
    turned = (bool(attributes.get("transA")), bool(attributes.get("transB")))
    if attributes.get("alpha", 1.0) != 1 or attributes.get("beta", 1.0) != 1:
        raise LoadError("products with a factor are left to other routes")
    operands = [
        building.of(number, lambda value, turn=turn: _turned(_in_batches(value, batch), turn))  # type: ignore[misc]
        for number, turn in zip(node.inputs[:2], turned, strict=True)
    ]
    into = building.of(node.outputs[0])
    added = node.inputs[2] if len(node.inputs) > 2 else -1
    if added >= 0:
        y, into = into, building.between(into)
    building.step("product", {}, a=operands[0], b=operands[1], y=into)
    if added >= 0:
        building.step("pointwise", {"mode": "add"}, x=into, b=building.of(added), y=y)


def _in_batches(value: Value, batch: Shape) -> tuple[Shape, Shape]:
    """Three dimensions: all before the last two are merged."""
    shape = (1,) * (2 + len(batch) - len(value.shape)) + value.shape
    front, (rows, columns) = shape[:-2], shape[-2:]
    if value.strides or math.prod(front) not in (1, math.prod(batch)):
        raise LoadError("products whose batch is spread in part are left to other routes")
    seen = (math.prod(front), rows, columns)
    return seen, dense_strides(seen)


def _turned(seen: tuple[Shape, Shape], turn: bool) -> tuple[Shape, Shape]:
    (batch, rows, columns), (step, row, column) = seen
    return ((batch, columns, rows), (step, column, row)) if turn else seen


def _norm(building: _Building, node: Node) -> None:
    x = building.value(node.inputs[0])
    if x.strides or any(building.value(number).strides for number in node.inputs if number >= 0):
        raise LoadError("norms of strided tensors are left to other routes")
    if len(node.outputs) > 1:
        raise LoadError("norms that also hand out what they found are left to other routes")
    attributes = node.attributes
    if attributes.get("stash_type", 1) != 1:
        raise LoadError("norms in another type than float32 are left to other routes")
    axis = attributes["axis"]
    inner = x.shape[axis:]
    rows, size = math.prod(x.shape[:axis]), math.prod(inner)

    def view(value: Value) -> tuple[Shape, Shape]:
        shape = (1,) * (len(x.shape) - len(value.shape)) + value.shape
        if value.shape and value.shape == inner:
            seen: Shape = (1, size, 1, 1)
        elif shape == x.shape:
            seen = (rows, size, 1, 1)
        else:
            raise LoadError("norms with operands that are spread in part are left to other routes")
        return seen, dense_strides(seen)

    building.view = view
    names = ("x", "scale", "bias")
    given = {
        name: building.of(number) for name, number in zip(names, node.inputs, strict=False) if number >= 0
    }
    if node.op == "LayerNormalization" and "bias" not in given:
        raise LoadError("layer norms without a bias are left to other routes")
    epsilon = building.scalar(attributes["epsilon"], 4)
    kind = {"LayerNormalization": "layer", "RMSNormalization": "rms"}[node.op]
    building.step("norm", {"of": kind}, **given, epsilon=epsilon, y=building.of(node.outputs[0]))


def _attention(building: _Building, node: Node) -> None:
    q, k, v = (building.value(number) for number in node.inputs[:3])
    attributes = node.attributes
    if {len(one.shape) for one in (q, k, v)} != {4} or len(node.outputs) > 1:
        raise LoadError("attention of three dimensions, or that hands out more, is left to other routes")
    if any(number >= 0 for number in node.inputs[3:]) or attributes.get("softcap"):
        raise LoadError("attention with a mask of its own, a cache or a cap is left to other routes")
    if q.dtype == "float32":
        raise LoadError("attention of float32 is left to other routes")
    numbers = {
        "scale": float(attributes.get("scale", 1 / math.sqrt(q.shape[3]))),
        "causal": bool(attributes["is_causal"]),
    }
    named = dict(zip(("q", "k", "v"), map(building.of, node.inputs[:3]), strict=True))
    building.step("attention", numbers, **named, y=building.of(node.outputs[0]))


_HEADS: Mapping[str, Callable[[_Building, Node], None]] = {
    "Attention": _attention,
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "Gemm": _product,
    "LayerNormalization": _norm,
    "MatMul": _product,
    "RMSNormalization": _norm,
}


# What may follow them.

Told = tuple[str, dict[str, float]]


def _plain(mode: str) -> Callable[[Operator, Node], Told]:
    return lambda operator, node: (mode, {})


def _leaky(operator: Operator, node: Node) -> Told:
    return "relu", {"negative_slope": float(node.attributes["alpha"])}


def _gelu(operator: Operator, node: Node) -> Told:
    return ("gelu_approx_tanh" if node.attributes.get("approximate") == "tanh" else "gelu"), {}


def _elu(operator: Operator, node: Node) -> Told:
    if node.attributes.get("alpha", 1.0) != 1:
        raise LoadError("an Elu of another slope than 1 is left to other routes")
    return "elu", {}


def _clip(operator: Operator, node: Node) -> Told:
    bounds = [operator.value(number) if number >= 0 else None for number in (*node.inputs[1:], -1, -1)[:2]]
    if any(bound is not None and bound.data is None for bound in bounds):
        raise LoadError("a Clip whose bounds are tensors is left to other routes")
    least, most = (float(bound.data[0]) if bound and bound.data else None for bound in bounds)
    if least is None:
        raise LoadError("a Clip without a lower bound is left to other routes")
    return "relu", {"lower_clip": least} | ({} if most is None else {"upper_clip": most})


POINTWISE: Mapping[str, Callable[[Operator, Node], Told]] = {
    "Abs": _plain("abs"),
    "Add": _plain("add"),
    "Clip": _clip,
    "Div": _plain("div"),
    "Elu": _elu,
    "Erf": _plain("erf"),
    "Exp": _plain("exp"),
    "Gelu": _gelu,
    "LeakyRelu": _leaky,
    "Max": _plain("max"),
    "Min": _plain("min"),
    "Mul": _plain("mul"),
    "Neg": _plain("neg"),
    "Relu": _plain("relu"),
    "Sigmoid": _plain("sigmoid"),
    "Softplus": _plain("softplus"),
    "Sqrt": _plain("sqrt"),
    "Sub": _plain("sub"),
    "Tanh": _plain("tanh"),
}
"""ONNX operator → cuDNN's mode and its numbers."""
