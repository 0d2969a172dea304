"""Comparing what came out with the reference, element by element: each has its own allowed error.

Strict about NaN and infinity in either direction: each counts for its own place and excuses no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from tuning.measure.judging.tolerance import WHOLE
from tuning.measure.outcome import Status

_BLOCK = 1 << 15
"""Elements compared at a time: their differences stay in the cache."""
_NEAR_LIMIT = 0.5
"""From this share of a type's largest number on, infinity is right too: a step on the way may overflow (e^x
before it is halved for a cosh)."""


@dataclass(frozen=True, eq=False)
class Reference:
    """One output: the value (float64 where the output is floating) and what each element may differ by
    (float32 or float64, infinite where nothing is known); None where all must be exact. Of a part only these
    ``places`` along ``axis`` are compared (:mod:`tuning.measure.judging.parts`)."""

    value: np.ndarray
    allowed: np.ndarray | None = None
    axis: int = 0
    places: np.ndarray | None = None


@dataclass(frozen=True)
class CheckResult:
    """``error``: the worst |difference| of any element as a share of what is allowed there; infinite where
    there is no difference to speak of (an exact value missed, NaN)."""

    status: Status = Status.OK
    detail: str = ""
    error: float = 0.0


def compare(got: Sequence[np.ndarray], wanted: Sequence[Reference], tolerance: float = WHOLE) -> CheckResult:
    """All outputs of one run. ``tolerance``: the largest share of what is allowed that passes."""
    worst = 0.0
    for index, (one, reference) in enumerate(zip(got, wanted, strict=True)):
        if reference.places is not None:
            one = one.take(reference.places, reference.axis)
        verdict = _compare_one(one, reference, tolerance, f"output {index}")
        if verdict.status is not Status.OK:
            return verdict
        worst = max(worst, verdict.error)
    return CheckResult(error=worst)


def _compare_one(got: np.ndarray, reference: Reference, tolerance: float, name: str) -> CheckResult:
    if got.dtype.kind in "biu":
        return _compare_whole_numbers(got, reference, name)
    worst, doubtful = 0.0, []
    for one, value, allowed in _blocks(got, reference):
        share = _share(one, value, allowed)
        if share <= tolerance:
            worst = max(worst, share)
        else:  # NaN too
            doubtful.append((one, value, allowed))
    if not doubtful:
        return CheckResult(error=worst)
    return _look_closely(doubtful, tolerance, worst, name, got.size)


Block = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def _blocks(got: np.ndarray, reference: Reference) -> Iterator[Block]:
    flat, values = got.reshape(-1), reference.value.reshape(-1)
    allowed = None if reference.allowed is None else reference.allowed.reshape(-1)
    if values.size != flat.size:
        raise ValueError(f"{flat.size} elements against {values.size}")
    for start in range(0, flat.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        yield flat[part], values[part], None if allowed is None else allowed[part]


def _share(got: np.ndarray, wanted: np.ndarray, allowed: np.ndarray | None) -> float:
    """The worst share of what is allowed; NaN or infinite where a block has to be looked at closely."""
    if allowed is None:
        with np.errstate(over="ignore"):
            return 0.0 if np.array_equal(got, wanted.astype(got.dtype, copy=False)) else float("inf")
    with np.errstate(all="ignore"):
        if got.dtype.kind == "c":
            difference = np.abs(got - wanted)
        else:
            difference = np.subtract(got, wanted, dtype=np.float64)
            np.abs(difference, out=difference)
        difference /= allowed
        return float(difference.max())


def _look_closely(
    blocks: Sequence[Block], tolerance: float, worst: float, name: str, size: int
) -> CheckResult:
    not_finite = wrong = 0
    examples: dict[Status, str] = {}
    for block in blocks:
        shares, agree = _verdicts(*block)
        off = ~agree & ~(shares <= tolerance)
        odd = off & (np.isfinite(block[0]) != np.isfinite(block[1]))
        not_finite += int(np.count_nonzero(odd))
        wrong += int(np.count_nonzero(off & ~odd))
        for status, found in ((Status.NOT_FINITE, odd), (Status.WRONG_RESULT, off & ~odd)):
            if status not in examples and found.any():
                examples[status] = _example(block, int(np.argmax(found)))
        known = np.where(np.isnan(shares), np.inf, shares)[~agree]
        worst = max(worst, float(np.max(known, initial=0.0)))
    if not_finite > wrong:  # what most of them are: a zero where NaN was wanted is one wrong zero among many
        why = f"{not_finite} of {size} elements are not finite where the reference is, or the other way round"
        example = examples[Status.NOT_FINITE]
        return CheckResult(Status.NOT_FINITE, f"{name}: {why} ({example})", float("inf"))
    if wrong:
        why = f"{not_finite + wrong} of {size} elements are wrong"
        example = examples[Status.WRONG_RESULT]
        return CheckResult(Status.WRONG_RESULT, f"{name}: {why} ({example})", worst)
    return CheckResult(error=worst)


def _example(block: Block, place: int) -> str:
    got, wanted, allowed = block
    room = "exactly" if allowed is None else f"± {allowed[place]:.3g}"
    return f"one is {got[place]:.9g}, and should be {wanted[place]:.9g} {room}"


def _verdicts(
    got: np.ndarray, wanted: np.ndarray, allowed: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Each element's share of what is allowed, and whether it is right whatever that says."""
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    limit = _largest(got.dtype)
    with np.errstate(all="ignore"):
        exact = wanted.astype(got.dtype).astype(wide)
        one, other = got.astype(wide), wanted.astype(wide)
        room = np.zeros(1) if allowed is None else allowed.astype(np.float64)
        difference = np.abs(one - other)
        shares = np.where(one == exact, 0.0, difference / room)
        agree = (np.isnan(one) & np.isnan(other)) | (one == other) | (one == exact) | np.isposinf(room)
        if allowed is not None:
            # The reference may hold what the output's own type cannot: near its limit infinity is right too,
            # and beyond it the largest number.
            alike = np.sign(one.real) == np.sign(other.real)
            agree |= np.isinf(one) & alike & (np.abs(other) + room > _NEAR_LIMIT * limit)
            agree |= (np.abs(one) > 0.9 * limit) & alike & (np.abs(other) > limit)
    return shares, agree


def _compare_whole_numbers(got: np.ndarray, reference: Reference, name: str) -> CheckResult:
    off = got != reference.value.astype(got.dtype)
    if reference.allowed is not None and off.any():
        apart = np.abs(got.astype(np.float64) - reference.value.astype(np.float64))
        off &= ~(apart <= reference.allowed)  # where a rounding decides, either number is right
    if wrong := int(np.count_nonzero(off)):
        return CheckResult(
            Status.WRONG_RESULT, f"{name}: {wrong} of {got.size} elements differ", float("inf")
        )
    return CheckResult()


@cache
def _largest(dtype: np.dtype) -> float:
    if dtype.kind == "f" and dtype.itemsize in (2, 4, 8):
        return float(np.finfo(dtype).max)
    if dtype.kind == "c":
        return float(np.finfo(np.float32 if dtype.itemsize == 8 else np.float64).max)
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)
