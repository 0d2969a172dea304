"""Resize: each axis on its own, rows chosen or mixed by weights that are known beforehand."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from opatlas.load.torch.ops.taps import Pass, passes_of
from tuning.routes.compiler.halide.site import HalideSite, HalideTensor, Index


def resize(site: HalideSite) -> list[HalideTensor]:
    """Any mode; which rows and weights are tables in the compiled code."""
    made = site.tensor(0)
    for one in passes_of(site):
        made = _along(site, made, one)
    return [made]


def _along(site: HalideSite, source: HalideTensor, one: Pass) -> HalideTensor:
    axis, rows, weights = one
    extent = source.shape[axis]
    places = [_places(site, rows[:, tap], extent) for tap in range(rows.shape[1])]
    dtype = np.dtype(np.float64 if source.dtype == "float64" else np.float32)
    factors = (
        [] if weights is None else [_table(site, weights[:, tap].astype(dtype)) for tap in range(len(places))]
    )

    def read(index: Index, place: Any) -> Any:
        return source.at([place(i) if a == axis else i for a, i in enumerate(index)])

    def at(index: Index) -> Any:
        taken = [read(index, place) for place in places]
        if not factors:
            return taken[0]
        mixed = [value * factor[index[axis]] for value, factor in zip(taken, factors, strict=True)]
        return reduce(lambda a, b: a + b, mixed)

    shape = (*source.shape[:axis], len(rows), *source.shape[axis + 1 :])
    return HalideTensor(shape, source.dtype, at)


def _places(site: HalideSite, rows: np.ndarray, extent: int) -> Any:
    """Index of the result → index of the source; whole scales need no table."""
    times = len(rows) // extent
    if times * extent == len(rows) and np.array_equal(rows, np.repeat(np.arange(extent), times)):
        return lambda i: i / times
    table, hl = _table(site, rows.astype(np.int32)), site.hl
    return lambda i: hl.clamp(table[i], 0, extent - 1)  # the clamp tells Halide what is read


def _table(site: HalideSite, values: np.ndarray) -> Any:
    # A copy: Halide's buffer does not keep NumPy's memory alive until the code is written.
    return site.hl.Buffer(np.ascontiguousarray(values)).copy()
