"""Resize: rows chosen, or mixed by weights known beforehand, axis by axis."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from opatlas.load.torch.ops.site import Builder, Built, TorchSite, Unsupported
from opatlas.load.torch.ops.taps import is_crop, passes_of


def _resize(site: TorchSite) -> Built:
    if is_crop(site):
        raise Unsupported("Resize of a region")
    if site.attrs["mode"] != "nearest" and not site.input(0).dtype.startswith(("float", "bfloat")):
        raise Unsupported(f"Resize of {site.input(0).dtype} between elements")
    passes = passes_of(site)

    def run(x, *_):
        for axis, rows, weights in passes:
            x = _mixed(x, axis, rows, weights)
        return x

    return run


def _mixed(x: jax.Array, axis: int, rows: np.ndarray, weights: np.ndarray | None) -> jax.Array:
    if weights is None:
        return _picked(x, axis, rows[:, 0])
    shape = [-1 if index == axis else 1 for index in range(x.ndim)]
    parts = [
        _picked(x, axis, rows[:, tap]) * jnp.asarray(weights[:, tap], x.dtype).reshape(shape)
        for tap in range(rows.shape[1])
    ]
    return functools.reduce(jnp.add, parts)


def _picked(x: jax.Array, axis: int, rows: np.ndarray) -> jax.Array:
    times = rows.size // x.shape[axis]
    if times * x.shape[axis] == rows.size and np.array_equal(
        rows, np.repeat(np.arange(x.shape[axis]), times)
    ):
        return jnp.repeat(x, times, axis)  # whole scales need no table
    return jnp.take(x, jnp.asarray(rows, jnp.int32), axis, mode="clip")


BUILDERS: dict[str, Builder] = {"Resize": _resize}
