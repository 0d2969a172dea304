"""Functions that keep their digits where the short formula loses them. All in float32."""

import triton
import triton.language as tl

_NEAR = tl.constexpr(0.25)
"""Below this, series; above it, the short formula loses less than two bits."""


@triton.jit
def expm1(x):
    """e^x - 1."""
    series = 1.0 / 720 + x / 5040
    series = 1.0 / 120 + x * series
    series = 1.0 / 24 + x * series
    series = 1.0 / 6 + x * series
    series = x + x * x * (0.5 + x * series)
    return tl.where(tl.abs(x) < _NEAR, series, tl.exp(x) - 1.0)


@triton.jit
def log1p(x):
    """ln(1 + x), for x from 0 to 1."""
    whole = 1.0 + x
    # What adding 1 cost is made good by the same quotient (Kahan).
    return tl.where(whole == 1.0, x, tl.log(whole) * (x / tl.where(whole == 1.0, 1.0, whole - 1.0)))


@triton.jit
def tanh(x):
    square = x * x
    series = -17.0 / 315 + square * (62.0 / 2835)
    series = 2.0 / 15 + square * series
    series = -1.0 / 3 + square * series
    series = x + x * square * series
    small = tl.exp(-2.0 * tl.abs(x))
    quotient = (1.0 - small) / (1.0 + small)
    return tl.where(tl.abs(x) < _NEAR, series, tl.where(x < 0, -quotient, quotient))


@triton.jit
def softplus(x):
    """ln(1 + e^x)."""
    return tl.where(x > 0, x, 0.0) + log1p(tl.exp(-tl.abs(x)))


@triton.jit
def sigmoid(x):
    """Of a large negative x, too: e^-x may be infinite, and 1 over it 0."""
    return 1.0 / (1.0 + tl.exp(-x))
