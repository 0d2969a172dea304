"""What moves elements, gathers and scatters them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tests.opatlas.load.drawn.draw import WHOLE, Draw, int64s, scalar
from tests.opatlas.load.drawn.elements import Drawn
from tests.opatlas.load.operators import Case


def _any(d: Draw, *shape: int) -> np.ndarray:
    return d.integers(*shape, dtype=d.pick(*WHOLE)) if d.whole(0, 3) == 0 else d.normal(*shape)


def _col2im(d: Draw) -> Case:
    image, block = [d.whole(4, 7), d.whole(4, 7)], [d.whole(1, 3), d.whole(1, 3)]
    pads = d.pick([0] * 4, [1] * 4, [1, 0, 1, 0], [1, 0, 0, 2])
    strides, dilations = [d.whole(1, 2), d.whole(1, 2)], [d.whole(1, 2), 1]
    places = [
        (image[i] + pads[i] + pads[i + 2] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i in (0, 1)
    ]
    x = d.normal(d.whole(1, 2), d.whole(1, 3) * prod(block), prod(places))
    attrs = {"pads": pads, "strides": strides, "dilations": dilations}
    return Case("Col2Im", [x, int64s(image), int64s(block)], attrs, fixed=[1, 2])


def _concat(d: Draw) -> Case:
    shape = d.shape()
    axis = d.axis(len(shape))
    parts = []
    for _ in range(d.whole(1, 3)):
        one = list(shape)
        one[axis] = d.whole(1, 4)
        parts.append(d.normal(*one))
    return Case("Concat", parts, {"axis": axis})


def _depth_to_space(d: Draw) -> Case:
    block = d.whole(1, 3)
    x = _any(d, d.whole(1, 2), block**2 * d.whole(1, 3), d.whole(1, 4), d.whole(1, 4))
    return Case(
        "DepthToSpace", [x], {"blocksize": block, **({"mode": d.pick("DCR", "CRD")} if d.flag() else {})}
    )


def _space_to_depth(d: Draw) -> Case:
    block = d.whole(1, 3)
    x = _any(d, d.whole(1, 2), d.whole(1, 3), block * d.whole(1, 3), block * d.whole(1, 3))
    return Case("SpaceToDepth", [x], {"blocksize": block})


def _expand(d: Draw) -> Case:
    shape = d.shape()
    return Case(
        "Expand", [_any(d, *d.broadcast(shape)), int64s(d.pick(shape, d.broadcast(shape)))], fixed=[1]
    )


def _flatten(d: Draw) -> Case:
    shape = d.shape()
    return Case("Flatten", [_any(d, *shape)], {"axis": d.whole(-len(shape), len(shape))})


_PAD_KINDS = ("constant", "edge", "reflect", "wrap")


def _pad(d: Draw) -> Case:
    shape = d.shape(longest=4)
    mode = d.pick(*_PAD_KINDS)
    axes = [int(one) for one in d.axes(len(shape), 1)] if d.flag() else None
    of = list(range(len(shape))) if axes is None else axes
    most = [shape[one] - 1 if mode == "reflect" else shape[one] if mode == "wrap" else 3 for one in of]
    low = 0 if mode in ("wrap", "reflect") else -1  # which nobody else cuts and mirrors at once
    pads = [
        [d.whole(low if shape[axis] > 2 else 0, size) for axis, size in zip(of, most, strict=True)]
        for _ in "be"
    ]
    value = scalar(d.pick(0, 3, -2), d.float) if mode == "constant" and d.flag() else None
    inputs = [d.normal(*shape), int64s([*pads[0], *pads[1]]), value, None if axes is None else int64s(axes)]
    return Case("Pad", inputs, {"mode": mode}, fixed=[1, 2, 3])


def _reshape(d: Draw) -> Case:
    shape = d.shape(1, 4, 4)
    wanted: list[int] = [prod(shape)]
    if d.flag():
        wanted = [shape[0], -1]
    if d.flag():
        wanted = [0, -1] if len(shape) > 1 else [-1, 1]
    return Case("Reshape", [_any(d, *shape), int64s(wanted)], fixed=[1])


def _shape_of(d: Draw) -> Case:
    attrs = {name: d.whole(-5, 5) for name in ("start", "end") if d.flag()}
    return Case("Shape", [d.normal(*d.shape())], attrs)


def _slice(d: Draw) -> Case:
    shape = d.shape(longest=6)
    axes = d.axes(len(shape), 1)
    cuts = []
    for axis in axes:
        size, step = shape[axis], d.pick(1, 1, 2, 3, -1, -2)
        low = d.whole(0, size - 1)
        high = d.pick(d.whole(low + 1, size + 2), 1 << 40)
        start, end = (low, high) if step > 0 else (min(high, size + 3) - 1, low - 1 if low else -(1 << 40))
        cuts.append((start - size * (d.flag() and 0 <= start < size), end, step))
    starts, ends, steps = zip(*cuts, strict=True)
    given = d.pick((axes, int64s(steps)), (axes, int64s([abs(step) for step in steps])))
    if given[1].min() > 0:  # the cuts of forward steps
        starts = tuple(
            min(start % shape[axis], shape[axis] - 1) for start, axis in zip(starts, axes, strict=True)
        )
        ends = tuple(1 << 40 for _ in ends)
    return Case("Slice", [_any(d, *shape), int64s(starts), int64s(ends), *given], fixed=[1, 2, 3, 4])


def _split(d: Draw) -> Case:
    shape = list(d.shape())
    axis, parts = d.axis(len(shape)), d.whole(1, 3)
    if d.flag():
        sizes = [d.whole(1, 3) for _ in range(parts)]
        shape[axis] = sum(sizes)
        return Case("Split", [_any(d, *shape), int64s(sizes)], {"axis": axis}, fixed=[1], outputs=parts)
    shape[axis] = d.pick(parts * 2, parts * 2 - 1) if parts > 1 else 3
    return Case("Split", [_any(d, *shape)], {"axis": axis, "num_outputs": parts}, outputs=parts)


def _squeeze(d: Draw) -> Case:
    shape = tuple(1 if d.flag() else size for size in d.shape())
    ones = [axis - len(shape) * d.flag() for axis, size in enumerate(shape) if size == 1]
    given = [int64s(ones[: d.whole(1, len(ones))])] if ones and d.flag() else []
    return Case("Squeeze", [_any(d, *shape), *given], fixed=[1])


def _unsqueeze(d: Draw) -> Case:
    shape = d.shape()
    return Case("Unsqueeze", [_any(d, *shape), int64s(d.pick([0], [-1], [0, 2], [-1, 0], [1]))], fixed=[1])


def _tile(d: Draw) -> Case:
    shape = d.shape()
    return Case("Tile", [_any(d, *shape), int64s([d.whole(1, 3) for _ in shape])], fixed=[1])


def _transpose(d: Draw) -> Case:
    shape = d.shape()
    perm = [int(one) for one in d.rng.permutation(len(shape))]
    return Case("Transpose", [_any(d, *shape)], {"perm": perm} if d.flag() else {})


def _trilu(d: Draw) -> Case:
    x = _any(d, *d.shape(0, 2), d.whole(1, 5), d.whole(1, 5))
    given = [scalar(d.whole(-6, 6), np.int64)] if d.flag() else []
    return Case("Trilu", [x, *given], {"upper": d.flag()} if d.flag() else {}, fixed=[1])


def _indices(d: Draw, size: int, *shape: int) -> np.ndarray:
    return d.integers(*shape, low=-size, high=size - 1, dtype=d.pick("int32", "int64"))


def _gather(d: Draw) -> Case:
    shape = d.shape()
    axis = d.axis(len(shape))
    rows = _indices(d, shape[axis], *d.shape(0, 3, 3))
    return Case("Gather", [_any(d, *shape), rows], {"axis": axis}, fixed=[1] if d.flag() else [])


def _gather_elements(d: Draw) -> Case:
    shape = d.shape()
    axis = d.axis(len(shape))
    rows = [
        d.whole(1, 6) if index == axis % len(shape) else d.whole(1, size) for index, size in enumerate(shape)
    ]
    fixed = [1] if d.flag() else []
    return Case(
        "GatherElements", [_any(d, *shape), _indices(d, shape[axis], *rows)], {"axis": axis}, fixed=fixed
    )


def _tuples(d: Draw, extents: tuple[int, ...], rows: tuple[int, ...], distinct: bool = False) -> np.ndarray:
    count, places = prod(rows), prod(extents)
    flat = d.rng.permutation(places)[:count] if distinct else d.rng.integers(0, places, count)
    found = np.stack(np.unravel_index(flat, extents), -1).reshape(*rows, len(extents))
    return np.where(d.bools(*found.shape), found, found - np.array(extents)).astype(np.int64)


def _gather_nd(d: Draw) -> Case:
    shape = d.shape(2, 4, 4)
    batch = d.whole(0, len(shape) - 1) if d.flag() else 0
    depth = d.whole(1, len(shape) - batch)
    rows = (*shape[:batch], *d.shape(1, 2, 3))
    found = _tuples(d, shape[batch : batch + depth], rows)
    return Case("GatherND", [_any(d, *shape), found], {"batch_dims": batch}, fixed=[1] if d.flag() else [])


def _reduction(d: Draw) -> dict[str, Any]:
    how = d.pick("", "none", "add", "mul", "max", "min")
    return {"reduction": how} if how else {}


def _scatter_nd(d: Draw) -> Case:
    shape = d.shape(1, 3, 4)
    depth = d.whole(1, len(shape))
    how = _reduction(d)
    distinct = how.get("reduction", "none") == "none"
    count = d.whole(1, min(5, prod(shape[:depth])))
    found = _tuples(d, shape[:depth], (count,), distinct)
    return Case("ScatterND", [d.normal(*shape), found, d.normal(count, *shape[depth:])], how)


def _scatter_elements(d: Draw) -> Case:
    shape = d.shape(1, 3, 4)
    axis = d.axis(len(shape))
    how = _reduction(d)
    rows = [d.whole(1, size) for size in shape]
    size = shape[axis]
    if how.get("reduction", "none") == "none":
        found = np.argsort(
            d.rng.random([size if i == axis % len(shape) else n for i, n in enumerate(rows)]), axis
        )
        found = np.take(found, range(rows[axis]), axis)
        found = np.where(d.bools(*found.shape), found, found - size)
    else:
        found = _indices(d, size, *rows)
    return Case(
        "ScatterElements", [d.normal(*shape), found.astype(np.int64), d.normal(*rows)], {"axis": axis, **how}
    )


def _one_hot(d: Draw) -> Case:
    shape, depth = d.shape(0, 3), d.whole(1, 5)
    beyond = d.whole(0, 2)  # what is outside is nobody's class
    rows = d.integers(*shape, low=-depth - beyond, high=depth - 1 + beyond)
    pair = d.pick(np.array([0, 1], d.float), np.array([3, -2], np.int64), np.array([-1, 5], np.float32))
    axis = {"axis": d.whole(-len(shape) - 1, len(shape))} if d.flag() else {}
    return Case("OneHot", [rows, scalar(depth, np.int64), pair], axis, fixed=[1, *([2] if d.flag() else [])])


def _reverse_sequence(d: Draw) -> Case:
    shape = d.shape(2, 4)
    time = d.flag()
    lengths = d.integers(shape[1 - time], low=1, high=shape[time])
    return Case("ReverseSequence", [_any(d, *shape), lengths], {"time_axis": time, "batch_axis": 1 - time})


DRAWS: dict[str, Drawn] = {
    "Col2Im": _col2im,
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Reshape": _reshape,
    "ReverseSequence": _reverse_sequence,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Shape": _shape_of,
    "Size": lambda d: Case("Size", [d.normal(*d.shape())]),
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
