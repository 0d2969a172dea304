"""One element at a time: arithmetic, comparison, logic, casts, activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from tests.opatlas.load.drawn.draw import WHOLE, Draw, int64s, scalar
from tests.opatlas.load.operators import Case

Drawn = Callable[[Draw], Case]


def _one(
    op: str, values: str = "normal", kinds: tuple[str, ...] = (), **attrs: Callable[[Draw], Any]
) -> Drawn:
    """A function of one input. ``kinds``: whole types that it takes as well."""

    def draw(d: Draw) -> Case:
        x = getattr(d, values)(*d.shape())
        if kinds and d.flag():
            x = d.integers(*d.shape(), dtype=d.pick(*kinds))
        return Case(op, [x], {name: one(d) for name, one in attrs.items() if d.flag()})

    return draw


def _scaled(op: str, factor: float, **attrs: Callable[[Draw], Any]) -> Drawn:
    return lambda d: Case(
        op,
        [d.normal(*d.shape()) * d.float.type(factor)],
        {name: one(d) for name, one in attrs.items() if d.flag()},
    )


def _pair(op: str, kinds: tuple[str, ...] = (), floats: bool = True, nonzero: bool = False) -> Drawn:
    """Two inputs, of which either broadcasts."""

    def draw(d: Draw) -> Case:
        shape = d.shape()
        shapes = [shape, d.broadcast(shape)]
        if d.flag():
            shapes.reverse()
        dtype = d.pick(*kinds) if kinds and (not floats or d.flag()) else ""
        if dtype == "bool":
            pair = [d.bools(*one) for one in shapes]
        elif dtype:
            pair = [d.integers(*one, dtype=dtype) for one in shapes]
        else:
            pair = [d.normal(*one) for one in shapes]
        if nonzero:
            pair[1] = np.where(pair[1] == 0, 3, pair[1]).astype(pair[1].dtype)
        return Case(op, pair)

    return draw


def _several(op: str, kinds: tuple[str, ...] = ()) -> Drawn:
    def draw(d: Draw) -> Case:
        shape = d.shape()
        shapes = [shape, *(d.broadcast(shape) for _ in range(d.whole(0, 3)))]
        dtype = d.pick(*kinds) if kinds and d.flag() else ""
        return Case(op, [d.integers(*one, dtype=dtype) if dtype else d.normal(*one) for one in shapes])

    return draw


def _mod(d: Draw) -> Case:
    made = _pair("Mod", WHOLE, nonzero=True)(d)
    floating = made.inputs[0].dtype.kind == "f"  # type: ignore[union-attr]
    return Case("Mod", made.inputs, {"fmod": 1 if floating else d.flag()})


def _pow(d: Draw) -> Case:
    shape = d.shape()
    base, exponent = d.pick(("f", "f"), ("f", "i"), ("i", "f"), ("i", "i"))
    x = (
        d.positive(*shape)
        if base == "f"
        else d.integers(*shape, low=1, high=5, dtype=d.pick("int32", "int64"))
    )
    other = d.broadcast(shape)
    if exponent == "f" and d.flag():
        return Case("Pow", [x, scalar(d.pick(2.0, 3.0, 0.5), d.float)], fixed=[1])
    whole = d.integers(*other, low=0, high=3, dtype=d.pick("int32", "int64"))
    return Case("Pow", [x, d.pick(d.normal(*other), d.positive(*other)) if exponent == "f" else whole])


def _shift(d: Draw) -> Case:
    dtype, shape = d.pick("uint8", "uint16", "uint32", "uint64"), d.shape()
    most = np.dtype(dtype).itemsize * 8 - 1
    x = d.integers(*shape, low=0, high=200, dtype=dtype)
    shifts = d.integers(*d.broadcast(shape), low=0, high=most, dtype=dtype)
    return Case("BitShift", [x, shifts], {"direction": d.pick("LEFT", "RIGHT")})


def _clip(d: Draw) -> Case:
    shape = d.shape()
    dtype = d.pick("float32", "float64", "int8", "int32", "int64", "uint8")
    x = d.integers(*shape, dtype=dtype) if dtype[0] in "iu" else d.normal(*shape, dtype=dtype)
    low = scalar(d.whole(0, 4) if dtype == "uint8" else d.whole(-4, 2), dtype) if d.flag() else None
    high = scalar(d.whole(0, 4), dtype) if d.flag() else None
    return Case("Clip", [x, low, high], fixed=[1, 2])


_CASTS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool")
_NARROW = {
    TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2,
    TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2FNUZ,
}  # fmt: skip


def _cast(d: Draw) -> Case:
    source, shape = d.pick(*_CASTS), d.shape()
    x = d.positive(*shape) * 60 if d.flag() else d.normal(*shape) * 3
    if source.startswith("uint") or d.flag():
        x = np.abs(x)  # what a whole type cannot hold is nobody's to say
    x = x.astype(source)
    wanted = [f for f in _CASTS if not (f.startswith("uint") and x.dtype.kind != "b" and (x < 0).any())]
    to = int(
        getattr(
            TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(one := d.pick(*wanted), one.upper())
        )
    )
    attrs: dict[str, Any] = {"to": to}
    if x.dtype in (np.float32, np.float16) and d.whole(0, 2) == 0:
        attrs = {"to": int(d.pick(*sorted(_NARROW)))}
        if attrs["to"] != TensorProto.BFLOAT16:
            attrs["saturate"] = d.flag()
            x = (x * x.dtype.type(d.pick(1, 9, 200))).astype(x.dtype)
    return Case("Cast", [x], attrs)


def _constant_of_shape(d: Draw) -> Case:
    fill = d.pick(np.float32(2.5), np.float64(-1), np.int64(7), np.bool_(True), np.int8(-3), np.uint8(200))
    value = numpy_helper.from_array(np.array([fill]))
    return Case("ConstantOfShape", [int64s(d.shape())], {"value": value} if d.flag() else {}, fixed=[0])


def _eye_like(d: Draw) -> Case:
    attrs: dict[str, Any] = {"k": d.whole(-4, 4)} if d.flag() else {}
    if d.flag():
        attrs["dtype"] = int(
            d.pick(TensorProto.INT64, TensorProto.FLOAT, TensorProto.UINT8, TensorProto.DOUBLE)
        )
    return Case("EyeLike", [d.normal(d.whole(1, 5), d.whole(1, 5))], attrs)


def _odd(d: Draw) -> np.ndarray:
    x = d.normal(*d.shape())
    return np.where(d.bools(*x.shape), x, d.pick(np.nan, np.inf, -np.inf)).astype(x.dtype)


def _is_inf(d: Draw) -> Case:
    names = [name for name in ("detect_positive", "detect_negative") if d.flag()]
    return Case("IsInf", [_odd(d)], {name: d.flag() for name in names})


def _range(d: Draw) -> Case:
    dtype = d.pick("int16", "int32", "int64", "float32", "float64")
    step = d.pick(1, 2, -1, -3) if dtype[0] == "i" else d.pick(0.5, -0.25, 1.5)
    start = d.whole(-5, 5)
    stop = start + step * d.whole(1, 8) + (d.whole(0, 1) if dtype[0] == "i" else 0.125)
    return Case("Range", [scalar(one, dtype) for one in (start, stop, step)], fixed=[0, 1, 2])


def _where(d: Draw) -> Case:
    shape = d.shape()
    dtype = d.pick("", *WHOLE)
    pair = [d.broadcast(shape), shape]
    if d.flag():
        pair.reverse()
    arrays = [d.integers(*one, dtype=dtype) if dtype else d.normal(*one) for one in pair]
    return Case("Where", [d.bools(*d.broadcast(shape)), *arrays])


def _prelu(d: Draw) -> Case:
    shape = d.shape()
    slopes = (shape[1], *(1 for _ in shape[2:])) if len(shape) > 1 and d.flag() else d.broadcast(shape)
    return Case("PRelu", [d.normal(*shape), d.normal(*slopes)])


def _shrink(d: Draw) -> Case:
    return Case("Shrink", [d.normal(*d.shape())], {"lambd": d.number(0, 1), "bias": d.number(-1, 1)})


def _number(low: float, high: float) -> Callable[[Draw], float]:
    return lambda d: d.number(low, high)


_SIGNED = ("int8", "int16", "int32", "int64")
_NUMBERS = ("int32", "int64", "uint8", "int8")

DRAWS: dict[str, Drawn] = {
    **{
        op: _one(op)
        for op in [
            "Asinh",
            "Atan",
            "Ceil",
            "Cos",
            "Cosh",
            "Erf",
            "Floor",
            "Sin",
            "Sinh",
            "Softsign",
            "Tan",
            "Tanh",
        ]
    },
    **{op: _one(op, "positive") for op in ["Log", "Sqrt", "Reciprocal"]},
    **{op: _one(op, "inside") for op in ["Acos", "Asin", "Atanh"]},
    **{op: _scaled(op, 3) for op in ["Exp", "HardSwish", "Mish", "Sigmoid", "Softplus"]},
    **{op: _pair(op, _NUMBERS) for op in ["Add", "Sub", "Mul"]},
    **{op: _pair(op, ("bool",), floats=False) for op in ["And", "Or", "Xor"]},
    **{op: _pair(op, WHOLE, floats=False) for op in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]},
    **{
        op: _pair(op, (*WHOLE, "bool") if op == "Equal" else WHOLE)
        for op in ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]
    },
    **{op: _several(op) for op in ["Mean", "Sum"]},
    **{op: _several(op, ("int32", "int64")) for op in ["Max", "Min"]},
    "Abs": _one("Abs", kinds=_SIGNED),
    "Acosh": lambda d: Case("Acosh", [d.positive(*d.shape()) + d.float.type(1)]),
    "BitShift": _shift,
    "BitwiseNot": lambda d: Case("BitwiseNot", [d.integers(*d.shape(), dtype=d.pick(*WHOLE))]),
    "Cast": _cast,
    "Celu": lambda d: Case("Celu", [d.normal(*d.shape(), dtype="float32") * 2], {"alpha": d.number(0.2, 3)}),
    "Clip": _clip,
    "ConstantOfShape": _constant_of_shape,
    "Div": _pair("Div", _NUMBERS, nonzero=True),
    "Elu": _scaled("Elu", 2, alpha=_number(-1, 2)),
    "EyeLike": _eye_like,
    "Gelu": _scaled("Gelu", 2, approximate=lambda d: d.pick("tanh", "none")),
    "HardSigmoid": _scaled("HardSigmoid", 4, alpha=_number(0, 1), beta=_number(-1, 1)),
    "Identity": _one("Identity", kinds=WHOLE),
    "IsInf": _is_inf,
    "IsNaN": lambda d: Case("IsNaN", [_odd(d)]),
    "LeakyRelu": _scaled("LeakyRelu", 2, alpha=_number(-2, 2)),
    "Mod": _mod,
    "Neg": _one("Neg", kinds=_SIGNED),
    "Not": lambda d: Case("Not", [d.bools(*d.shape())]),
    "PRelu": _prelu,
    "Pow": _pow,
    "Range": _range,
    "Relu": _one("Relu", kinds=("int8", "int32")),
    "Round": lambda d: Case("Round", [np.round(d.normal(*d.shape()) * 4) / d.float.type(2)]),
    "Selu": _scaled("Selu", 2, alpha=_number(-1, 2), gamma=_number(1, 3)),
    "Shrink": _shrink,
    "Sign": _one("Sign", kinds=WHOLE),
    "ThresholdedRelu": _scaled("ThresholdedRelu", 2, alpha=_number(-1, 2)),
    "Where": _where,
}
