"""Pools: windows and whole maps."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from opatlas.load.torch.ops.site import Builder, Built, TorchSite
from opatlas.load.torch.ops.windows import Window, read_window
from opatlas.load.xla.windows import slices, whole_pads


def _reduce(x: jax.Array, start: Any, fold: Any, window: Window) -> jax.Array:
    return lax.reduce_window(
        x,
        np.asarray(start, x.dtype),
        fold,
        (1, 1, *window.kernel),
        (1, 1, *window.strides),
        [(0, 0), (0, 0), *whole_pads(window)],
        window_dilation=(1, 1, *window.dilations),
    )


def _lowest(site: TorchSite) -> float:
    dtype = jnp.dtype(site.input(0).dtype)
    return jnp.iinfo(dtype).min if jnp.issubdtype(dtype, jnp.integer) else -jnp.inf


def _max(site: TorchSite) -> Built:
    window, lowest = read_window(site), _lowest(site)
    return lambda x: _reduce(x, lowest, lax.max, window)


def _max_of_slices(site: TorchSite) -> Built:
    """The largest of one strided slice for each element of the window, all in one fused loop."""
    window, made, lowest = read_window(site), site.output().shape[2:], _lowest(site)

    def run(x):
        pieces = [piece for _, piece in slices(x, window, made, whole_pads(window), lowest)]
        return functools.reduce(jnp.maximum, pieces)

    return run


def _average(site: TorchSite, *, of_slices: bool = False) -> Built:
    window, made = read_window(site), site.output().shape[2:]
    counts = _counts(site, window, site.flag("count_include_pad"))

    def run(x):
        if of_slices:
            pieces = [piece for _, piece in slices(x, window, made, whole_pads(window))]
            sums = functools.reduce(jnp.add, pieces)
        else:
            sums = _reduce(x, 0, lax.add, window)
        if counts.min() == counts.max():
            return sums * jnp.asarray(1 / counts.flat[0], x.dtype)
        return sums / jnp.asarray(counts, x.dtype)

    return run


def _counts(site: TorchSite, window: Window, counts_pads: bool) -> np.ndarray:
    """How many elements each window averages over; what ``ceil_mode`` adds is never counted."""
    lines = []
    for axis, made in enumerate(site.output().shape[2:]):
        size, begin, end = site.shape(0)[2 + axis], window.begins[axis], window.ends[axis]
        first, last = (0, size + begin + end) if counts_pads else (begin, begin + size)
        starts = np.arange(made)[:, None] * window.strides[axis]
        places = starts + np.arange(window.kernel[axis]) * window.dilations[axis]
        lines.append(((places >= first) & (places < last)).sum(1))
    counts = np.ones((), np.int64)
    for line in lines:
        counts = counts[..., None] * line
    return counts


def _lp(site: TorchSite) -> Built:
    window, power = read_window(site), site.attrs["p"]

    def run(x):
        raised = x * x if power == 2 else lax.integer_pow(jnp.abs(x), power)
        sums = _reduce(raised, 0, lax.add, window)
        return jnp.sqrt(sums) if power == 2 else jnp.power(sums, 1 / power)

    return run


def _over_map(function: Built) -> Builder:
    def build(site: TorchSite) -> Built:
        axes = tuple(range(2, site.rank()))
        return lambda x: function(x, axes, keepdims=True)

    return build


SHIFTED: dict[str, Builder] = {
    "AveragePool": functools.partial(_average, of_slices=True),
    "MaxPool": _max_of_slices,
}
"""Pools written down as one slice for each element of the window."""

BUILDERS: dict[str, Builder] = {
    "AveragePool": _average,
    "GlobalAveragePool": _over_map(jnp.mean),
    "GlobalMaxPool": _over_map(jnp.max),
    "LpPool": _lp,
    "MaxPool": _max,
}
