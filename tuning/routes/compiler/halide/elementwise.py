"""Operators whose every element depends on the inputs' elements at its own place only."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import pi, sqrt
from typing import Any

from tuning.routes.compiler.halide import intrinsics as fn
from tuning.routes.compiler.halide.site import HalideSite, HalideTensor, Index, broadcast, constant


def lower(site: HalideSite) -> list[HalideTensor]:
    """One node as an expression of its inputs' elements."""
    made = site.output()
    rank = len(made.shape)
    reads = [broadcast(site.tensor(i), rank) if site.has(i) else None for i in range(len(site.node.inputs))]
    build = _BUILDERS[site.node.op]

    def at(indices: Index) -> Any:
        found = build(site, *[read(indices) if read else None for read in reads])
        return site.hl.cast(site.p.type(made.dtype), found)

    return [HalideTensor(made.shape, made.dtype, at)]


def _c(x: Any, value: float) -> Any:
    return constant(x.type(), value)


def _hl(name: str) -> Callable[..., Any]:
    return lambda site, *xs: getattr(site.hl, name)(*xs)


def _gelu(site: HalideSite, x: Any) -> Any:
    if site.attrs["approximate"] == "tanh":
        inner = _c(x, sqrt(2 / pi)) * (x + _c(x, 0.044715) * x * x * x)
        return _c(x, 0.5) * x * (_c(x, 1.0) + fn.tanh(inner))
    return _c(x, 0.5) * x * (_c(x, 1.0) + fn.erf(x * _c(x, sqrt(0.5))))


