"""Resize: every axis on its own, as few neighbours per element as the mode needs."""

from __future__ import annotations

import functools

import numpy as np
import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.site import Builder, Built, TorchSite
from opatlas.load.torch.ops.taps import is_crop, outside_of, passes_of, scales_of


def _resize(site: TorchSite) -> Built:
    own = _torch_call(site)
    if own is not None:
        return own
    picked = [(axis, torch.as_tensor(rows), weights) for axis, rows, weights in passes_of(site)]
    beyond = _beyond(site)
    between = picked and site.attrs["mode"] != "nearest"

    def mixed(x: torch.Tensor) -> torch.Tensor:
        for axis, rows, weights in picked:
            x = _weighted(x, axis, rows, weights)
        return x

    def run(x, *_):
        # Whole numbers are mixed as numbers with fractions, which the result then has not.
        wide = x.to(site.widen or torch.float32) if between and not x.is_floating_point() else x
        made = mixed(wide)
        if beyond is not None:
            made = made.masked_fill(beyond, site.number("extrapolation_value"))
        return made.to(x.dtype)

    return run


def _beyond(site: TorchSite) -> torch.Tensor | None:
    """Elements that a crop takes from outside the image; None if there are none."""
    made, masks = site.output().shape, outside_of(site)
    if not masks:
        return None
    shapes = [[-1 if index == axis else 1 for index in range(len(made))] for axis, _ in masks]
    parts = [torch.as_tensor(mask).reshape(shape) for (_, mask), shape in zip(masks, shapes, strict=True)]
    return functools.reduce(torch.logical_or, parts)


def _torch_call(site: TorchSite) -> Built | None:
    """``interpolate`` where it means the same thing."""
    mode, place = site.attrs["mode"], site.attrs["coordinate_transformation_mode"]
    shape, made = site.shape(0), site.output().shape
    spatial = len(shape) - 2
    floored = site.attrs.get("nearest_mode") == "floor"
    if shape[:2] != made[:2] or not site.input(0).dtype.startswith(("float", "bfloat")):
        return None
    if is_crop(site) or site.flag("antialias"):
        return None
    if any(scale != new / old for scale, old, new in zip(scales_of(site), shape, made, strict=True)):
        return None  # PyTorch would take the ratio of the sizes
    size = made[2:]
    whole = all(new % old == 0 for old, new in zip(shape, made, strict=True))
    if mode == "nearest" and place == "asymmetric" and floored and 1 <= spatial <= 3 and whole:
        return lambda x, *_: F.interpolate(x, size, mode="nearest")
    names = {1: "linear", 2: "bilinear", 3: "trilinear"}
    smooth = place in ("half_pixel", "align_corners") or (place == "pytorch_half_pixel" and 1 not in size)
    if mode == "linear" and spatial in names and smooth:
        corners = place == "align_corners"
        name = names[spatial]
        return lambda x, *_: F.interpolate(x, size, mode=name, align_corners=corners)
    return None


def _weighted(x: torch.Tensor, axis: int, rows: torch.Tensor, weights: np.ndarray | None) -> torch.Tensor:
    if weights is None:
        return x.index_select(axis, rows[:, 0])
    shape = [-1 if index == axis else 1 for index in range(x.ndim)]
    parts = [
        x.index_select(axis, rows[:, tap])
        * torch.from_numpy(np.ascontiguousarray(weights[:, tap])).to(x).reshape(shape)
        for tap in range(rows.shape[1])
    ]
    return functools.reduce(torch.add, parts)


_SAMPLING = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


def _grid_sample(site: TorchSite) -> Built:
    mode = _SAMPLING[site.attrs["mode"]]
    padding, corners = site.attrs["padding_mode"], site.flag("align_corners")
    return lambda x, grid: F.grid_sample(x, grid, mode, padding, corners)


BUILDERS: dict[str, Builder] = {"GridSample": _grid_sample, "Resize": _resize}
