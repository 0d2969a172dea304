"""Pooling over windows."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

from opatlas.load.torch.ops.windows import Window, read_window
from tuning.routes.compiler.halide.reductions import reduced
from tuning.routes.compiler.halide.site import HalideSite, HalideTensor, Index


def edged(site: HalideSite, source: HalideTensor, window: Window, outside: Any) -> HalideTensor:
    """The source with ``outside`` around its spatial axes, as a Func of its own whose index 0 is the first
    padded element; the source itself where nothing outside of it is read."""
    reach = [
        (made - 1) * stride + (size - 1) * dilation + 1
        for made, stride, size, dilation in zip(
            site.output().shape[2:], window.strides, window.kernel, window.dilations, strict=True
        )
    ]
    before = window.begins
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

    return site.p.function("edged", (*source.shape[:2], *reach), source.dtype, at, role="first")


def pool(site: HalideSite) -> list[HalideTensor]:
    """MaxPool and AveragePool."""
    p, made = site.p, site.output()
    source = site.tensor(0)
    window, largest = read_window(site), site.node.op == "MaxPool"
    kernel, strides, dilations = list(window.kernel), window.strides, window.dilations
    nothing = p.constant(float("-inf") if largest else 0.0, made.dtype)
    padded = p.stored(edged(site, source, window, nothing))

    def term(so_far: Any, i: list[Any], r: list[Any]) -> Any:
        where = [o * s + k * d for o, s, k, d in zip(i[2:], strides, r, dilations, strict=True)]
        value = padded.at([*i[:2], *where])
        if not largest:
            return so_far + value
        return site.hl.select((so_far > value) | site.hl.is_nan(so_far), so_far, value)

    total = p.accumulate("pooled", made.shape, made.dtype, nothing, [(kernel, term)], role="product")
    if largest:
        return [total]
    if padded.shape == source.shape:
        part = p.constant(1 / prod(kernel), made.dtype)
        return [HalideTensor(made.shape, made.dtype, lambda i: total.at(i) * part)]
    whole = site.flag("count_include_pad")

    def count(index: Index) -> Any:
        parts = []
        for axis, o in enumerate(index[2:]):
            n, b = source.shape[2 + axis], window.begins[axis]
            low, high = (-b, n + window.ends[axis]) if whole else (0, n)
            parts.append(_inside(site, o * strides[axis] - b, kernel[axis], dilations[axis], low, high))
        return reduce(lambda a, b: a * b, parts)

    kind = p.type(made.dtype)
    return [HalideTensor(made.shape, made.dtype, lambda i: total.at(i) / site.hl.cast(kind, count(i)))]


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
