"""Recipes of library ``numpy``, call ``arrays``: small operators as NumPy calls into kept arrays.

NumPy runs on one thread, but a call costs a third of a microsecond, and more than one in PyTorch. Binding
makes every array, view and scalar, so a run consists of the calls alone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opatlas.errors import LoadError
from opatlas.identity.operator import Operator
from opatlas.load.buffers import check_arrays, empty
from opatlas.load.kernel import KeptOutputs, KernelFailed
from opatlas.load.torch.ops.site import TorchSite

_ALIGNMENT = 64

_MAKES = """Abs Add And Cast Ceil Clip Concat Cos Div Equal Exp Expand Floor Gather Greater GreaterOrEqual
    LeakyRelu Less LessOrEqual Log Max Min Mul Neg Not Or Pow Reciprocal ReduceMax ReduceMean ReduceMin
    ReduceSum Relu Round Sigmoid Sign Sin Slice Split Sqrt Sub Tan Tanh Transpose Where Xor"""
_TYPES = "float32 float64 bool int8 int16 int32 int64 uint8 uint16 uint32 uint64"
ARRAYS = frozenset(_MAKES.split())
ARRAY_VIEWS = frozenset(("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))
ARRAY_TYPES = frozenset(_TYPES.split())
ONLY_FLOATS = frozenset(("Div", "LeakyRelu", "Pow", "Reciprocal", "ReduceMean", "Sigmoid"))

Call = Callable[[], Any]
Arrays = Sequence[np.ndarray]


def missing(operator: Operator) -> str | None:
    """Why NumPy calls cannot make the operator, or None if they can."""
    for node in operator.nodes:
        if node.domain or node.op not in ARRAYS | ARRAY_VIEWS:
            return f"no NumPy call is known for {node.op}"
    for value in (*operator.inputs, *operator.produced):
        if value.dtype not in ARRAY_TYPES:
            return f"NumPy has no fast {value.dtype}"
        if 0 in value.shape:
            return "NumPy is not called for empty tensors"
    if not set(operator.op_types) & ARRAYS:
        return "nothing is computed: PyTorch answers with a view"
    for node in operator.nodes:
        if node.op in ONLY_FLOATS and not operator.value(node.outputs[0]).dtype.startswith("float"):
            return f"NumPy's {node.op} of whole numbers means another thing"
        if node.op in ("Max", "Min") and len(node.inputs) != 2:
            return f"{node.op} of other than two tensors"
        if node.op == "Clip" and len(node.inputs) < 2:
            return "Clip without bounds"
        if node.op.startswith("Reduce") and node.attributes["noop_with_empty_axes"]:
            return f"{node.op} over no axis"
        if node.op == "LeakyRelu" and not 0 <= node.attributes["alpha"] <= 1:
            return "a leaky ReLU whose slope is not between 0 and 1"
        if any(number < 0 for number in node.outputs):
            return f"{node.op} with outputs left out"
    return None


class ArrayKernel:
    """An operator's nodes as NumPy calls, one after another, on arrays that a binding keeps."""

    def __init__(self, operator: Operator, recipe: Mapping[str, Any]) -> None:
        if reason := missing(operator):
            raise LoadError(reason)
        self.operator = operator
        self._constants: dict[int, np.ndarray] | None = {} if not operator.constant_inputs else None

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        check_arrays(self.operator, self.operator.constant_inputs, constants)
        self._constants = {number: np.array(array, order="C") for number, array in constants.items()}

    def bind(self, inputs: Mapping[int, np.ndarray]) -> ArrayBound:
        if self._constants is None:
            raise LoadError("the operator has constant inputs: call prepare before bind")
        check_arrays(self.operator, self.operator.runtime_inputs, inputs)
        return ArrayBound(self.operator, {**inputs, **self._constants}, self._constants)

    def close(self) -> None:
        self._constants = None


