"""exp, tanh, erf and sigmoid for float32 that stay in vector registers, with libm's infinities and NaN.

Halide's own ``tanh`` calls libm once per lane, and its ``exp`` and ``erf`` are not exact enough at the ends.
Other types keep Halide's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuning.routes.compiler import polynomials
from tuning.routes.compiler.halide.machine import import_halide

_EXP_END = 88.7228  # above it float32 has infinity only
_INFINITY_BITS = 0x7F800000


def exp(x: Any) -> Any:
    """e to the ``x``.

    What has to hold for infinities and NaN is done on bits: under relaxed rules an arithmetic result may be
    assumed to be neither, and ``value * 2**64 * 2**64`` be reordered.
    """
    hl = import_halide()
    if not _single(x):
        return hl.exp(x)
    y = hl.clamp(x, _f(-104.0), _f(_EXP_END))
    n = hl.floor(y * _f(polynomials.LOG2_E) + _f(0.5))
    r = y - n * _f(polynomials.LN2_HIGH) - n * _f(polynomials.LN2_LOW)
    value = (_polynomial(r, polynomials.EXP) * r) * r + r + _f(1.0)
    whole = hl.cast(hl.Int(32), n)
    # Results below the normal numbers are made 2**64 times too large first: the product rounds them.
    tiny = whole < -60
    bits = _bits(value) + ((whole + hl.select(tiny, 64, 0)) << 23)
    made = hl.reinterpret(hl.Float(32), bits) * hl.select(tiny, _f(2.0**-64), _f(1.0))
    made = hl.select(x > _f(_EXP_END), hl.Expr(_INFINITY_BITS), _bits(made))
    return hl.reinterpret(hl.Float(32), hl.select(hl.is_nan(x), _bits(x), made))


def tanh(x: Any) -> Any:
    return _odd(x, *polynomials.TANH) if _single(x) else import_halide().tanh(x)


def erf(x: Any) -> Any:
    return _odd(x, *polynomials.ERF) if _single(x) else import_halide().erf(x)


def sigmoid(x: Any) -> Any:
    one = _f(1.0) if _single(x) else import_halide().f64(1.0)
    return one / (one + exp(-x))


def _single(x: Any) -> bool:
    return bool(x.type() == import_halide().Float(32))


def _f(value: float) -> Any:
    return import_halide().f32(value)


def _bits(x: Any) -> Any:
    hl = import_halide()
    return hl.reinterpret(hl.Int(32), x)


def _nan_stays(x: Any, value: Any) -> Any:
    hl = import_halide()
    return hl.reinterpret(hl.Float(32), hl.select(hl.is_nan(x), _bits(x), _bits(value)))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    result = _f(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + _f(coefficient)
    return result


def _odd(x: Any, end: float, numerator: Sequence[float], denominator: Sequence[float]) -> Any:
    """``x`` times a rational function of ``x``², flat beyond ``end``."""
    y = import_halide().clamp(x, _f(-end), _f(end))
    square = y * y
    return _nan_stays(x, y * _polynomial(square, numerator) / _polynomial(square, denominator))