def _clip(site: HalideSite, x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else site.hl.select(x < low, low, x)
    return x if high is None else site.hl.select(x > high, high, x)


def _softplus(site: HalideSite, x: Any) -> Any:
    hl = site.hl
    return hl.select(x > 0, x, _c(x, 0.0)) + hl.log(_c(x, 1.0) + fn.exp(-hl.abs(x)))


def _power(site: HalideSite, x: Any, y: Any) -> Any:
    value = site.input(1).data
    exponent = float(value[0]) if value is not None else None
    if exponent in (2.0, 3.0):
        return x * x if exponent == 2.0 else x * x * x
    if exponent == 0.5:
        return site.hl.sqrt(x)
    if exponent == -1.0:
        return _c(x, 1.0) / x
    return site.hl.pow(x, site.hl.cast(x.type(), y))


def _divide(site: HalideSite, x: Any, y: Any) -> Any:
    return x / y if x.type().is_float() else site.hl.div_round_to_zero(x, y)


def _sign(site: HalideSite, x: Any) -> Any:
    hl = site.hl
    zero, one = _c(x, 0), _c(x, 1)
    if x.type().is_uint():
        return hl.select(x > zero, one, zero)
    return hl.select(x > zero, one, hl.select(x < zero, -one, zero if not x.type().is_float() else x))


def _largest(site: HalideSite, *xs: Any) -> Any:
    return reduce(lambda a, b: _nan_wins(site, a, b, a > b), xs)


def _smallest(site: HalideSite, *xs: Any) -> Any:
    return reduce(lambda a, b: _nan_wins(site, a, b, a < b), xs)


def _nan_wins(site: HalideSite, a: Any, b: Any, first: Any) -> Any:
    hl = site.hl
    return hl.select(first | hl.is_nan(a), a, b) if a.type().is_float() else hl.select(first, a, b)


def _cast(site: HalideSite, x: Any) -> Any:
    return x != _c(x, 0) if site.output().dtype == "bool" and not x.type().is_bool() else x


def _is_inf(site: HalideSite, x: Any) -> Any:
    hl = site.hl
    up = hl.is_inf(x) & (x > _c(x, 0)) if site.flag("detect_positive") else hl.Expr(False)
    down = hl.is_inf(x) & (x < _c(x, 0)) if site.flag("detect_negative") else hl.Expr(False)
    return up | down


def _elu(site: HalideSite, x: Any, alpha: float, gamma: float = 1.0) -> Any:
    below = _c(x, gamma * alpha) * (fn.exp(site.hl.min(x, _c(x, 0.0))) - _c(x, 1.0))
    return site.hl.select(x < 0, below, _c(x, gamma) * x)


def _hard_sigmoid(site: HalideSite, x: Any, alpha: float, beta: float) -> Any:
    return _clip(site, _c(x, alpha) * x + _c(x, beta), _c(x, 0.0), _c(x, 1.0))


def _shrink(site: HalideSite, x: Any) -> Any:
    bias, limit = _c(x, site.number("bias")), _c(x, site.number("lambd"))
    return site.hl.select(x < -limit, x + bias, site.hl.select(x > limit, x - bias, _c(x, 0.0)))


def _celu(site: HalideSite, x: Any) -> Any:
    alpha = site.number("alpha")
    below = _c(x, alpha) * (fn.exp(site.hl.min(x, _c(x, 0.0)) / _c(x, alpha)) - _c(x, 1.0))
    return site.hl.select(x < 0, below, x)


def _slope(site: HalideSite, x: Any, slope: Any) -> Any:
    return site.hl.select(x < 0, x * slope, x)


_BUILDERS: dict[str, Callable[..., Any]] = {
    **{
        name: _hl(name.lower())
        for name in (
            *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh"),
            *("Floor", "Log", "Round", "Sin", "Sinh", "Sqrt", "Tan"),
        )
    },
    "Add": lambda s, x, y: x + y,
    "And": lambda s, x, y: x & y,
    "BitwiseAnd": lambda s, x, y: x & y,
    "BitwiseNot": lambda s, x: ~x,
    "BitwiseOr": lambda s, x, y: x | y,
    "BitwiseXor": lambda s, x, y: x ^ y,
    "Cast": _cast,
    "Celu": _celu,
    "Clip": _clip,
    "Div": _divide,
    "Elu": lambda s, x: _elu(s, x, s.number("alpha")),
    "Equal": lambda s, x, y: x == y,
    "Erf": lambda s, x: fn.erf(x),
    "Exp": lambda s, x: fn.exp(x),
    "Gelu": _gelu,
    "Greater": lambda s, x, y: x > y,
    "GreaterOrEqual": lambda s, x, y: x >= y,
    "HardSigmoid": lambda s, x: _hard_sigmoid(s, x, s.number("alpha"), s.number("beta")),
    "HardSwish": lambda s, x: x * _hard_sigmoid(s, x, 1 / 6, 0.5),
    "Identity": lambda s, x: x,
    "IsInf": _is_inf,
    "IsNaN": lambda s, x: s.hl.is_nan(x),
    "LeakyRelu": lambda s, x: _slope(s, x, _c(x, s.number("alpha"))),
    "Less": lambda s, x, y: x < y,
    "LessOrEqual": lambda s, x, y: x <= y,
    "Max": _largest,
    "Mean": lambda s, *xs: reduce(lambda a, b: a + b, xs) / _c(xs[0], len(xs)),
    "Min": _smallest,
    "Mish": lambda s, x: x * fn.tanh(_softplus(s, x)),
    "Mul": lambda s, x, y: x * y,
    "Neg": lambda s, x: -x,
    "Not": lambda s, x: ~x,
    "Or": lambda s, x, y: x | y,
    "PRelu": _slope,
    "Pow": _power,
    "Reciprocal": lambda s, x: _c(x, 1.0) / x,
    "Relu": lambda s, x: s.hl.select(x < _c(x, 0), _c(x, 0), x),
    "Selu": lambda s, x: _elu(s, x, s.number("alpha"), s.number("gamma")),
    "Shrink": _shrink,
    "Sigmoid": lambda s, x: fn.sigmoid(x),
    "Sign": _sign,
    "Softplus": _softplus,
    "Softsign": lambda s, x: x / (_c(x, 1.0) + s.hl.abs(x)),
    "Sub": lambda s, x, y: x - y,
    "Sum": lambda s, *xs: reduce(lambda a, b: a + b, xs),
    "Tanh": lambda s, x: fn.tanh(x),
    "ThresholdedRelu": lambda s, x: s.hl.select(x > _c(x, s.number("alpha")), x, _c(x, 0.0)),
    "Where": lambda s, c, x, y: s.hl.select(c, x, y),
    "Xor": lambda s, x, y: x ^ y,
}