class ArrayBound(KeptOutputs):
    """The calls on these arrays."""

    def __init__(
        self, operator: Operator, arrays: Mapping[int, np.ndarray], known: Mapping[int, np.ndarray]
    ) -> None:
        values = dict(arrays)
        calls: list[Call] = []
        for node in operator.nodes:
            site = TorchSite(operator, node, known)
            taken: list[Any] = [values.get(number) for number in node.inputs]
            if node.op in ARRAY_VIEWS and node.outputs[0] not in operator.outputs:
                values[node.outputs[0]] = _view(taken[0], site.output().shape)
                continue
            made = [empty(operator.value(number), _ALIGNMENT) for number in node.outputs]
            values.update(zip(node.outputs, made, strict=True))
            calls += _CALLS.get(node.op, _move)(site, taken, made)
        self._outputs = [values[number] for number in operator.outputs]
        self._calls = tuple(calls)
        # Infinities and NaN are results here, as in every tensor library, and no reason to warn.
        noisy = any(node.op in _NOISY for node in operator.nodes)
        self._run = self._quietly if noisy else calls[0] if len(calls) == 1 else self._all

    def _all(self) -> None:
        for call in self._calls:
            call()

    def _quietly(self) -> None:
        with np.errstate(all="ignore"):
            for call in self._calls:
                call()

    def __call__(self) -> None:
        try:
            self._run()
        except (ValueError, IndexError, MemoryError) as error:
            raise KernelFailed(f"NumPy failed: {error}") from error


_NOISY = frozenset(("Cast", "Cos", "Div", "Exp", "Log", "Pow", "Reciprocal", "Sin", "Sqrt", "Tan"))


