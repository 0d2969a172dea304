"""Comparing what came out with the reference. Strict about NaN and infinity, in either direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuning.measure.outcome import Status


@dataclass(frozen=True)
class CheckResult:
    """``error`` is the largest |difference| ÷ scale seen, the scale being the reference's largest finite
    magnitude in that output (at least its type's smallest normal number)."""

    status: Status = Status.OK
    detail: str = ""
    error: float = 0.0


def compare(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float) -> CheckResult:
    """All outputs of one run. ``wanted`` may be wider than ``got``: float64 references of float32 outputs."""
    worst = 0.0
    for index, (one, reference) in enumerate(zip(got, wanted, strict=True)):
        verdict = _compare_one(one, reference, tolerance, f"output {index}")
        if verdict.status is not Status.OK:
            return verdict
        worst = max(worst, verdict.error)
    return CheckResult(error=worst)


def _compare_one(got: np.ndarray, reference: np.ndarray, tolerance: float, name: str) -> CheckResult:
    if got.size == 0:
        return CheckResult()
    if got.dtype.kind in "biu":
        wrong = int(np.count_nonzero(got != reference.astype(got.dtype)))
        if wrong:
            return CheckResult(
                Status.WRONG_RESULT, f"{name}: {wrong} of {got.size} elements differ", float("inf")
            )
        return CheckResult()
    limit = _largest(got.dtype)
    if (quick := _quick_error(got, reference, limit, tolerance)) is not None:
        return CheckResult(error=quick)
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    one, other = got.astype(wide), reference.astype(wide)
    # The reference may hold what the output's own type cannot: near its limit either answer is right.
    borderline = np.isfinite(other) & (np.abs(other) > 0.9 * limit)
    other_finite = np.isfinite(other) & ~borderline
    with np.errstate(invalid="ignore"):
        same_special = np.isfinite(one) | (np.isnan(one) & np.isnan(other)) | (one == other)
        agree = np.where(other_finite, np.isfinite(one), same_special & ~np.isfinite(one))
    agree |= borderline & (np.abs(one) > 0.5 * limit) & (np.sign(one.real) == np.sign(other.real))
    if not agree.all():
        wrong = int(got.size - np.count_nonzero(agree))
        example = one.reshape(-1)[int(np.argmin(agree.reshape(-1)))]
        return CheckResult(
            Status.NOT_FINITE,
            f"{name}: {wrong} of {got.size} elements are not finite where the reference is, or the other way "
            f"round (one is {example})",
            float("inf"),
        )
    if not other_finite.any():
        return CheckResult()
    scale = max(float(np.abs(other[other_finite]).max()), float(np.finfo(np.float32).tiny))
    error = float(np.abs(one[other_finite] - other[other_finite]).max()) / scale
    if error > tolerance:
        return CheckResult(
            Status.WRONG_RESULT, f"{name}: error {error:.3g} of its scale; at most {tolerance:.3g}", error
        )
    return CheckResult(error=error)


def _quick_error(got: np.ndarray, reference: np.ndarray, limit: float, tolerance: float) -> float | None:
    """The error where everything is finite, far from the type's limit and near enough, in a third of the
    passes; None where anything is not, and has to be looked at closely."""
    if got.dtype.kind != "f" or reference.dtype != np.float64:
        return None
    scale = max(float(reference.max()), -float(reference.min()))
    if not scale <= 0.9 * limit:  # NaN too
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.subtract(got, reference, dtype=np.float64)
    error = max(float(difference.max()), -float(difference.min()))
    error /= max(scale, float(np.finfo(np.float32).tiny))
    return error if error <= tolerance else None


def _largest(dtype: np.dtype) -> float:
    if dtype.kind == "f" and dtype.itemsize in (2, 4, 8):
        return float(np.finfo(dtype).max)
    if dtype.kind == "c":
        return float(np.finfo(np.float32 if dtype.itemsize == 8 else np.float64).max)
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max)
