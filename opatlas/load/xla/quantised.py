"""Quantising and back: whole numbers of 8, 16 and 32 bits with a scale and a zero point."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from opatlas.load.torch.ops.site import Builder, Built, TorchSite, Unsupported


def _along(site: TorchSite, parameter: jax.Array) -> jax.Array:
    """A scale or zero point with one number for each place along the axis, ready to broadcast."""
    if parameter.ndim == 0 or parameter.size == 1:
        return parameter.reshape(())
    if parameter.ndim != 1:
        raise Unsupported(f"{site.node.op} in blocks")
    axis = site.axis()
    return parameter.reshape([-1 if index == axis else 1 for index in range(site.rank())])


def _dequantise(site: TorchSite) -> Built:
    dtype = site.output().dtype

    def run(x, scale, zero=None):
        wide = x.astype(jnp.int32)
        if zero is not None:
            wide = wide - _along(site, zero).astype(jnp.int32)
        return (wide.astype(jnp.float32) * _along(site, scale)).astype(dtype)

    return run


def _quantise(site: TorchSite) -> Built:
    dtype = jnp.dtype(site.output().dtype)
    if not jnp.issubdtype(dtype, jnp.integer):
        raise Unsupported(f"QuantizeLinear to {dtype.name}")
    low, high = jnp.iinfo(dtype).min, jnp.iinfo(dtype).max

    def run(x, scale, zero=None):
        made = jnp.round(x / _along(site, scale).astype(x.dtype))
        if zero is not None:
            made = made + _along(site, zero).astype(made.dtype)
        return jnp.clip(made, low, high).astype(dtype)

    return run


def _dynamic(site: TorchSite) -> Built:
    def run(x):
        low, high = jnp.minimum(x.min(), 0), jnp.maximum(x.max(), 0)
        scale = (high - low) / 255
        zero = jnp.clip(jnp.round(-low / scale), 0, 255)
        made = jnp.clip(jnp.round(x / scale) + zero, 0, 255)
        return made.astype(jnp.uint8), scale, zero.astype(jnp.uint8)

    return run


BUILDERS: dict[str, Builder] = {
    "DequantizeLinear": _dequantise,
    "DynamicQuantizeLinear": _dynamic,
    "QuantizeLinear": _quantise,
}
