"""Random whole numbers and boxes, within what an input may be."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from opatlas.identity import Value
from tuning.measure.judging.domain import Domain

_BACKWARDS = 0.25
"""The share of indices that count from the end, where they may."""
_IGNORED = 0.125
"""The share of labels that are ignored, where some may be."""
_LARGEST_DIVISOR = 15


def integers(
    value: Value, domain: Domain, dtype: np.dtype, count: int, rng: np.random.Generator
) -> np.ndarray:
    """``count`` whole numbers of one input, flat."""
    if domain.kind in ("index", "unique", "tuple", "unique_tuple", "in_plane"):
        return _indices(value, domain, count, rng).astype(dtype).reshape(-1)
    if domain.kind in ("length", "between"):
        low, high = (1, max(1, domain.bounds[0])) if domain.kind == "length" else domain.bounds
        return rng.integers(low, high + 1, count).astype(dtype)
    if domain.kind == "nonzero":
        return divisors(rng.integers(1, _LARGEST_DIVISOR + 1, count), dtype, rng)
    if domain.kind == "positive":
        return rng.integers(1, _LARGEST_DIVISOR + 1, count).astype(dtype)
    if dtype.itemsize == 1:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, count).astype(dtype)
    return rng.integers(0 if dtype.kind == "u" else -64, 65, count).astype(dtype)


def divisors(made: np.ndarray, dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """Positive ones, with both signs where the type has two; but not −1 of bytes: −128 ÷ −1 is no byte."""
    if dtype.kind == "i":
        made = made.astype(np.int64) * rng.choice([-1, 1], made.size)
        if dtype.itemsize == 1:
            made[made == -1] = 1
    return made.astype(dtype)


def marked(made: np.ndarray, domain: Domain, rng: np.random.Generator) -> np.ndarray:
    """Indices, some of which are ignored, or count from the end, where they may."""
    if domain.ignored is not None:
        first, rest = made[:1], made[1:]  # never all: a mean of none is none
        first[first == domain.ignored] = (domain.ignored + 1) % domain.bounds[0]
        rest[rng.random(rest.size) < _IGNORED] = domain.ignored
    elif domain.backwards:
        extents = np.array(domain.bounds if "tuple" in domain.kind else domain.bounds[:1])
        made = np.where(rng.random(made.shape) < _BACKWARDS, made - extents, made)
    return made


def _indices(value: Value, domain: Domain, count: int, rng: np.random.Generator) -> np.ndarray:
    if value.strides is not None and domain.kind != "index":
        return _strided(value, domain, count, rng)
    if domain.kind == "index":
        made = rng.integers(0, max(1, domain.bounds[0]), count)
    elif domain.kind == "unique":
        made = _unique_along(value.shape, domain, rng)
    elif domain.kind == "in_plane":
        return _in_planes(value.shape, domain, rng)
    else:
        made = _tuples(value.shape, domain, rng)
    return marked(made, domain, rng)


def _strided(value: Value, domain: Domain, count: int, rng: np.random.Generator) -> np.ndarray:
    """What its shape would get, at its places; zeros in the gaps."""
    assert value.strides is not None
    places = np.arange(count)
    steps = [places.itemsize * stride for stride in value.strides]
    places = np.lib.stride_tricks.as_strided(places, value.shape, steps)
    if "tuple" in domain.kind and len(np.unique(places)) < places.size:
        # An element stands in several columns, and must be within the extents of each.
        return rng.integers(0, max(1, min(domain.bounds)), count)
    flat = np.zeros(count, np.int64)
    made = _indices(replace(value, strides=None), domain, places.size, rng)
    flat[places] = made.reshape(value.shape)
    return flat


def _unique_along(shape: tuple[int, ...], domain: Domain, rng: np.random.Generator) -> np.ndarray:
    """Indices that differ along ``axis``: with repeated ones the result depends on the order of writes."""
    longer = list(shape)
    longer[domain.axis] = max(domain.bounds[0], shape[domain.axis])
    order = np.argsort(rng.random(longer), axis=domain.axis)
    return np.take(order, range(shape[domain.axis]), axis=domain.axis) % max(1, domain.bounds[0])


def _in_planes(shape: tuple[int, ...], domain: Domain, rng: np.random.Generator) -> np.ndarray:
    """Places in the whole output, those of one plane within that plane and all different."""
    elements, places = domain.bounds
    planes = prod(shape[:2])
    order = np.argsort(rng.random((planes, max(places, elements))), axis=1)[:, :elements]
    return order % places + np.arange(planes)[:, None] * places


def _tuples(shape: tuple[int, ...], domain: Domain, rng: np.random.Generator) -> np.ndarray:
    rows, places = prod(shape[:-1]), max(1, prod(domain.bounds))
    if domain.kind == "unique_tuple" and rows <= places:
        flat = rng.choice(places, rows, replace=False)
    else:
        flat = rng.integers(0, places, rows)
    return np.stack(np.unravel_index(flat, domain.bounds), axis=-1).reshape(shape)


_OUTSIDE = 0.1
"""How far boxes may reach beyond the image, as a share of it."""


def boxes(domain: Domain, count: int, rng: np.random.Generator) -> np.ndarray:
    """Left, top, right, bottom of each box, flat; before them, where asked for, the image's number."""
    *images, height, width = domain.bounds
    columns = 5 if images else 4
    rows = -(-count // columns)
    extents = np.array([width, height], np.float64)
    corners = rng.uniform(-_OUTSIDE, 1 + _OUTSIDE, (rows, 2, 2)) * extents
    made = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    if images:
        # Its corners are rounded to whole elements: halves would go either way.
        made = np.concatenate([rng.integers(0, images[0], (rows, 1)), np.round(made)], axis=1)
    return made.reshape(-1)[:count]
