"""Whether two computations of the same references say the same: values, and what they may differ by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuning.measure.judging.check import Reference

CLOSE = 2.0**-10
"""Of what is allowed, that two values in float64 may be apart: an error of float64 is 2⁻²⁹ of one of float32,
and whoever computed in float32 is about a tenth of the allowance off."""
ALIKE = 0.01
"""What two allowances may differ by, as a share: parts of the analysis are taken in float32, whose sums
another implementation adds in another order."""


def disagreement(one: Sequence[Reference], known: Sequence[Reference]) -> str:
    """What is wrong with ``one`` if ``known`` is right; nothing where they agree."""
    for index, (got, wanted) in enumerate(zip(one, known, strict=True)):
        if why := _of_output(got, wanted):
            return f"output {index}: {why}"
    return ""


def _of_output(got: Reference, wanted: Reference) -> str:
    if (got.allowed is None) != (wanted.allowed is None):
        return "one has it exact and the other not"
    if wanted.allowed is None or got.allowed is None:
        off = ~_same(got.value, wanted.value)
        return _counted(off, "values are not the same")
    with np.errstate(all="ignore"):
        far = ~(np.abs(got.value - wanted.value) <= CLOSE * wanted.allowed.astype(np.float64))
        far &= ~_same(got.value, wanted.value)
        rooms = np.abs(got.allowed - wanted.allowed)
        other = ~(rooms <= ALIKE * wanted.allowed) & ~_same(got.allowed, wanted.allowed)
    return _counted(far, "values are apart") or _counted(other, "allowed errors are others")


def _same(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Equal, or both no number."""
    same: np.ndarray = (one == other) | ((one != one) & (other != other))
    return same


def _counted(off: np.ndarray, words: str) -> str:
    count = int(np.count_nonzero(off))
    return f"{count} of {off.size} {words}" if count else ""
