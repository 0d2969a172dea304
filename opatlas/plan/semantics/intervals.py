"""The numbers that a value may have: an interval, and whether NaN or infinities occur. PURE."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

NAN, PLUS, MINUS = "nan", "+inf", "-inf"
NOTHING: frozenset[str] = frozenset()
SPECIAL = frozenset({NAN, PLUS, MINUS})
INFINITE = frozenset({PLUS, MINUS})


@dataclass(frozen=True)
class Interval:
    """Finite values from ``low`` to ``high`` (infinite bounds: any finite value), and those of NaN and the
    infinities that are in ``special``."""

    low: float = -math.inf
    high: float = math.inf
    special: frozenset[str] = NOTHING

    @property
    def has_zero(self) -> bool:
        return self.low <= 0 <= self.high

    @classmethod
    def of_array(cls, array: np.ndarray) -> Interval:
        """The interval of a constant; exact for whole numbers."""
        if array.dtype.kind in "biu":
            return cls(int(array.min()), int(array.max())) if array.size else cls(0, 0)
        low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
        if math.isfinite(low) and math.isfinite(high):
            return cls(low, high)
        wide = array.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        met = {NAN: np.isnan(wide), PLUS: wide == np.inf, MINUS: wide == -np.inf}
        special = frozenset(name for name, where in met.items() if where.any())
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        return cls(low, high, special)


ANY = Interval()
TRUTH = Interval(0, 1)


def union(given: Iterable[Interval]) -> Interval:
    found = list(given)
    special = NOTHING.union(*(one.special for one in found))
    return Interval(min(one.low for one in found), max(one.high for one in found), special)


def mixed(given: Iterable[Interval]) -> Interval:
    """Sums of products: any value, and NaN or infinities if an operand has any."""
    return Interval(special=SPECIAL if any(one.special for one in given) else NOTHING)


def added(one: Interval, other: Interval) -> Interval:
    return Interval(one.low + other.low, one.high + other.high, _sum_special(one, other))


def negated(one: Interval) -> Interval:
    other = {PLUS: MINUS, MINUS: PLUS, NAN: NAN}
    return Interval(-one.high, -one.low, frozenset(other[name] for name in one.special))


def _sum_special(one: Interval, other: Interval) -> frozenset[str]:
    both = one.special | other.special
    return both | {NAN} if both >= INFINITE else both


def multiplied(one: Interval, other: Interval) -> Interval:
    ends = [_times(a, b) for a in (one.low, one.high) for b in (other.low, other.high)]
    special = one.special | other.special
    if special & INFINITE:
        special = SPECIAL if one.has_zero or other.has_zero else special | INFINITE
    return Interval(min(ends), max(ends), special)


def _times(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


def squared(one: Interval) -> Interval:
    made = multiplied(one, one)
    low = 0.0 if one.has_zero else min(made.low, made.high)
    return Interval(
        max(low, 0.0), made.high, frozenset({PLUS if name == MINUS else name for name in one.special})
    )


def divided(one: Interval, other: Interval) -> Interval:
    """Quotients of floats."""
    if other.has_zero:
        return Interval(special=SPECIAL)
    near, far = sorted((1 / other.low, 1 / other.high))
    made = multiplied(replace(one, special=NOTHING), Interval(near, far))
    special = one.special | ({NAN} if other.special else NOTHING)
    return replace(made, special=special | (INFINITE if one.special & INFINITE else NOTHING))


def divided_whole(one: Interval, other: Interval) -> Interval:
    """Quotients of whole numbers: never larger than the dividend (except the smallest number by −1)."""
    largest = max(abs(one.low), abs(one.high))
    low = 0 if one.low >= 0 and other.low >= 0 else -largest
    return Interval(low, largest)


def remainder(one: Interval, other: Interval) -> Interval:
    largest = max(abs(other.low), abs(other.high))
    special = {NAN} if one.special or other.special else NOTHING
    return Interval(-largest, largest, frozenset(special)) if other.low < 0 or one.low < 0 else (
        Interval(0, min(largest, one.high), frozenset(special))
    )  # fmt: skip


def clipped(one: Interval, low: float, high: float) -> Interval:
    """The bounded value; infinities end at a bound if there is one."""
    gone = {name for name, bound in ((MINUS, low), (PLUS, high)) if math.isfinite(bound)}
    return Interval(
        min(max(one.low, low), high) if MINUS not in one.special or MINUS not in gone else low,
        max(min(one.high, high), low) if PLUS not in one.special or PLUS not in gone else high,
        one.special - gone,
    )


def monotone(function: Callable[[float], float], low: float, high: float) -> Callable[[Interval], Interval]:
    """The values of a function that grows from ``low`` to ``high``; says which infinities become finite."""

    def image(one: Interval) -> Interval:
        ends = [
            function(end) if math.isfinite(end) else bound
            for end, bound in ((one.low, low), (one.high, high))
        ]
        special = one.special & {NAN}
        return Interval(
            low if MINUS in one.special else ends[0], high if PLUS in one.special else ends[1], special
        )

    return image


def exponential(one: Interval) -> Interval:
    if one.high > 80:  # float32 overflows from 88.7 on
        return Interval(0.0, math.inf, (one.special - {MINUS}) | {PLUS})
    return Interval(0.0 if one.low < -80 or MINUS in one.special else math.exp(one.low), math.exp(one.high),
                    one.special - {MINUS})  # fmt: skip


def logarithm(one: Interval) -> Interval:
    special = one.special - {MINUS}
    special |= {MINUS} if one.has_zero else NOTHING
    special |= {NAN} if one.low < 0 or MINUS in one.special else NOTHING
    low = math.log(one.low) if one.low > 0 else -math.inf
    return Interval(low, math.log(one.high) if 0 < one.high < math.inf else math.inf, special)


def root(one: Interval) -> Interval:
    special = one.special - {MINUS}
    special |= {NAN} if one.low < 0 or MINUS in one.special else NOTHING
    return Interval(math.sqrt(max(one.low, 0.0)), math.sqrt(max(one.high, 0.0)), special)


def power(one: Interval, exponent: Interval) -> Interval:
    """No special values arise if the base is not negative, or the exponent is one whole number."""
    special = SPECIAL if one.special or exponent.special else NOTHING
    if exponent.low == exponent.high and float(exponent.low).is_integer() and exponent.low >= 0:
        even = exponent.low % 2 == 0
        if exponent.low == 2:
            return squared(one)
        return Interval(0.0 if even else -math.inf, math.inf, special)
    if one.low > 0 or (one.low >= 0 and exponent.low > 0):
        return Interval(0.0, math.inf, special)
    return Interval(special=SPECIAL)


def absolute(one: Interval) -> Interval:
    special = frozenset(PLUS if name == MINUS else name for name in one.special)
    low = 0 if one.has_zero else min(abs(one.low), abs(one.high))
    return Interval(low, max(abs(one.low), abs(one.high)), special)


def sums_of(one: Interval, count: float) -> Interval:
    """Sums of at most so many values."""
    low, high = (0 if end == 0 else end * count for end in (min(one.low, 0), max(one.high, 0)))
    # A sum of all is beyond each where all are on one side of nothing.
    low, high = (max(low, one.low) if one.low > 0 else low), (min(high, one.high) if one.high < 0 else high)
    return Interval(low, high, _sum_special(one, one))


LIMITS: Mapping[str, tuple[int, int]] = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max))
    for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
}
"""The limits of whole-number types."""
