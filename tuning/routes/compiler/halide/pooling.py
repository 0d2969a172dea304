"""Pooling over windows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

from tuning.routes.compiler.halide.reductions import reduced
from tuning.routes.compiler.halide.site import HalideSite, HalideTensor, Index


def window(site: HalideSite, spatial: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Strides, dilations and pads (before, after) by axis."""
    strides = [int(s) for s in site.attrs.get("strides", [1] * spatial)] or [1] * spatial
    dilations = [int(d) for d in site.attrs.get("dilations", [1] * spatial)] or [1] * spatial
    pads = [int(p) for p in site.attrs.get("pads", [0] * 2 * spatial)] or [0] * 2 * spatial
    return strides, dilations, pads[:spatial], pads[spatial:]


def edged(
    site: HalideSite,
    source: HalideTensor,
    before: Sequence[int],
    outside: Any,
    reach: Sequence[int],
    name: str = "edged",
) -> HalideTensor:
    """The source with ``outside`` around its spatial axes, as a Func of its own whose index 0 is the first
    padded element; the source itself where nothing outside of it is read. ``reach``: extents read."""
    if not any(before) and all(r <= n for r, n in zip(reach, source.shape[2:], strict=True)):
        return source
    hl = site.hl
    sizes = source.shape[2:]

    def at(index: list[Any]) -> Any:
        moved = [i - b for i, b in zip(index[2:], before, strict=True)]
        checks, inside = [], []
        for i, b, n, r in zip(moved, before, sizes, reach, strict=True):
            if b == 0 and r <= n:
                inside.append(i)
                continue
            checks.append((i >= 0) & (i < n))
            inside.append(hl.clamp(i, 0, n - 1))
        return hl.select(reduce(lambda a, b: a & b, checks), source.at([*index[:2], *inside]), outside)

    return site.p.function(name, (*source.shape[:2], *reach), source.dtype, at, role="first")


def pool(site: HalideSite) -> list[HalideTensor]:
    """MaxPool and AveragePool."""
    p, made = site.p, site.output()
    source = p.stored(site.tensor(0))
    spatial = len(source.shape) - 2
    kernel = [int(k) for k in site.attrs["kernel_shape"]]
    strides, dilations, before, after = window(site, spatial)
    largest = site.node.op == "MaxPool"
    sizes = made.shape[2:]
    reach = [
        (n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(sizes, strides, kernel, dilations, strict=True)
    ]
    nothing = p.constant(float("-inf") if largest else 0.0, made.dtype)
    padded = edged(site, source, before, nothing, reach)

    def term(so_far: Any, i: list[Any], r: list[Any]) -> Any:
        where = [o * s + k * d for o, s, k, d in zip(i[2:], strides, r, dilations, strict=True)]
        value = padded.at([*i[:2], *where])
        if not largest:
            return so_far + value
        return site.hl.select((so_far > value) | site.hl.is_nan(so_far), so_far, value)

    total = p.accumulate("pooled", made.shape, made.dtype, nothing, [(kernel, term)], role="product")
    if largest:
        return [total]
    whole = bool(site.attrs.get("count_include_pad", 0))

    def count(index: Index) -> Any:
        parts = []
        for axis, o in enumerate(index[2:]):
            n, b = source.shape[2 + axis], before[axis]
            low, high = (-b, n + after[axis]) if whole else (0, n)
            parts.append(_inside(site, o * strides[axis] - b, kernel[axis], dilations[axis], low, high))
        return reduce(lambda a, b: a * b, parts)

    even = not any(before) and all(r <= n for r, n in zip(reach, source.shape[2:], strict=True))
    if even:
        return [
            HalideTensor(
                made.shape, made.dtype, lambda i: total.at(i) * p.constant(1 / prod(kernel), made.dtype)
            )
        ]
    return [
        HalideTensor(
            made.shape, made.dtype, lambda i: total.at(i) / site.hl.cast(p.type(made.dtype), count(i))
        )
    ]


def _inside(site: HalideSite, start: Any, kernel: int, dilation: int, low: int, high: int) -> Any:
    """How many of the window's places lie in [low, high)."""
    hl = site.hl
    if dilation == 1:
        return hl.min(start + kernel, high) - hl.max(start, low)
    inside = [
        hl.select((start + k * dilation >= low) & (start + k * dilation < high), 1, 0) for k in range(kernel)
    ]
    return reduce(lambda a, b: a + b, inside)


def global_pool(site: HalideSite) -> list[HalideTensor]:
    """GlobalAveragePool and GlobalMaxPool."""
    p, source = site.p, site.tensor(0)
    axes = list(range(2, len(source.shape)))
    if site.node.op == "GlobalMaxPool":
        return [reduced(p, source, axes, "max")]
    total = reduced(p, source, axes, "sum")
    count = p.constant(prod(source.shape[2:]), source.dtype)
    return [HalideTensor(total.shape, source.dtype, lambda i: total.at(i) / count)]
