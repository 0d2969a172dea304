"""Operators that only move elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

from tuning.routes.compiler.halide.site import HalideSite, HalideTensor, Index, broadcast


def lower(site: HalideSite) -> list[HalideTensor]:
    return _BUILDERS[site.node.op](site)


def _moved(site: HalideSite, source: HalideTensor, at: Any) -> list[HalideTensor]:
    made = site.output()
    return [HalideTensor(made.shape, made.dtype, at, cheap=source.cheap)]


def _transpose(site: HalideSite) -> list[HalideTensor]:
    source = site.tensor(0)
    places = [site.attrs["perm"].index(axis) for axis in range(len(source.shape))]
    return _moved(site, source, lambda i: source.at([i[place] for place in places]))


def _reshape(site: HalideSite) -> list[HalideTensor]:
    source, shape = site.tensor(0), site.output().shape
    groups = regrouped(source.shape, shape)

    def at(index: Index) -> Any:
        made: list[Any] = []
        for old, new in groups:
            own = index[new[0] : new[1]]
            made += _split(_joined(own, shape[new[0] : new[1]]), source.shape[old[0] : old[1]])
        return source.at(made)

    return _moved(site, source, at)


def regrouped(old: Sequence[int], new: Sequence[int]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The shortest runs of axes of both shapes that hold the same elements: half-open ranges."""
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        first, other = i, j
        left = right = 1
        if i < len(old):
            left, i = old[i], i + 1
        if j < len(new):
            right, j = new[j], j + 1
        while left != right:
            if left < right and i < len(old):
                left, i = left * old[i], i + 1
            elif left > right and j < len(new):
                right, j = right * new[j], j + 1
            else:
                return [((0, len(old)), (0, len(new)))]
        groups.append(((first, i), (other, j)))
    return groups


def _joined(index: Index, shape: Sequence[int]) -> Any:
    flat: Any = 0
    for i, extent in zip(index, shape, strict=True):
        flat = i if isinstance(flat, int) and flat == 0 else flat * extent + i
    return flat


def _split(flat: Any, shape: Sequence[int]) -> list[Any]:
    if len(shape) == 1:
        return [flat]
    return [
        0 if extent == 1 else _step(flat, prod(shape[axis + 1 :]), extent, first=axis == 0)
        for axis, extent in enumerate(shape)
    ]


def _step(flat: Any, below: int, extent: int, *, first: bool) -> Any:
    value = flat / below if below > 1 else flat
    return value if first else value % extent


def _expand(site: HalideSite) -> list[HalideTensor]:
    source = site.tensor(0)
    return _moved(site, source, broadcast(source, len(site.output().shape)))


def _tile(site: HalideSite) -> list[HalideTensor]:
    source = site.tensor(0)
    return _moved(
        site,
        source,
        lambda index: source.at([i % n if n > 1 else 0 for i, n in zip(index, source.shape, strict=True)]),
    )


def _slice(site: HalideSite) -> list[HalideTensor]:
    source = site.tensor(0)
    cuts = [(cut.start or 0, cut.step or 1) for cut in site.cuts()]
    return _moved(
        site,
        source,
        lambda index: source.at([begin + i * by for i, (begin, by) in zip(index, cuts, strict=True)]),
    )


def _split_node(site: HalideSite) -> list[HalideTensor]:
    source, axis = site.tensor(0), site.axis()
    made, start = [], 0
    for position in range(len(site.node.outputs)):
        if not site.wants(position):
            raise ValueError("a part of a Split that nobody asks for has no known size")
        value = site.output(position)

        def at(index: Index, start: int = start) -> Any:
            return source.at([i + start if a == axis and start else i for a, i in enumerate(index)])

        made.append(HalideTensor(value.shape, value.dtype, at, cheap=source.cheap))
        start += value.shape[axis]
    return made


def _concat(site: HalideSite) -> list[HalideTensor]:
    hl, axis = site.hl, site.axis()
    parts = [site.tensor(position) for position in range(len(site.node.inputs))]

    def at(index: Index) -> Any:
        value, start = None, sum(part.shape[axis] for part in parts)
        for part in reversed(parts):
            start -= part.shape[axis]
            own = list(index)
            own[axis] = hl.clamp(index[axis] - start, 0, part.shape[axis] - 1)
            found = part.at(own)
            value = (
                found if value is None else hl.select(index[axis] < start + part.shape[axis], found, value)
            )
        return value

    return _moved(site, parts[0], at)


def _pad(site: HalideSite) -> list[HalideTensor]:
    source, hl = site.tensor(0), site.hl
    mode, pads = site.attrs["mode"], site.numbers(1)
    begin, end = pads[: len(source.shape)], pads[len(source.shape) :]
    outside = site.tensor(2).at([]) if site.has(2) else site.p.constant(0, source.dtype)

    def at(index: Index) -> Any:
        own, checks = [], []
        for i, b, e, n in zip(index, begin, end, source.shape, strict=True):
            place = i - b if b else i
            if not (b or e):
                own.append(place)
                continue
            if mode == "reflect":
                place = (n - 1) - _distance(hl, (n - 1) - _distance(hl, place))
            checks.append((place >= 0) & (place < n))
            own.append(hl.clamp(place, 0, n - 1))
        value = source.at(own)
        if mode != "constant" or not checks:
            return value
        return hl.select(reduce(lambda a, b: a & b, checks), value, outside)

    return [HalideTensor(site.output().shape, source.dtype, at)]


def _distance(hl: Any, place: Any) -> Any:
    return hl.cast(hl.Int(32), hl.abs(place))


def _gather(site: HalideSite) -> list[HalideTensor]:
    """Indices outside the tensor are brought inside: a kernel must not read what is not its own."""
    source, where, axis = site.tensor(0), site.tensor(1), site.axis()
    rank = len(where.shape)

    def at(index: Index) -> Any:
        inside = _inside(site, where.at(index[axis : axis + rank]), source.shape[axis])
        return source.at([*index[:axis], inside, *index[axis + rank :]])

    return _moved(site, source, at)


def _gather_elements(site: HalideSite) -> list[HalideTensor]:
    """As :func:`_gather`, with an index for each element."""
    source, where, axis = site.tensor(0), site.tensor(1), site.axis()
    return _moved(
        site,
        source,
        lambda index: source.at(
            [
                _inside(site, where.at(index), source.shape[axis]) if a == axis else i
                for a, i in enumerate(index)
            ]
        ),
    )


def _inside(site: HalideSite, chosen: Any, extent: int) -> Any:
    """An index from the end made one from the start, and one outside brought inside."""
    hl = site.hl
    chosen = hl.select(chosen < 0, chosen + extent, chosen)
    return hl.cast(hl.Int(32), hl.clamp(chosen, 0, extent - 1))


_BUILDERS = {
    "Concat": _concat,
    "Expand": _expand,
    "Flatten": _reshape,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split_node,
    "Squeeze": _reshape,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}
