"""Regions and samples of images: MaxRoiPool, which ONNX's evaluator does not have; DeformConv, for which it
takes seconds an element; AffineGrid."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from tuning.measure.judging.definitions.loss import Loss

Array = np.ndarray


class MaxRoiPool(OpRun):
    """The largest element of each part of each region; 0 where a part is empty."""

    op_domain = ""
    loss: Loss

    def _run(
        self, x: Array, regions: Array, pooled_shape: Sequence[int] = (1, 1), spatial_scale: float = 1.0
    ):
        made = np.zeros((len(regions), x.shape[1], *pooled_shape), x.dtype)
        for number, (image, *corners) in enumerate(regions):
            left, top, right, bottom = (_nearest(corner * float(spatial_scale)) for corner in corners)
            rows = _parts(top, bottom, pooled_shape[0], x.shape[2])
            columns = _parts(left, right, pooled_shape[1], x.shape[3])
            for row, (first, last) in enumerate(rows):
                for column, (begin, end) in enumerate(columns):
                    part = x[int(image), :, first:last, begin:end]
                    if part.size:
                        made[number, :, row, column] = part.max(axis=(1, 2))
        return (made,)


def _nearest(place: float) -> int:
    """Halves go away from zero."""
    return int(np.copysign(np.floor(abs(place) + 0.5), place))


def _parts(first: int, last: int, count: int, extent: int) -> list[tuple[int, int]]:
    """Where each of so many parts of first … last begins and ends, within the image."""
    wide = np.float32(max(last - first + 1, 1)) / np.float32(count)
    edges = [(int(np.floor(number * wide)), int(np.ceil((number + 1) * wide))) for number in range(count)]
    low, high = 0, extent
    return [(min(max(a + first, low), high), min(max(b + first, low), high)) for a, b in edges]


class AffineGrid(OpRun):
    """Each place of an image of this size, between −1 and 1, by a matrix."""

    op_domain = ""
    loss: Loss

    def _run(self, matrices: Array, size: Array, align_corners: int = 0):
        extents = [int(extent) for extent in size[2:]]
        lines = [_evenly(extent, bool(align_corners)) for extent in extents]
        mesh = np.stack([*reversed(np.meshgrid(*lines, indexing="ij")), np.ones(extents)], axis=-1)
        made = np.einsum("nij,...j->n...i", matrices, mesh)
        terms = np.einsum("nij,...j->n...i", np.abs(matrices), np.abs(mesh))
        return (self.loss.of_sum(made, terms),)


def _evenly(count: int, to_the_ends: bool) -> Array:
    return np.linspace(-1, 1, count) if to_the_ends else (2 * np.arange(count) + 1) / count - 1


class DeformConv(OpRun):
    """A convolution of what lies at each window's places, moved by offsets: between elements, of the four
    around; beyond the image, zero."""

    op_domain = ""
    loss: Loss

    def _run(
        self,
        x: Array,
        weight: Array,
        offset: Array,
        bias: Array | None = None,
        mask: Array | None = None,
        **attributes: Any,
    ):
        batch, rows, columns = len(x), *offset.shape[2:]
        window = weight.shape[2:]
        shifts = offset.reshape(batch, attributes["offset_group"], *window, 2, rows, columns)
        places = _places(window, (rows, columns), attributes) + np.moveaxis(shifts, 4, 0)
        places = self.loss.of_step(places, np.abs(places))
        taken = _between(x.reshape(batch, attributes["offset_group"], -1, *x.shape[2:]), places)
        if mask is not None:
            taken = taken * mask.reshape(batch, attributes["offset_group"], 1, *window, rows, columns)
        groups = attributes["group"]
        taken = taken.reshape(batch, groups, -1, *window, rows, columns)
        kernels = weight.reshape(groups, -1, *weight.shape[1:])
        made = np.einsum("bgckluv,gockl->bgouv", taken, kernels)
        taken_norm = np.sqrt(np.einsum("bgckluv,bgckluv->bguv", taken, taken))[:, :, None]
        kernel_norm = np.sqrt(np.einsum("gockl,gockl->go", kernels, kernels))[None, :, :, None, None]
        made = self.loss.of_sum(made, taken_norm * kernel_norm).reshape(batch, -1, rows, columns)
        return (made if bias is None else made + bias[:, None, None],)


def _places(window: Sequence[int], made: Sequence[int], attributes: dict[str, Any]) -> Array:
    """[2, 1, 1, window…, made…]: where each element of each window lies in the image."""
    lines = []
    for axis in (0, 1):
        starts = np.arange(made[axis]) * attributes["strides"][axis] - attributes["pads"][axis]
        steps = np.arange(window[axis]) * attributes["dilations"][axis]
        lines.append(steps[:, None] + starts)
    down = np.broadcast_to(lines[0][:, None, :, None], (*window, *made))
    along = np.broadcast_to(lines[1][None, :, None, :], (*window, *made))
    return np.stack([down, along])[:, None, None].astype(np.float64)


def _between(x: Array, places: Array) -> Array:
    """x: [batch, groups, channels, height, width]; places: [2, batch, groups, …]. What is made has the
    places' shape with the channels after the groups."""
    height, width = x.shape[3:]
    bounded = np.stack([np.clip(places[axis], -2, extent + 1) for axis, extent in ((0, height), (1, width))])
    first = np.floor(bounded).astype(int)
    share = bounded - first
    padded = np.pad(x, [(0, 0)] * 3 + [(2, 3)] * 2)
    batch, group = np.ogrid[: x.shape[0], : x.shape[1]]
    index = (...,) + (None,) * (places.ndim - 3)
    made = np.zeros(())
    for down, along in itertools.product((0, 1), repeat=2):
        found = padded.transpose(0, 1, 3, 4, 2)[
            batch[index], group[index], first[0] + 2 + down, first[1] + 2 + along
        ]
        rows = share[0] if down else 1 - share[0]
        columns = share[1] if along else 1 - share[1]
        made = made + found * (rows * columns)[..., None]
    return np.moveaxis(made, -1, 2)


OPERATORS = (AffineGrid, DeformConv, MaxRoiPool)
