"""Fresh random inputs: several value distributions, from seeds that only the parent knows."""

from __future__ import annotations

import numpy as np

from opatlas.identity import Operator, Value
from opatlas.load.dtypes import numpy_dtype
from tuning.measure.judging.domain import Domain
from tuning.measure.judging.domains import domains
from tuning.measure.judging.placing import boxes, integers
from tuning.measure.judging.strata import OF_ARGUMENT, row_scales, spread_elements, strata_of
from tuning.measure.shared_tensors import span

DISTRIBUTIONS = ("normal", "uniform", "strata", "sparse", "magnitudes")
"""In this order; a cheap operator is checked on all, an expensive one on the first few. The first two are
timed as well; ``strata`` goes over the whole domain (:mod:`tuning.measure.judging.strata`)."""


def make_constants(operator: Operator, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """Flat spans of the constant inputs (weights scaled by fan-in, variances positive)."""
    ruled = domains(operator)
    return {
        number: make_span(operator.inputs[number], ruled[number], "normal", rng, constant=True)
        for number in operator.constant_inputs
    }


def make_runtime(operator: Operator, distribution: str, rng: np.random.Generator) -> dict[int, np.ndarray]:
    """Flat spans of the runtime inputs."""
    ruled = domains(operator)
    return {
        number: _wide(operator, number, ruled[number], rng)
        if distribution == "strata" and ruled[number].kind not in _NARROW
        else make_span(operator.inputs[number], ruled[number], distribution, rng)
        for number in operator.runtime_inputs
    }


_NARROW = frozenset(
    {"index", "unique", "tuple", "unique_tuple", "length", "in_plane", "boxes", "boxes_of_images", "scale"}
)


def _wide(operator: Operator, number: int, domain: Domain, rng: np.random.Generator) -> np.ndarray:
    """One input spread over its domain, where it is floating."""
    value = operator.inputs[number]
    dtype = numpy_dtype(value.dtype)
    floating = dtype.kind == "f" or value.dtype == "bfloat16"
    strata = strata_of(operator, number) if floating else None
    count = span(value.shape, value.strides)
    if strata is not None and (domain.kind in ("free", "between") or operator.op_types[0] in OF_ARGUMENT):
        return spread_elements(strata, dtype, count, rng).astype(dtype)
    plain = make_span(value, domain, "normal", rng)
    if (
        "Pow" in operator.op_types
        or not floating
        or domain.kind not in ("free", "weight")
        or value.strides is not None
    ):
        return plain
    scales = row_scales(operator, value, dtype, rng)
    return (plain.reshape(value.shape).astype(np.float64) * scales).reshape(-1).astype(dtype)


def make_span(
    value: Value, domain: Domain, distribution: str, rng: np.random.Generator, *, constant: bool = False
) -> np.ndarray:
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
    values = _floats(domain, distribution, count, rng, wide, constant, narrow=dtype.itemsize < 4)
    return values.astype(dtype, copy=False)


def _floats(
    domain: Domain,
    distribution: str,
    count: int,
    rng: np.random.Generator,
    wide: type[np.floating],
    constant: bool,
    *,
    narrow: bool,
) -> np.ndarray:
    """``narrow``: the values end in a type with little range, so magnitudes stay near one."""
    if domain.kind == "between":
        low, high = domain.bounds
        return rng.random(count, wide) * wide(high - low) + wide(low)
    if domain.kind in ("positive", "above_one", "near_one", "unit", "scale", "nonzero"):
        uniform = rng.random(count, wide)
        if domain.kind == "nonzero":
            return (uniform + wide(0.5)) * rng.choice(np.array([-1, 1], wide), count)
        least, most = {
            "positive": (0.25, 2.0),
            "above_one": (1.05, 3.0),
            "near_one": (0.95, 1.05),
            "unit": (-0.95, 0.95),
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
    if constant and domain.kind == "weight":
        values *= wide(domain.fan_in**-0.5)
    return values
