"""Resize in numbers: the rows for each element, and their weights. NumPy only; used by every lowering."""

from __future__ import annotations

from typing import Any

import numpy as np

from opatlas.load.torch.ops.site import TorchSite, Unsupported

Pass = tuple[int, np.ndarray, np.ndarray | None]
"""An axis, the rows [elements, taps] of its elements, and their weights (None: rows as they are)."""


def passes_of(site: TorchSite) -> list[Pass]:
    """The axes that change, each on its own. Raises :class:`Unsupported`."""
    passes: list[Pass] = []
    for axis, (size, made) in enumerate(zip(site.shape(0), site.output().shape, strict=True)):
        sources = _sources(site, axis, size, made)
        if size != made or not np.array_equal(sources, np.arange(size)):
            taps = _filtered if site.flag("antialias") else _taps
            passes.append((axis, *taps(site, sources, size, scales_of(site)[axis])))
    return passes


def outside_of(site: TorchSite) -> list[tuple[int, np.ndarray]]:
    """Elements of each axis outside the input, for which a crop takes another value."""
    if not is_crop(site):
        return []
    found = []
    for axis, (size, made) in enumerate(zip(site.shape(0), site.output().shape, strict=True)):
        sources = _sources(site, axis, size, made)
        beyond = (sources < 0) | (sources > size - 1)
        if beyond.any():
            found.append((axis, beyond))
    return found


def is_crop(site: TorchSite) -> bool:
    """Whether a region of the input is resized, which may reach beyond it."""
    return bool(site.attrs["coordinate_transformation_mode"] == "tf_crop_and_resize")


def scales_of(site: TorchSite) -> list[float]:
    """The scale of every axis. Sizes are given as ratios, the same for all axes if the aspect ratio is
    kept."""
    shape, made = site.shape(0), site.output().shape
    ratios = [new / old for old, new in zip(shape, made, strict=True)]
    if site.has(2) and (given := site.content(2)).size:  # type: ignore[union-attr]
        chosen = [float(scale) for scale in given.reshape(-1)]  # type: ignore[union-attr]
    elif (policy := site.attrs.get("keep_aspect_ratio_policy", "stretch")) == "stretch":
        return ratios
    else:
        asked = [size / shape[axis] for axis, size in zip(_axes(site), site.numbers(3), strict=True)]
        chosen = [min(asked) if policy == "not_larger" else max(asked)] * len(asked)
    scales = [1.0] * len(shape)
    for axis, scale in zip(_axes(site), chosen, strict=True):
        scales[axis] = scale
    return scales


def _axes(site: TorchSite) -> list[int]:
    rank = site.rank()
    return [int(axis) % rank for axis in site.attrs.get("axes") or range(rank)]


def _sources(site: TorchSite, axis: int, size: int, made: int) -> np.ndarray:
    """The input position of each output element, in elements (ONNX's coordinate transformations)."""
    place = site.attrs["coordinate_transformation_mode"]
    # In float32 as ONNX Runtime has them, where a rounding decides which row is the nearest.
    kind: Any = np.float32 if site.attrs["mode"] == "nearest" else np.float64
    scale, half = kind(scales_of(site)[axis]), kind(0.5)
    positions = np.arange(made).astype(kind)
    if place == "asymmetric":
        return positions / scale
    if place == "align_corners":
        return positions * kind(size - 1) / kind(made - 1) if made > 1 else positions * 0
    if place == "tf_crop_and_resize":
        return _cropped(site, axis, positions, size, made)
    if place == "pytorch_half_pixel" and made == 1:
        return positions * 0
    if place in ("half_pixel", "pytorch_half_pixel"):
        return (positions + half) / scale - half
    if place == "half_pixel_symmetric":
        centre = kind(size) * half * (1 - kind(made) / (scale * kind(size)))
        return centre + (positions + half) / scale - half
    raise Unsupported(f"Resize with coordinates {place}")


def _cropped(site: TorchSite, axis: int, positions: np.ndarray, size: int, made: int) -> np.ndarray:
    """Of a region, which is given in shares of the input, all starts first."""
    kind: Any = positions.dtype.type
    axes, region = _axes(site), site.content(1)
    assert region is not None, "a crop has its region"
    if axis not in axes:
        return positions
    start, end = (kind(region.reshape(-1)[axes.index(axis) + past]) for past in (0, len(axes)))
    last = kind(size - 1)
    if made == 1:
        return positions + kind(0.5) * (start + end) * last
    return start * last + positions * (end - start) * last / kind(made - 1)


def _taps(
    site: TorchSite, sources: np.ndarray, size: int, scale: float
) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows [elements, taps] that each element is made of, and their weights."""
    if site.attrs["mode"] == "nearest":
        return np.clip(_nearest(site, sources), 0, size - 1)[:, None].astype(np.int64), None
    base = np.floor(sources)
    part = sources - base
    if site.attrs["mode"] == "linear":
        offsets, weights = np.array([0, 1]), np.stack([1 - part, part], 1)
    else:
        offsets = np.array([-1, 0, 1, 2])
        weights = _cubic(part[:, None] - offsets, site.number("cubic_coeff_a"))
    rows = base[:, None].astype(np.int64) + offsets
    return _inside(site, rows, weights, size)


def _filtered(site: TorchSite, sources: np.ndarray, size: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The same with antialias: where the image shrinks, the weights' curve is as much wider."""
    wider = max(1.0, 1.0 / float(np.float32(scale)))
    linear = site.attrs["mode"] == "linear"
    reach = (1 if linear else 2) * wider
    first = np.floor(sources - reach + 1).astype(np.int64)
    rows = first[:, None] + np.arange(int(np.ceil(2 * reach)) + 1)
    apart = (rows - sources[:, None]) / wider
    weights = np.maximum(0, 1 - np.abs(apart)) if linear else _cubic(apart, site.number("cubic_coeff_a"))
    weights = np.where(rows < np.floor(sources + reach + 1)[:, None], weights, 0)
    return _inside(site, rows, weights / weights.sum(1, keepdims=True), size)


def _inside(
    site: TorchSite, rows: np.ndarray, weights: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows beyond the edge are the edge's, or count for nothing."""
    if site.flag("exclude_outside"):
        weights = np.where((rows < 0) | (rows >= size), 0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(rows, 0, size - 1), weights


def _nearest(site: TorchSite, sources: np.ndarray) -> np.ndarray:
    rounding = site.attrs["nearest_mode"]
    if rounding == "floor":
        return np.floor(sources)
    if rounding == "ceil":
        return np.ceil(sources)
    if rounding == "round_prefer_ceil":
        return np.floor(sources + 0.5)
    return np.ceil(sources - 0.5)


def _cubic(apart: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution weights of neighbours so far away."""
    x = np.abs(apart)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))