def _view(array: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    assert array is not None
    made = array.reshape(shape)
    if not np.shares_memory(made, array):
        raise LoadError("a reshape of a strided array would have to copy it in every run")
    return made


def _unary(function: Any) -> Callable[[TorchSite, Arrays, Arrays], list[Call]]:
    return lambda site, taken, made: [functools.partial(function, taken[0], made[0])]


def _binary(function: Any) -> Callable[[TorchSite, Arrays, Arrays], list[Call]]:
    return lambda site, taken, made: [functools.partial(function, taken[0], taken[1], out=made[0])]


def _number(value: float, like: np.ndarray) -> np.ndarray:
    return np.array(value, dtype=like.dtype)


def _relu(site: TorchSite, taken: Arrays, made: Arrays) -> list[Call]:
    return [functools.partial(np.maximum, taken[0], _number(0, made[0]), out=made[0])]


def _leaky_relu(site: TorchSite, taken: Arrays, made: Arrays) -> list[Call]:
    scaled = functools.partial(np.multiply, taken[0], _number(site.number("alpha"), made[0]), made[0])
    return [scaled, functools.partial(np.maximum, taken[0], made[0], out=made[0])]


def _sigmoid(site: TorchSite, taken: Arrays, made: Arrays) -> list[Call]:
    """½ + ½ tanh(x / 2), which overflows nowhere."""
    half, out = _number(0.5, made[0]), made[0]
    return [
        functools.partial(np.multiply, taken[0], half, out),
        functools.partial(np.tanh, out, out),
        functools.partial(np.multiply, out, half, out),
        functools.partial(np.add, out, half, out),
    ]


def _pow(site: TorchSite, taken: Arrays, made: Arrays) -> list[Call]:
    exponent = site.scalar(1)
    if exponent == 2:
        return [functools.partial(np.square, taken[0], made[0])]
    if exponent == 0.5:
        return [functools.partial(np.sqrt, taken[0], made[0])]
    power = taken[1] if exponent is None else _number(exponent, made[0])
    return [functools.partial(np.power, taken[0], power, made[0])]


def _clip(site: TorchSite, taken: Arrays, made: Arrays) -> list[Call]:
    calls: list[Call] = []
    source = taken[0]
    for bound, function in ((site.scalar(1), np.maximum), (site.scalar(2), np.minimum)):
        if bound is not None:
            calls.append(functools.partial(function, source, _number(bound, made[0]), out=made[0]))
            source = made[0]
    if not calls:
        raise LoadError("Clip without bounds")
    return calls


def _where(site: TorchSite, taken: Arrays, made: Arrays) -> list[Call]:
    condition, x, y = taken
    return [
        functools.partial(np.copyto, made[0], y),
        functools.partial(np.copyto, made[0], x, where=condition),
    ]


def _cast(site: TorchSite, taken: Arrays, made: Arrays) -> list[Call]:
    return [functools.partial(np.copyto, made[0], taken[0], casting="unsafe")]


def _concat(site: TorchSite, taken: Arrays, made: Arrays) -> list[Call]:
    return [functools.partial(np.concatenate, list(taken), site.axis(), made[0])]


def _gather(site: TorchSite, taken: Arrays, made: Arrays) -> list[Call]:
    known = site.content(1)
    rows = taken[1] if known is None else known
    # "wrap" counts negative rows from the end and, unlike "raise", writes straight into the output.
    return [functools.partial(np.take, taken[0], rows, site.axis(), made[0], "wrap")]


def _reduce(function: Any) -> Callable[[TorchSite, Arrays, Arrays], list[Call]]:
    def build(site: TorchSite, taken: Arrays, made: Arrays) -> list[Call]:
        keep = site.flag("keepdims")
        return [functools.partial(function, taken[0], tuple(site.axes()), None, made[0], keep)]

    return build


def _mean(site: TorchSite, taken: Arrays, made: Arrays) -> list[Call]:
    sums = _reduce(np.add.reduce)(site, taken, made)
    count = taken[0].size // max(made[0].size, 1)
    return [*sums, functools.partial(np.multiply, made[0], _number(1 / count, made[0]), made[0])]


def _move(site: TorchSite, taken: Arrays, made: Arrays) -> list[Call]:
    """Moves elements and changes none: a view made now, copied in every run."""
    views = _VIEWS[site.node.op](site, taken)
    return [functools.partial(np.copyto, out, view) for out, view in zip(made, views, strict=True)]


def _split(site: TorchSite, taken: Arrays) -> list[np.ndarray]:
    ends = list(itertools.accumulate(site.numbers(1)))
    return np.split(taken[0], ends[:-1], site.axis())


_VIEWS: Mapping[str, Callable[[TorchSite, Arrays], list[np.ndarray]]] = {
    "Expand": lambda site, taken: [taken[0]],
    "Slice": lambda site, taken: [taken[0][site.cuts()]],
    "Split": _split,
    "Transpose": lambda site, taken: [taken[0].transpose(site.attrs["perm"])],
    **dict.fromkeys(ARRAY_VIEWS, lambda site, taken: [_view(taken[0], site.output().shape)]),
}

UNARY = {
    "Abs": "absolute", "Ceil": "ceil", "Cos": "cos", "Exp": "exp", "Floor": "floor", "Log": "log",
    "Neg": "negative", "Not": "logical_not", "Reciprocal": "reciprocal", "Round": "rint",
    "Sign": "sign", "Sin": "sin", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
BINARY = {
    "Add": "add", "And": "logical_and", "Div": "divide", "Equal": "equal", "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "Less": "less", "LessOrEqual": "less_equal", "Max": "maximum",
    "Min": "minimum", "Mul": "multiply", "Or": "logical_or", "Sub": "subtract", "Xor": "logical_xor",
}  # fmt: skip
"""Type → the array function's name in NumPy, and in JAX."""

_CALLS: Mapping[str, Callable[[TorchSite, Arrays, Arrays], list[Call]]] = {
    **{op: _unary(getattr(np, name)) for op, name in UNARY.items()},
    **{op: _binary(getattr(np, name)) for op, name in BINARY.items()},
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Gather": _gather,
    "LeakyRelu": _leaky_relu,
    "Pow": _pow,
    "ReduceMax": _reduce(np.maximum.reduce),
    "ReduceMean": _mean,
    "ReduceMin": _reduce(np.minimum.reduce),
    "ReduceSum": _reduce(np.add.reduce),
    "Relu": _relu,
    "Sigmoid": _sigmoid,
    "Where": _where,
}
