"""Normalisations: the statistics and the scaling in one program, for XLA to fuse."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from opatlas.load.torch.ops.site import Builder, Built, TorchSite


def _moments(x: jax.Array, axes: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Mean and variance over ``axes``, in two passes: one pass loses what a large mean hides."""
    mean = jnp.mean(x, axes, keepdims=True)
    return mean, jnp.mean(jnp.square(x - mean), axes, keepdims=True)


def _wide(x: jax.Array) -> jax.Array:
    return x.astype(jnp.float32) if x.dtype.itemsize < 4 else x


def _per_channel(w: jax.Array, rank: int) -> jax.Array:
    return w.reshape(1, -1, *(1 for _ in range(rank - 2)))


def _batch(site: TorchSite) -> Built:
    epsilon, rank = site.number("epsilon"), site.rank()
    axes = tuple(axis for axis in range(rank) if axis != 1)

    def normalised(x, w, b, mean, var):
        scale = w * lax.rsqrt(var + epsilon)
        shift = b - mean * scale
        return (x * _per_channel(scale, rank) + _per_channel(shift, rank)).astype(x.dtype)

    if not site.flag("training_mode"):
        return normalised
    momentum = site.number("momentum")

    def run(x, w, b, mean, var):
        new_mean, new_var = (part.reshape(-1) for part in _moments(_wide(x), axes))
        centred = _wide(x) - _per_channel(new_mean, rank)
        made = centred * _per_channel(w * lax.rsqrt(new_var + epsilon), rank) + _per_channel(b, rank)
        if len(site.node.outputs) == 1:
            return made.astype(x.dtype)
        return (
            made.astype(x.dtype),
            (mean * momentum + new_mean * (1 - momentum)).astype(mean.dtype),
            (var * momentum + new_var * (1 - momentum)).astype(var.dtype),
        )

    return run


def _layer(site: TorchSite) -> Built:
    axes, epsilon = tuple(range(site.axis(), site.rank())), site.number("epsilon")
    outputs = len(site.node.outputs)

    def run(x, w, b=None):
        wide = _wide(x)
        mean, var = _moments(wide, axes)
        inverse = lax.rsqrt(var + epsilon)
        made = ((wide - mean) * inverse).astype(x.dtype) * w
        made = made if b is None else made + b
        return (made, mean, inverse)[:outputs] if outputs > 1 else made

    return run


def _rms(site: TorchSite) -> Built:
    axes, epsilon = tuple(range(site.axis(), site.rank())), site.number("epsilon")

    def run(x, w):
        wide = _wide(x)
        inverse = lax.rsqrt(jnp.mean(jnp.square(wide), axes, keepdims=True) + epsilon)
        return (wide * inverse).astype(x.dtype) * w

    return run


def _in_groups(x: jax.Array, groups: int, epsilon: float) -> jax.Array:
    parts = _wide(x).reshape(x.shape[0], groups, -1)
    mean, var = _moments(parts, (2,))
    return ((parts - mean) * lax.rsqrt(var + epsilon)).reshape(x.shape).astype(x.dtype)


def _group(site: TorchSite) -> Built:
    groups, epsilon = site.attrs["num_groups"], site.number("epsilon")
    return lambda x, w, b: _in_groups(x, groups, epsilon) * _per_channel(w, x.ndim) + _per_channel(b, x.ndim)


def _instance(site: TorchSite) -> Built:
    channels, epsilon = site.shape(0)[1], site.number("epsilon")
    return lambda x, w, b: (
        _in_groups(x, channels, epsilon) * _per_channel(w, x.ndim) + _per_channel(b, x.ndim)
    )


def _local_response(site: TorchSite) -> Built:
    size = site.attrs["size"]
    alpha, beta = site.number("alpha"), site.number("beta")
    bias = site.number("bias")
    pads = [(0, 0), ((size - 1) // 2, size // 2), *((0, 0) for _ in range(site.rank() - 2))]

    def run(x):
        padded = jnp.pad(jnp.square(x), pads)
        sums = sum(lax.slice_in_dim(padded, at, at + x.shape[1], axis=1) for at in range(size))
        return x * jnp.power(sums * (alpha / size) + bias, -beta)

    return run


def _mean_variance(site: TorchSite) -> Built:
    axes = site.attrs["axes"]

    def run(x):
        mean, var = _moments(x, axes)
        return (x - mean) / (jnp.sqrt(var) + 1e-9)

    return run


def _lp(site: TorchSite) -> Built:
    axis, power = site.axis(), site.attrs["p"]

    def run(x):
        norm = jnp.sum(jnp.abs(x) if power == 1 else jnp.square(x), axis, keepdims=True)
        norm = norm if power == 1 else jnp.sqrt(norm)
        return jnp.where(norm == 0, jnp.zeros_like(x), x / norm)

    return run


BUILDERS: dict[str, Builder] = {
    "BatchNormalization": _batch,
    "GroupNormalization": _group,
    "InstanceNormalization": _instance,
    "LRN": _local_response,
    "LayerNormalization": _layer,
    "LpNormalization": _lp,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms,
}
