"""Resize in numbers: which rows an element is made of, and their weights. NumPy only: every lowering's."""

from __future__ import annotations

import numpy as np

from opatlas.load.torch.ops.site import TorchSite, Unsupported

Pass = tuple[int, np.ndarray, np.ndarray | None]
"""An axis, the rows [elements, taps] of its elements, and their weights (None: rows as they are)."""


def passes_of(site: TorchSite) -> list[Pass]:
    """The axes that change, each on its own. Raises :class:`Unsupported`."""
    mode = site.attrs["mode"]
    if site.flag("antialias"):
        raise Unsupported("Resize with antialias")
    passes: list[Pass] = []
    for axis, (size, made) in enumerate(zip(site.shape(0), site.output().shape, strict=True)):
        sources = _sources(site, axis, size, made)
        if size != made or not np.array_equal(sources, np.arange(size)):
            passes.append((axis, *_taps(site, mode, sources, size)))
    return passes


def scales_of(site: TorchSite) -> list[float]:
    """Scale of every axis; what is given as sizes is a ratio of sizes."""
    shape, made = site.shape(0), site.output().shape
    ratios = [new / old for old, new in zip(shape, made, strict=True)]
    if not site.has(2) or not (given := site.content(2)).size:  # type: ignore[union-attr]
        return ratios
    scales = [1.0] * len(shape)
    for axis, scale in zip(_axes(site), given.reshape(-1), strict=True):  # type: ignore[union-attr]
        scales[axis] = float(scale)
    return scales


def _axes(site: TorchSite) -> list[int]:
    rank = site.rank()
    return [int(axis) % rank for axis in site.attrs.get("axes") or range(rank)]


def _sources(site: TorchSite, axis: int, size: int, made: int) -> np.ndarray:
    """Where in the input each output element lies, in elements (ONNX's coordinate transformations)."""
    place = site.attrs["coordinate_transformation_mode"]
    scale = scales_of(site)[axis]
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
        exact = scale * size
        centre = size / 2 * (1 - made / exact)
        return centre + (positions + 0.5) / scale - 0.5
    raise Unsupported(f"Resize with coordinates {place}")


def _taps(site: TorchSite, mode: str, sources: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows [elements, taps] that each element is made of, and their weights."""
    if mode == "nearest":
        return np.clip(_nearest(site, sources), 0, size - 1)[:, None].astype(np.int64), None
    base = np.floor(sources)
    part = sources - base
    if mode == "linear":
        offsets, weights = np.array([0, 1]), np.stack([1 - part, part], 1)
    else:
        offsets, weights = np.array([-1, 0, 1, 2]), _cubic(part, site.number("cubic_coeff_a"))
    rows = base[:, None].astype(np.int64) + offsets
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


def _cubic(part: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution weights of the four neighbours, by the distance from the second."""

    def near(x: np.ndarray) -> np.ndarray:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: np.ndarray) -> np.ndarray:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return np.stack([far(part + 1), near(part), near(1 - part), far(2 - part)], 1)
