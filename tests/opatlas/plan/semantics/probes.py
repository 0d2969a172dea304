"""One operator at a time over values at its edges: what frameworks are compared by."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

from opatlas.plan.semantics.intervals import MINUS, NAN, PLUS
from opatlas.plan.semantics.ranges import ALWAYS, LARGE, NEGATIVE, WIDE, WRAPS

OPSET = 20
LENGTH = 67
"""Of vectors: more than the widest registers hold, and no multiple of them, so that ends are tried too."""
FLOATS = ("float32", "float64", "float16")
WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Probe:
    """A model of one operator. ``feeds``: by what they meet; ``about``: attributes that a difference is said
    of, all others being as usual."""

    op_type: str
    element: str
    model: ModelProto
    feeds: Sequence[tuple[str, Arrays]]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def said(self) -> str:
        about = ", ".join(f"{name}={value}" for name, value in self.about.items())
        return f"{self.op_type} of {self.element}" + f" with {about}" * bool(about)


def probe(
    op_type: str,
    feeds: Iterable[tuple[str, Arrays]],
    *,
    constants: Arrays | None = None,
    order: Sequence[str] = (),
    outputs: int = 1,
    element: str = "",
    about: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> Probe:
    """``order``: the node's inputs by name, ``-`` for one that is left out."""
    known, given = dict(constants or {}), [(aspect, dict(feed)) for aspect, feed in feeds]
    first = given[0][1]
    names = list(order) or [*first, *known]
    made = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(
        op_type, ["" if one == "-" else one for one in names], made, **attributes, **(about or {})
    )
    graph = helper.make_graph(
        [node],
        "probe",
        [helper.make_tensor_value_info(name, _number(array), array.shape) for name, array in first.items()],
        [onnx.ValueInfoProto(name=name) for name in made],
        [numpy_helper.from_array(array, name) for name, array in known.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    with contextlib.suppress(onnx.shape_inference.InferenceError):  # what is none is found out by who runs it
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    typed = element or (first | known)[names[0]].dtype.name
    return Probe(op_type, typed, model, given, dict(about or {}))


def _number(array: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


# ---- values -----------------------------------------------------------------------------------------

_ORDINARY = (-3.7, -2.5, -1.5, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 3.3, 7.9, 1e-3, 41.7)
_POSITIVE = (0.25, 0.5, 1.0, 1.5, 2.5, 3.3, 7.9, 1e-3, 41.7)
_BELOW_ONE = (-0.9, -0.5, 0.0, 0.1, 0.25, 0.9)


def tiled(values: Sequence[Any], element: str, length: int = LENGTH) -> np.ndarray:
    return np.resize(np.array(values, dtype=element), length)


def floats(
    element: str, ordinary: Sequence[float] = _ORDINARY, beyond: Sequence[float] = ()
) -> list[tuple[str, np.ndarray]]:
    """``beyond``: finite values of which the result is NaN or endless."""
    some = list(ordinary)
    return [
        (ALWAYS, tiled(some, element)),
        (NAN, tiled([np.nan, *some[:4], *beyond, np.nan, np.nan, *some[4:7]], element)),
        (PLUS, tiled([np.inf, *some[:4], np.inf, *some[4:6]], element)),
        (MINUS, tiled([-np.inf, *some[:4], -np.inf, *some[4:6]], element)),
    ]


def whole(element: str, *, wraps: bool) -> list[tuple[str, np.ndarray]]:
    """``wraps``: an operator whose results can be beyond the type."""
    info, found = np.iinfo(element), [(ALWAYS, tiled([0, 1, 2, 3, 5, 7, 9, 11, 4], element))]
    if info.min < 0:
        found.append((NEGATIVE, tiled([-7, 7, 9, -9, 5, 8, 11, -11, -1, 3, -2], element)))
    ends = tiled([info.max, info.min, info.max - 1, 1, info.max // 2 + 3, 2, 7], element)
    if info.bits >= 32:
        some = [2**24 + 1, 5, 2**25 + 3, 7, 3 * 2**24 + 5]
        found.append((LARGE, tiled([*some, *([-one for one in some] if info.min < 0 else [])], element)))
    if info.max > 2**31 - 1:
        large = (
            [2**31 + 5, 5, 2**31 + 1000, 7]
            if info.bits == 32
            else [2**40 + 5, 7, 2**32 + 3, 2**31, 2**50 + 1]
        )
        low = [-one for one in large] if info.min < 0 else []
        found.append((WIDE, tiled([*large, *low], element)))
    if wraps:
        found.append((WRAPS, ends))
    elif info.bits == 32 and info.min < 0:
        found.append((LARGE, ends))
    elif info.bits < 32:
        found[0] = (ALWAYS, np.concatenate([found[0][1][:20], ends])[:LENGTH])
    return found


def values(element: str, *, wraps: bool = False) -> list[tuple[str, np.ndarray]]:
    if element == "bool":
        return [(ALWAYS, tiled([True, False, False, True, True], "bool"))]
    return floats(element) if element in FLOATS else whole(element, wraps=wraps)


def pairs(element: str, *, wraps: bool = False, divides: bool = False) -> list[tuple[str, Arrays]]:
    """Two operands: values, and the same in another order."""
    found = []
    for aspect, one in values(element, wraps=wraps):
        other = np.roll(one, 3)
        if divides and element in WHOLE:
            other = np.where(
                (other == 0) | (other == np.array(-1).astype(element)), np.array(3, element), other
            )
            if aspect == WIDE:
                other = tiled([3, 1000, 7], element)
        found.append((aspect, {"a": one, "b": other}))
    return found


def named(given: Iterable[tuple[str, np.ndarray]], shape: Sequence[int] = (-1,)) -> list[tuple[str, Arrays]]:
    return [(aspect, {"x": one.reshape(shape)}) for aspect, one in given]


def image(element: str, size: int = 6) -> list[tuple[str, Arrays]]:
    """Of one channel; what is special is at its corner and in its middle."""
    plain = (np.arange(size * size) * 7 % 11 - 3).astype(element).reshape(1, 1, size, size)
    if element not in FLOATS:
        return [(ALWAYS, {"x": np.abs(plain)})]
    found = [(ALWAYS, {"x": plain + np.array(0.25, element)})]
    for aspect, value in ((NAN, np.nan), (PLUS, np.inf), (MINUS, -np.inf)):
        one = plain.copy()
        one[0, 0, 0, 0] = one[0, 0, size // 2, size // 2] = value
        found.append((aspect, {"x": one}))
    found.append((MINUS, {"x": np.full_like(plain, -np.inf)}))
    return found


# ---- probes by family ----------------------------------------------------------------------------------

_UNARY = (
    "Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Exp", "Sigmoid", "Tanh", "Erf", "Sin", "Cos", "Tan",
    "Atan", "Sinh", "Cosh", "Asinh", "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish",
    "ThresholdedRelu", "Softplus", "Softsign", "Gelu", "Mish", "Shrink", "Identity", "IsNaN", "IsInf",
)  # fmt: skip
_LIMITED: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {
    "Log": (_POSITIVE, (-1.0, 0.0)), "Sqrt": (_POSITIVE, (-1.0, -7.0)),
    "Reciprocal": (_POSITIVE, (0.0, -0.5)),
    "Acos": (_BELOW_ONE, (2.0,)), "Asin": (_BELOW_ONE, (2.0,)), "Atanh": (_BELOW_ONE, (2.0, 1.0)),
    "Acosh": ((1.0, 1.5, 3.3, 41.7), (0.5, -1.0)),
}  # fmt: skip


def unary() -> Iterator[Probe]:
    for op_type, element in itertools.product(_UNARY, (*FLOATS, *WHOLE)):
        wraps = op_type in ("Neg", "Abs") and element in WHOLE
        yield probe(op_type, named(values(element, wraps=wraps)))
    for op_type in ("Not", "Identity"):
        yield probe(op_type, named(values("bool")))
    for (op_type, (ordinary, beyond)), element in itertools.product(_LIMITED.items(), FLOATS):
        yield probe(op_type, named(floats(element, ordinary, beyond)))
    for element in FLOATS:
        yield probe("Exp", [(PLUS, {"x": tiled([1000, 89, -1000, 0.5], element)})])
        yield probe("PRelu", named(floats(element)), constants={"s": np.array([0.1], element)})
        yield probe(
            "Clip",
            named(floats(element)),
            constants={"low": np.array(-1, element), "high": np.array(2, element)},
        )
        yield probe("Clip", named(floats(element)), constants={"low": np.array(-1, element)})
    for element in WHOLE:
        bounds = {"low": np.array(1, element), "high": np.array(9, element)}
        yield probe("Clip", named(whole(element, wraps=False)), constants=bounds)
        yield probe("BitwiseNot", named(whole(element, wraps=False)))
    yield probe("IsInf", named(floats("float32")), about={"detect_negative": 0})


def after_a_product() -> Iterator[Probe]:
    """What follows a product may be computed within it, by other code."""
    for op_type in ("Relu", "Clip", "LeakyRelu", "HardSigmoid", "Sigmoid", "Tanh"):
        made = probe(op_type, named(floats("float32"), (1, -1)), constants=(
            {"low": np.float32(-1), "high": np.float32(2)} if op_type == "Clip" else {}))  # fmt: skip
        made.model.graph.node[0].input[0] = "m"
        product = helper.make_node("MatMul", ["x", "w"], ["m"])
        nodes = [product, *made.model.graph.node]
        del made.model.graph.node[:]
        made.model.graph.node.extend(nodes)
        made.model.graph.initializer.append(numpy_helper.from_array(np.eye(LENGTH, dtype=np.float32), "w"))
        yield made


_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Pow", "Sum")
_COMPARING = ("Max", "Min", "Mean", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")


def _falling(feed: Arrays) -> Arrays:
    """The larger first, so that a difference is not negative."""
    return {"a": np.maximum(feed["a"], feed["b"]), "b": np.minimum(feed["a"], feed["b"])}


def binary() -> Iterator[Probe]:
    for op_type, element in itertools.product((*_ARITHMETIC, *_COMPARING), (*FLOATS, *WHOLE)):
        given = pairs(element, wraps=op_type in _ARITHMETIC and op_type != "Div", divides=op_type == "Div")
        if op_type == "Sub" and element.startswith("u"):
            given = [(aspect, _falling(feed) if aspect != WRAPS else feed) for aspect, feed in given]
        if op_type == "Pow":
            given = [(aspect, {"a": feed["a"], "b": tiled([2, 3, 0, 1], element)}) for aspect, feed in given]
        yield probe(op_type, given)
    for element in WHOLE:
        yield probe("Mod", pairs(element, divides=True))
        yield probe("Mod", pairs(element, divides=True), about={"fmod": 1})
        for op_type in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            yield probe(op_type, pairs(element))
        for direction in ("LEFT", "RIGHT"):
            shifts = [
                (aspect, {"a": one, "b": tiled([1, 3, 0, 2], element)})
                for aspect, one in values(element, wraps=True)
            ]
            yield probe("BitShift", shifts, about={"direction": direction})
    for element in FLOATS:
        yield probe(
            "Mod",
            [(ALWAYS, {"a": tiled([-7.5, 7.5, 5.25, -1.5], element), "b": tiled([2, -2, 3], element)})],
            fmod=1,
        )
        yield probe(
            "Pow", [(NAN, {"a": tiled([-8, -2, 0, 2], element), "b": tiled([1 / 3, 0.5, -1.5], element)})]
        )
        yield probe("Div", [(NAN, {"a": tiled([0, 1, -1, 2], element), "b": tiled([0, 0, 0, 3], element)})])
    for op_type in ("And", "Or", "Xor", "Equal"):
        yield probe(op_type, pairs("bool"))


def casts() -> Iterator[Probe]:
    for source, target in itertools.product((*FLOATS, *WHOLE, "bool"), repeat=2):
        if source != target:
            to = _number(np.zeros(0, target))
            yield probe("Cast", named(_castable(source, target)), element=f"{source}>{target}", to=to)


def _castable(source: str, target: str) -> list[tuple[str, np.ndarray]]:
    if source == "bool":
        return values("bool")
    low, high = (np.iinfo(target).min, np.iinfo(target).max) if target in WHOLE else (-(2**63), 2**63)
    found = []
    for aspect, one in values(source, wraps=target in WHOLE):
        wide = one.astype(np.float64)
        fits = (
            (wide >= max(low, -(2**62))) & (wide <= min(high, 2**62))
            if target in WHOLE
            else np.full(one.shape, True)
        )
        special = ~np.isfinite(one.astype(np.float64)) if source in FLOATS else np.full(one.shape, False)
        if aspect in (ALWAYS, NEGATIVE, LARGE, WIDE, NAN):  # the rest of the values as such a target has them
            one = np.where(fits | special, one, np.array(1, source))
        found.append((aspect, one))
    if source in FLOATS and target in WHOLE:
        bounded = [
            value
            for value in (300.7, 40000.9, 70000.0, 3e9, -2.7, -200.0, -40000.0, -3e9)
            if not low <= value <= high
        ]
        if bounded and source != "float16":
            found.append((WRAPS, tiled([*bounded, 1], source)))
        if np.iinfo(target).bits == 64 and source != "float16":
            found.append((WIDE, tiled([1e12, 3e9, 2.5, 1e10], source)))
    return found


def moving() -> Iterator[Probe]:
    """What only moves values, or picks them."""
    at = np.array([-1, 0, 3, -5, 14], np.int64)
    for element in (*FLOATS, *WHOLE, "bool"):
        some = values(element)
        yield probe("Transpose", named([(a, x[:66]) for a, x in some], (6, 11)), perm=[1, 0])
        yield probe("Reshape", named([(a, x[:66]) for a, x in some]), constants={"s": np.array([6, -1])})
        yield probe("Concat", [(a, {"a": x, "b": x[::-1].copy()}) for a, x in some], axis=0)
        yield probe(
            "Slice",
            named(some),
            constants={"s": np.array([-1]), "e": np.array([-40]), "i": np.array([0]), "t": np.array([-3])},
        )
        yield probe("Expand", named(some, (1, -1)), constants={"s": np.array([3, 1])})
        yield probe("Tile", named(some), constants={"r": np.array([2])})
        yield probe("Gather", named(some), constants={"i": at}, axis=0)
        yield probe("Gather", [(a, {"x": x, "i": at}) for a, x in some], axis=0)
        yield probe("GatherElements", [(a, {"x": x, "i": at}) for a, x in some], axis=0)
        yield probe("GatherND", [(a, {"x": x, "i": at.reshape(-1, 1)}) for a, x in some])
        yield probe("Pad", named(some), constants={"p": np.array([2, 1]), "v": np.array(1, element)})
        yield probe("Pad", named(some), constants={"p": np.array([2, 1])}, about={"mode": "reflect"})
        yield probe("Pad", named(some), constants={"p": np.array([2, 1])}, about={"mode": "edge"})
        yield probe("Trilu", named([(a, x[:64]) for a, x in some], (8, 8)), constants={"k": np.array(1)})
        yield probe("NonZero", named(some))
        condition = tiled([True, False, True], "bool")
        yield probe(
            "Where", [(a, {"c": condition, "a": x, "b": np.roll(x, 2)}) for a, x in some], element=element
        )
        for reduction in ("none", "add", "mul", "max", "min"):
            indices = np.array([1, -1, 1] if reduction != "none" else [1, -1, 2], np.int64)
            yield probe(
                "ScatterElements", [(a, {"x": x, "u": x[2:5].copy()}) for a, x in some],
                constants={"i": indices}, order=["x", "i", "u"], axis=0, about={"reduction": reduction},
            )  # fmt: skip
            yield probe(
                "ScatterND", [(a, {"x": x, "u": x[2:5].copy()}) for a, x in some],
                constants={"i": indices.reshape(-1, 1)}, order=["x", "i", "u"],
                about={"reduction": reduction},
            )  # fmt: skip
    for element in ("int32", "int64"):
        ids = np.array([-1, 2, 0, 7, 3, -6], element)
        yield probe(
            "OneHot", [(ALWAYS, {"i": ids})], element="float32",
            constants={"d": np.array(5, np.int64), "v": np.array([0.5, 2], np.float32)},
        )  # fmt: skip


_REDUCING = ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2",
             "ReduceSumSquare", "ReduceLogSumExp")  # fmt: skip


def reducing() -> Iterator[Probe]:
    for op_type, element in itertools.product(_REDUCING, (*FLOATS, *WHOLE)):
        wraps = op_type not in ("ReduceMax", "ReduceMin", "ReduceMean")
        given = [(a, np.concatenate([x[:33], x[:33][::-1]])) for a, x in values(element, wraps=wraps)]
        if wraps and op_type == "ReduceProd":
            given = [(a, x[:8]) for a, x in given]
            yield probe(op_type, named(given, (2, 4)), constants={"axes": np.array([1])})
        else:
            yield probe(op_type, named(given, (6, 11)), constants={"axes": np.array([1])})
            yield probe(op_type, named(given), constants={"axes": np.array([0])})
    for element in (*FLOATS, "int32", "int64", "uint8", "int8"):
        some = [(a, x[:66]) for a, x in values(element)]
        for op_type in ("ArgMax", "ArgMin"):
            yield probe(op_type, named(some, (6, 11)), axis=1)
            yield probe(op_type, named(some, (6, 11)), axis=1, about={"select_last_index": 1})
        alike = [(ALWAYS, tiled([1, 3, 2, 3, 1, 2], element, 66))]  # of equals the first ones
        yield probe("TopK", named(alike, (6, 11)), constants={"k": np.array([4])}, outputs=2)
        yield probe("TopK", named(some, (6, 11)), constants={"k": np.array([4])}, outputs=2)
        yield probe(
            "TopK", named(some, (6, 11)), constants={"k": np.array([4])}, outputs=2, about={"largest": 0}
        )
        if element in (*FLOATS, "int32", "int64"):
            for about in ({}, {"reverse": 1}, {"exclusive": 1}):
                yield probe(
                    "CumSum", named(values(element, wraps=True)), constants={"a": np.array(0)}, about=about
                )


def normalising() -> Iterator[Probe]:
    for element in FLOATS:
        some = [(a, x[:66]) for a, x in floats(element)]
        some.append((MINUS, np.full(66, -np.inf, element)))
        for op_type in ("Softmax", "LogSoftmax", "Hardmax"):
            yield probe(op_type, named(some, (6, 11)), axis=1)
        scale, shift = np.linspace(0.5, 2, 11).astype(element), np.linspace(-1, 1, 11).astype(element)
        yield probe("LayerNormalization", named(some, (6, 11)), constants={"s": scale, "b": shift})
        flat = named([(a, x[:66]) for a, x in floats(element)], (1, 11, 6))
        yield probe("InstanceNormalization", flat, constants={"s": scale, "b": shift})
        yield probe("BatchNormalization", flat, constants={"s": scale, "b": shift, "m": shift, "v": scale})
        yield probe("LpNormalization", named(some, (6, 11)), axis=1, p=2)
        yield probe(
            "MatMul",
            named(some, (6, 11)),
            constants={"w": np.linspace(-1, 1, 22).astype(element).reshape(11, 2)},
        )
        yield probe(
            "Gemm",
            named(some, (6, 11)),
            constants={"w": np.linspace(-1, 1, 22).astype(element).reshape(11, 2)},
        )
        yield probe("Einsum", named(some, (6, 11)), equation="ij->ji")


def pooling() -> Iterator[Probe]:
    for element in (*FLOATS, "uint8", "int8"):
        for about in ({}, {"ceil_mode": 1}, {"dilations": [2, 2]}):
            yield probe("MaxPool", image(element), kernel_shape=[2, 2], strides=[2, 2], about=about)
        yield probe("MaxPool", image(element, 7), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        yield probe("GlobalMaxPool", image(element))
        yield probe("GlobalAveragePool", image(element))
    for element in FLOATS:
        yield probe("AveragePool", image(element), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        yield probe(
            "AveragePool",
            image(element),
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
            about={"count_include_pad": 1},
        )
        yield probe(
            "AveragePool", image(element), kernel_shape=[3, 3], strides=[2, 2], about={"ceil_mode": 1}
        )
        both = {"ceil_mode": 1, "count_include_pad": 1}
        yield probe(
            "AveragePool",
            image(element, 4),
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 1, 1, 1],
            about=both,
        )
        line = [(ALWAYS, {"x": np.arange(9).astype(element).reshape(1, 1, 9)})]
        yield probe("AveragePool", line, kernel_shape=[7], strides=[3], pads=[3, 3], about=both)
        yield probe("LpPool", image(element), kernel_shape=[2, 2])
        yield probe("LRN", image(element), size=3)
        kernel = np.linspace(-1, 1, 9).astype(element).reshape(1, 1, 3, 3)
        yield probe("Conv", image(element), constants={"w": kernel}, pads=[1, 1, 1, 1])
        yield probe("ConvTranspose", image(element), constants={"w": kernel}, strides=[2, 2])


def resizing() -> Iterator[Probe]:
    placed = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
    for mode, where, element in itertools.product(
        ("nearest", "linear", "cubic"), placed, ("float32", "uint8", "int8")
    ):
        about = {"mode": mode, "coordinate_transformation_mode": where}
        for scale in (1.7, 0.6):
            yield probe(
                "Resize", image(element), constants={"s": np.array([1, 1, scale, scale], np.float32)},
                order=["x", "-", "s"], about=about,
            )  # fmt: skip
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        yield probe(
            "Resize", image("float32"), constants={"s": np.array([1, 1, 1.5, 0.5], np.float32)},
            order=["x", "-", "s"],
            mode="nearest", about={"nearest_mode": rounding},
        )  # fmt: skip
    for mode in ("linear", "cubic"):
        for about in ({"antialias": 1}, {"exclude_outside": 1}, {"cubic_coeff_a": -0.5}):
            yield probe(
                "Resize", image("float32"), constants={"s": np.array([1, 1, 0.6, 0.6], np.float32)},
                order=["x", "-", "s"], about={"mode": mode, **about},
            )  # fmt: skip
    grid = np.linspace(-1.3, 1.3, 32, dtype=np.float32).reshape(1, 4, 4, 2)
    for mode, pad in itertools.product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection")):
        for corners in (0, 1):
            about = {"mode": mode, "padding_mode": pad, "align_corners": corners}
            yield probe("GridSample", image("float32"), constants={"g": grid}, about=about)


def quantising() -> Iterator[Probe]:
    for element in ("uint8", "int8"):
        zero, scale = np.array(3, element), np.array(0.5, np.float32)
        halves = (ALWAYS, tiled([0.25, 0.75, 1.25, -0.25, 500, -500], "float32"))
        given = named([*floats("float32"), halves])
        yield probe("QuantizeLinear", given, constants={"s": scale, "z": zero})
        yield probe("DequantizeLinear", named(whole(element, wraps=False)), constants={"s": scale, "z": zero})
        ends = tiled([255, 0, 128, 3] if element == "uint8" else [127, -128, 0, 5], element, 64)
        weights = tiled([127, -128, 5, -7], "int8", 64).reshape(8, 8)
        yield probe("MatMulInteger", named([(ALWAYS, ends)], (8, 8)), constants={"w": weights})
    yield probe("DynamicQuantizeLinear", named(floats("float32")[:1]), outputs=3)


FAMILIES = (
    unary,
    after_a_product,
    binary,
    casts,
    moving,
    reducing,
    normalising,
    pooling,
    resizing,
    quantising,
)


def probes() -> Iterator[Probe]:
    """All that can be made; what ONNX or ONNX Runtime refuses is for the caller to find out."""
    for family in FAMILIES:
        yield from family()
