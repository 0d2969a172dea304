"""Resize: rows chosen, or mixed by weights known beforehand, axis by axis."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from opatlas.load.torch_ops.site import Site, Unsupported
from tuning.routes.compiler.xla.elementwise import Builder, Built


def _resize(site: Site) -> Built:
    mode = str(site.attrs.get("mode", "nearest"))
    if site.flag("antialias"):
        raise Unsupported("Resize with antialias")
    passes = []
    for axis, (size, made) in enumerate(zip(site.shape(0), site.output().shape, strict=True)):
        sources = _sources(site, axis, size, made)
        if size != made or not np.array_equal(sources, np.arange(size)):
            passes.append((axis, *_taps(site, mode, sources, size)))

    def run(x, *_):
        for axis, rows, weights in passes:
            x = _mixed(x, axis, rows, weights)
        return x

    return run


def _scale(site: Site, axis: int, size: int, made: int) -> float:
    """The scale of an axis; what is given as sizes is a ratio of sizes."""
    given = site.content(2)
    if given is None or not given.size:
        return made / size
    axes = [int(one) % site.rank() for one in site.attrs.get("axes") or range(site.rank())]
    return float(given.reshape(-1)[axes.index(axis)]) if axis in axes else 1.0


def _sources(site: Site, axis: int, size: int, made: int) -> np.ndarray:
    """Where in the input each output element lies, in elements (ONNX's coordinate transformations)."""
    place = str(site.attrs.get("coordinate_transformation_mode", "half_pixel"))
    scale = _scale(site, axis, size, made)
    positions = np.arange(made, dtype=np.float64)
    if place == "asymmetric":
        return positions / scale
    if place == "align_corners":
        return positions * (size - 1) / (made - 1) if made > 1 else positions * 0
    if place == "pytorch_half_pixel" and made == 1:
        return positions * 0
    if place in ("half_pixel", "pytorch_half_pixel"):
        return (positions + 0.5) / scale - 0.5
    if place == "half_pixel_symmetric":
        return size / 2 * (1 - made / (scale * size)) + (positions + 0.5) / scale - 0.5
    raise Unsupported(f"Resize with coordinates {place}")


def _taps(site: Site, mode: str, sources: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows [elements, taps] that each element is made of, and their weights (None: one row, as it is)."""
    if mode == "nearest":
        return np.clip(_nearest(site, sources), 0, size - 1)[:, None].astype(np.int64), None
    base = np.floor(sources)
    part = sources - base
    if mode == "linear":
        offsets, weights = np.array([0, 1]), np.stack([1 - part, part], 1)
    elif mode == "cubic":
        offsets = np.array([-1, 0, 1, 2])
        weights = _cubic(part, float(site.attrs.get("cubic_coeff_a", -0.75)))
    else:
        raise Unsupported(f"Resize in mode {mode}")
    rows = base[:, None].astype(np.int64) + offsets
    if site.flag("exclude_outside"):
        weights = np.where((rows < 0) | (rows >= size), 0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(rows, 0, size - 1), weights


def _nearest(site: Site, sources: np.ndarray) -> np.ndarray:
    rounding = str(site.attrs.get("nearest_mode", "round_prefer_floor"))
    if rounding in ("floor", "ceil"):
        return np.floor(sources) if rounding == "floor" else np.ceil(sources)
    return np.floor(sources + 0.5) if rounding == "round_prefer_ceil" else np.ceil(sources - 0.5)


def _cubic(part: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution weights of the four neighbours, by the distance from the second."""
    distances = np.stack([part + 1, part, 1 - part, 2 - part], 1)
    near = ((a + 2) * distances - (a + 3)) * distances**2 + 1
    far = ((a * distances - 5 * a) * distances + 8 * a) * distances - 4 * a
    return np.where(np.array([False, True, True, False]), near, far)


def _mixed(x: jax.Array, axis: int, rows: np.ndarray, weights: np.ndarray | None) -> jax.Array:
    if weights is None:
        return _picked(x, axis, rows[:, 0])
    shape = [-1 if index == axis else 1 for index in range(x.ndim)]
    parts = [
        _picked(x, axis, rows[:, tap]) * jnp.asarray(weights[:, tap], x.dtype).reshape(shape)
        for tap in range(rows.shape[1])
    ]
    return functools.reduce(jnp.add, parts)


def _picked(x: jax.Array, axis: int, rows: np.ndarray) -> jax.Array:
    times = rows.size // x.shape[axis]
    if times * x.shape[axis] == rows.size and np.array_equal(
        rows, np.repeat(np.arange(x.shape[axis]), times)
    ):
        return jnp.repeat(x, times, axis)  # whole scales need no table
    return jnp.take(x, jnp.asarray(rows, jnp.int32), axis, mode="clip")


BUILDERS: dict[str, Builder] = {"Resize": _resize}
