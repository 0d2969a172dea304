"""Fresh random inputs: several value distributions, from seeds that only the parent knows."""

from __future__ import annotations

import numpy as np

from opatlas.identity import Operator, Value
from opatlas.load.dtypes import numpy_dtype
from tuning.measure.judging.domain import Domain
from tuning.measure.judging.domains import domains
from tuning.measure.judging.drawing.dealing import Dealer, Hand
from tuning.measure.judging.drawing.drawn import draw_all_kinds
from tuning.measure.judging.drawing.relating import relate
from tuning.measure.judging.drawing.whole import draw_whole
from tuning.measure.judging.placing import boxes, integers
from tuning.measure.shared_tensors import span

TIMED = ("normal", "uniform")
DISTRIBUTIONS = (*TIMED, "strata", "sparse", "magnitudes")
"""A set of ``strata`` holds all kinds of values that the operator's inputs may have
(:mod:`tuning.measure.judging.drawing`): rows of each, or one kind throughout, dealt in turn. On the last
two a call takes the time that it takes on the timed ones."""


def make_constants(operator: Operator, hand: Hand) -> dict[int, np.ndarray]:
    """Flat spans of the constant inputs: rows of all kinds that weights have, scaled by fan-in."""
    ruled = domains(operator)
    return {
        number: _of_all_kinds(operator, number, ruled[number], hand, constant=True)
        for number in operator.constant_inputs
    }


def make_runtime(
    operator: Operator, distribution: str, rng: np.random.Generator, hand: Hand | None = None
) -> dict[int, np.ndarray]:
    """Flat spans of the runtime inputs. ``hand``: what a set of ``strata`` is dealt, beside others."""
    ruled = domains(operator)
    if distribution != "strata":
        return {
            number: make_span(operator.inputs[number], ruled[number], distribution, rng)
            for number in operator.runtime_inputs
        }
    hand = hand or Dealer(rng).hand(rng)
    made = {
        number: _of_all_kinds(operator, number, ruled[number], hand) for number in operator.runtime_inputs
    }
    relate(operator, made, rng)
    return made


def _of_all_kinds(
    operator: Operator, number: int, domain: Domain, hand: Hand, *, constant: bool = False
) -> np.ndarray:
    value = operator.inputs[number]
    dtype = numpy_dtype(value.dtype)
    if dtype.kind in "biu":
        return draw_whole(operator, number, domain, hand)
    whole = operator.output_values[0].dtype.startswith(("int", "uint"))
    if "Pow" in operator.op_types and whole:  # to broken powers: a rounding decides
        return make_span(value, domain, "normal", hand.rng)
    if dtype.kind == "c" or domain.kind in ("boxes", "boxes_of_images"):
        return make_span(value, domain, "normal", hand.rng)
    return draw_all_kinds(operator, number, domain, hand, constant=constant)


def make_span(value: Value, domain: Domain, distribution: str, rng: np.random.Generator) -> np.ndarray:
    """The flat elements behind one input; a strided one also gets values in its gaps.

    Raises :class:`opatlas.errors.LoadError` for element types that no array can have.
    """
    dtype = numpy_dtype(value.dtype)
    count = span(value.shape, value.strides)
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind in "iu":
        return integers(value, domain, dtype, count, rng)
    if domain.kind in ("boxes", "boxes_of_images"):
        return boxes(domain, count, rng).astype(dtype)
    if dtype.kind == "c":
        parts = rng.standard_normal((2, count), np.float32)
        return (parts[0] + 1j * parts[1]).astype(dtype)
    wide = np.float64 if dtype == np.float64 else np.float32
    values = _floats(domain, distribution, count, rng, wide, narrow=dtype.itemsize < 4)
    return values.astype(dtype, copy=False)


def _floats(
    domain: Domain,
    distribution: str,
    count: int,
    rng: np.random.Generator,
    wide: type[np.floating],
    *,
    narrow: bool,
) -> np.ndarray:
    """``narrow``: the values end in a type with little range, so magnitudes stay near one."""
    if domain.kind == "between":
        low, high = domain.bounds
        return rng.random(count, wide) * wide(high - low) + wide(low)
    if domain.kind in ("positive", "above_one", "near_one", "unit", "grid", "scale", "nonzero"):
        uniform = rng.random(count, wide)
        if domain.kind == "nonzero":
            return (uniform + wide(0.5)) * rng.choice(np.array([-1, 1], wide), count)
        least, most = {
            "positive": (0.25, 2.0),
            "above_one": (1.05, 3.0),
            "near_one": (0.95, 1.05),
            "unit": (-0.95, 0.95),
            "grid": (-0.95, 0.95),
            "scale": (0.01, 0.05),
        }[domain.kind]
        return uniform * wide(most - least) + wide(least)
    if distribution == "uniform":
        values = rng.random(count, wide) * wide(2) - wide(1)
    else:
        values = rng.standard_normal(count, wide)
    if distribution == "sparse":
        values[rng.random(count, np.float32) < 0.7] = 0
    elif distribution == "magnitudes":
        reach = 2 if narrow else 8
        values *= np.exp2(rng.integers(-reach, reach + 1, count)).astype(wide)
    return values
