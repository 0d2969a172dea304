"""MaxRoiPool, which ONNX's evaluator does not have."""

from __future__ import annotations

from collections.abc import Sequence

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


OPERATORS = (MaxRoiPool,)
