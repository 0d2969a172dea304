"""exp, tanh, erf and sigmoid for float32 that stay in vector registers, with libm's infinities and NaN.

Halide's own ``tanh`` calls libm once per lane, and its ``exp`` and ``erf`` are not exact enough at the ends.
Coefficients: exp from Cephes' ``expf`` (Moshier), tanh and erf the rational approximations that Eigen and XLA
use for float32. Other types keep Halide's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuning.routes.compiler.halide.machine import import_halide

_LOG2_E = 1.44269504088896341
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP_END = 88.7228  # above it float32 has infinity only
_INFINITY_BITS = 0x7F800000
_EXP = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_TANH_P = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_ERF_P = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_Q = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)


def exp(x: Any) -> Any:
    """e to the ``x``.

    What has to hold for infinities and NaN is done on bits: under relaxed rules an arithmetic result may be
    assumed to be neither, and ``value * 2**64 * 2**64`` be reordered.
    """
    hl = import_halide()
    if not _single(x):
        return hl.exp(x)
    y = hl.clamp(x, _f(-104.0), _f(_EXP_END))
    n = hl.floor(y * _f(_LOG2_E) + _f(0.5))
    r = y - n * _f(_LN2_HIGH) - n * _f(_LN2_LOW)
    value = (_polynomial(r, _EXP) * r) * r + r + _f(1.0)
    whole = hl.cast(hl.Int(32), n)
    # Results below the normal numbers are made 2**64 times too large first: the product rounds them.
    tiny = whole < -60
    bits = _bits(value) + ((whole + hl.select(tiny, 64, 0)) << 23)
    made = hl.reinterpret(hl.Float(32), bits) * hl.select(tiny, _f(2.0**-64), _f(1.0))
    made = hl.select(x > _f(_EXP_END), hl.Expr(_INFINITY_BITS), _bits(made))
    return hl.reinterpret(hl.Float(32), hl.select(hl.is_nan(x), _bits(x), made))


def tanh(x: Any) -> Any:
    return _odd(x, 9.0, _TANH_P, _TANH_Q) if _single(x) else import_halide().tanh(x)


def erf(x: Any) -> Any:
    return _odd(x, 4.0, _ERF_P, _ERF_Q) if _single(x) else import_halide().erf(x)


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
