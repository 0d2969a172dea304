"""Reductions over axes, running sums and sorted choices."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from opatlas.load.torch.ops.site import Builder, Built, TorchSite

Reduce = Callable[[jax.Array, tuple[int, ...], bool], jax.Array]


def _over(function: Reduce) -> Builder:
    def build(site: TorchSite) -> Built:
        keep, axes, dtype = site.flag("keepdims"), tuple(site.axes()), site.output().dtype
        if site.flag("noop_with_empty_axes"):
            # No axis, nothing to fold: what is left is the function of one element at a time.
            return lambda x, *_: function(x[None], (0,), False)
        return lambda x, *_: function(x, axes, keep).astype(dtype)

    return build


def _sum(x: jax.Array, axes: tuple[int, ...], keep: bool) -> jax.Array:
    return jnp.sum(x, axes, dtype=x.dtype, keepdims=keep)


def _mean(x: jax.Array, axes: tuple[int, ...], keep: bool) -> jax.Array:
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.mean(x, axes, keepdims=keep)
    count = math.prod(x.shape[axis] for axis in axes)
    sums = _sum(x, axes, keep)
    return lax.div(sums, jnp.full(sums.shape, count, sums.dtype))


def _l2(x: jax.Array, axes: tuple[int, ...], keep: bool) -> jax.Array:
    return jnp.sqrt(_sum(x * x, axes, keep))


def _arg(function: Callable[..., jax.Array]) -> Builder:
    def build(site: TorchSite) -> Built:
        axis, keep = site.axis(), site.flag("keepdims")
        if not site.flag("select_last_index"):
            return lambda x: function(x, axis, keepdims=keep).astype(jnp.int64)
        last = site.shape(0)[axis] - 1
        return lambda x: last - function(jnp.flip(x, axis), axis, keepdims=keep).astype(jnp.int64)

    return build


def _cumulative_sum(site: TorchSite) -> Built:
    [axis] = site.numbers(1)
    exclusive, reverse = site.flag("exclusive"), site.flag("reverse")

    def run(x, *_):
        sums = lax.cumsum(x, axis, reverse=reverse)
        return sums - x if exclusive and not jnp.issubdtype(x.dtype, jnp.floating) else _cut(sums)

    def _cut(sums):
        if not exclusive:
            return sums
        pads = [(0, 0)] * sums.ndim
        pads[axis] = (0, 1) if reverse else (1, 0)
        start = 1 if reverse else 0
        return lax.slice_in_dim(jnp.pad(sums, pads), start, start + sums.shape[axis], axis=axis)

    return run


def _top(site: TorchSite) -> Built:
    count, axis = site.numbers(1)[0], site.axis()
    largest = site.flag("largest")

    def run(x, *_):
        moved = jnp.moveaxis(x, axis, -1)
        if largest:
            values, places = lax.top_k(moved, count)
        else:
            order = jnp.argsort(moved, -1, stable=True)[..., :count]
            values, places = jnp.take_along_axis(moved, order, -1), order
        return jnp.moveaxis(values, -1, axis), jnp.moveaxis(places, -1, axis).astype(jnp.int64)

    return run


BUILDERS: dict[str, Builder] = {
    "ArgMax": _arg(jnp.argmax),
    "ArgMin": _arg(jnp.argmin),
    "CumSum": _cumulative_sum,
    "ReduceL1": _over(lambda x, axes, keep: _sum(jnp.abs(x), axes, keep)),
    "ReduceL2": _over(_l2),
    "ReduceLogSum": _over(lambda x, axes, keep: jnp.log(_sum(x, axes, keep))),
    "ReduceLogSumExp": _over(lambda x, axes, keep: jax.nn.logsumexp(x, axes, keepdims=keep)),
    "ReduceMax": _over(lambda x, axes, keep: jnp.max(x, axes, keepdims=keep)),
    "ReduceMean": _over(_mean),
    "ReduceMin": _over(lambda x, axes, keep: jnp.min(x, axes, keepdims=keep)),
    "ReduceProd": _over(lambda x, axes, keep: jnp.prod(x, axes, dtype=x.dtype, keepdims=keep)),
    "ReduceSum": _over(_sum),
    "ReduceSumSquare": _over(lambda x, axes, keep: _sum(x * x, axes, keep)),
    "TopK": _top,
}
