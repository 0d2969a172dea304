"""Gathers and scatters. A negative index counts from the end; one out of bounds is clamped, as XLA does."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from opatlas.load.torch.ops.site import Builder, Built, TorchSite


def _rows(site: TorchSite, position: int, given: jax.Array | None) -> jax.Array:
    if given is not None:
        return given
    return jnp.asarray(site.content(position))


def _gather(site: TorchSite) -> Built:
    axis = site.axis()
    size = site.shape(0)[axis]

    def run(x, indices=None):
        return jnp.take(x, _wrapped(_rows(site, 1, indices), size), axis, mode="clip")

    return run


def _wrapped(rows: jax.Array, size: int) -> jax.Array:
    return jnp.where(rows < 0, rows + size, rows)


def _gather_elements(site: TorchSite) -> Built:
    axis = site.axis()
    size = site.shape(0)[axis]

    def run(x, indices=None):
        rows = _wrapped(_rows(site, 1, indices), size)
        places = [
            jnp.arange(n).reshape([-1 if a == d else 1 for a in range(x.ndim)])
            for d, n in enumerate(rows.shape)
        ]
        places[axis] = rows
        return x[tuple(places)]

    return run


def _gather_nd(site: TorchSite) -> Built:
    batch = site.attrs["batch_dims"]
    depth = site.shape(1)[-1]
    sizes = site.shape(0)[batch : batch + depth]

    def one(x, rows):
        return x[tuple(_wrapped(rows[..., at], sizes[at]) for at in range(depth))]

    function = one
    for _ in range(batch):
        function = jax.vmap(function)
    return lambda x, indices=None: function(x, _rows(site, 1, indices))


def _updated(place, how: str, updates: jax.Array) -> jax.Array:
    names = {"none": "set", "mul": "multiply"}
    return getattr(place, names.get(how, how))(updates)


def _scatter_elements(site: TorchSite) -> Built:
    axis, how = site.axis(), site.attrs["reduction"]
    size = site.shape(0)[axis]

    def run(x, indices, updates):
        rows = _wrapped(_rows(site, 1, indices), size)
        places = list(jnp.indices(rows.shape))
        places[axis] = rows
        return _updated(x.at[tuple(places)], how, updates)

    return run


def _scatter_nd(site: TorchSite) -> Built:
    depth, how = site.shape(1)[-1], site.attrs["reduction"]
    sizes = site.shape(0)[:depth]

    def run(x, indices, updates):
        rows = _rows(site, 1, indices)
        places = tuple(_wrapped(rows[..., at], sizes[at]) for at in range(depth))
        return _updated(x.at[places], how, updates)

    return run


def _one_hot(site: TorchSite) -> Built:
    made, axis = site.output().shape, site.axis()
    depth = made[axis]
    shape = [depth if index == axis else 1 for index in range(len(made))]

    def run(indices, _depth=None, pair=None):
        pair = _rows(site, 2, pair)
        rows = jnp.expand_dims(_wrapped(indices, depth), axis)
        return jnp.where(rows == jnp.arange(depth).reshape(shape).astype(rows.dtype), pair[1], pair[0])

    return run


BUILDERS: dict[str, Builder] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
