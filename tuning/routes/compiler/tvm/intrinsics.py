"""exp, tanh, erf and powers that stay in vector registers.

LLVM turns a vector ``llvm.exp`` into one call of libm per lane; a GELU over 400,000 elements then takes
1.1 ms instead of 0.04 ms. These replacements are polynomials that keep what strict float32 promises: errors
of a few units in the last place, infinities, NaN and gradual underflow as libm has them. Other types keep
libm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, tirx

from tuning.routes.compiler import polynomials


def register() -> None:
    """Replace TVM's lowering rules for the ``llvm`` target in this process."""
    rules: dict[str, Callable[..., Any]] = {"exp": _exp, "pow": _power}
    rules |= {"tanh": _odd(*polynomials.TANH), "erf": _odd(*polynomials.ERF)}
    for name, rule in rules.items():
        before = ir.Op.get(f"tirx.{name}").get_attr("llvm.FLowerIntrinsic")
        tirx.register_intrin_lowering(f"tirx.{name}", target="llvm", f=_for_float32(rule, before), level=99)


def _for_float32(rule: Callable[..., Any], before: Any) -> Callable[[Any], Any]:
    """``rule`` for float32 and its vectors; what TVM did ``before`` for everything else."""

    def lower(call: Any) -> Any:
        replaced = rule(*call.args) if str(call.ty.dtype).startswith("float32") else None
        if replaced is not None:
            return replaced
        return call if before is None else before(call)

    return lower


def _like(value: float, x: Any, dtype: str = "float32") -> Any:
    """A constant with as many lanes as ``x``."""
    lanes = str(x.ty.dtype).partition("x")[2]
    one = tirx.const(value, dtype)
    return tirx.Broadcast(one, int(lanes)) if lanes else one


def _named(x: Any, body: Callable[[Any], Any]) -> Any:
    """Compute ``x`` once and use it many times."""
    name = tirx.Var("x", x.ty)
    return tirx.Let(name, x, body(name))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    result = _like(coefficients[0], x)
    for coefficient in coefficients[1:]:
        result = result * x + _like(coefficient, x)
    return result


def _clamped(x: Any, low: float, high: float) -> Any:
    """``x`` within limits; NaN stays NaN (both comparisons fail; TVM's min and max would lose it)."""
    top, bottom = _like(high, x), _like(low, x)
    return tirx.Select(x > top, top, tirx.Select(x < bottom, bottom, x))


def _exp(x: Any) -> Any:
    def body(x: Any) -> Any:
        # Beyond these limits the result is 0 or infinity anyway, and 2**n is made in two halves, so that
        # both ends (and the subnormal numbers before 0) come out by themselves.
        return _named(_clamped(x, -104.0, 89.0), reduced)

    def reduced(x: Any) -> Any:
        return _named(
            tirx.floor(x * _like(polynomials.LOG2_E, x) + _like(0.5, x)),
            lambda n: _named(
                x - n * _like(polynomials.LN2_HIGH, x) - n * _like(polynomials.LN2_LOW, x),
                lambda r: scaled((_polynomial(r, polynomials.EXP) * r) * r + r + _like(1.0, x), n),
            ),
        )

    def scaled(value: Any, n: Any) -> Any:
        lanes = str(n.ty.dtype).partition("x")[2]
        whole = tirx.Cast("int32" + (f"x{lanes}" if lanes else ""), n)

        def halves(whole: Any) -> Any:
            half = whole >> _like(1, n, "int32")
            return value * _power_of_two(half, n) * _power_of_two(whole - half, n)

        return _named(whole, halves)

    return _named(x, body)


def _power_of_two(exponent: Any, like: Any) -> Any:
    bits = (exponent + _like(127, like, "int32")) << _like(23, like, "int32")
    return tirx.reinterpret(str(like.ty.dtype), bits)


def _odd(end: float, numerator: Sequence[float], denominator: Sequence[float]) -> Callable[[Any], Any]:
    """``x`` times a rational function of ``x``², flat beyond ``end``."""

    def rational(x: Any) -> Any:
        return _named(x * x, lambda s: x * _polynomial(s, numerator) / _polynomial(s, denominator))

    return lambda x: _named(x, lambda named: _named(_clamped(named, -end, end), rational))


def _power(x: Any, exponent: Any) -> Any | None:
    """Products and roots for the exponents that models use; None (libm) for others."""
    value = exponent.value if isinstance(exponent, tirx.Broadcast) else exponent
    constant = float(value.value) if isinstance(value, tirx.FloatImm) else None
    if constant in (0.5, 0.75):
        # sqrt(-0.0) is -0.0 where pow gives 0; x >= 0 wherever the root is real.
        def rooted(root: Any) -> Any:
            return root * tirx.sqrt(root) if constant == 0.75 else root

        return _named(tirx.sqrt(x), rooted)
    if constant in (2.0, 3.0):
        return _named(x, lambda v: v * v if constant == 2.0 else v * v * v)
    return None
