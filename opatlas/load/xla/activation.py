"""Activations, and the softmax family."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from opatlas.load.torch.ops.site import Builder, Built, TorchSite, plain


def _with(function: Built, *names: str) -> Builder:
    """A function of the input and of these attributes."""

    def build(site: TorchSite) -> Built:
        numbers = [site.number(name) for name in names]
        return lambda x: function(x, *numbers)

    return build


def _celu(x: jax.Array, alpha: float) -> jax.Array:
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0) / alpha))


def _elu(x: jax.Array, alpha: float) -> jax.Array:
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0)))


def _shrink(x: jax.Array, bias: float, bound: float) -> jax.Array:
    return jnp.where(x < -bound, x + bias, jnp.where(x > bound, x - bias, jnp.zeros_like(x)))


def _gelu(site: TorchSite) -> Built:
    if site.attrs["approximate"] == "tanh":
        return lambda x: jax.nn.gelu(x, approximate=True)
    return lambda x: 0.5 * x * (1 + jax.scipy.special.erf(x * 0.7071067811865476))


def _along_axis(function: Callable[..., jax.Array]) -> Builder:
    def build(site: TorchSite) -> Built:
        axis = site.axis()
        return lambda x: function(x, axis=axis)

    return build


def _hardmax(site: TorchSite) -> Built:
    axis = site.axis()
    return lambda x: jax.nn.one_hot(jnp.argmax(x, axis), x.shape[axis], axis=axis, dtype=x.dtype)


BUILDERS: dict[str, Builder] = {
    "Celu": _with(_celu, "alpha"),
    "Elu": _with(_elu, "alpha"),
    "Gelu": _gelu,
    "HardSigmoid": _with(lambda x, alpha, beta: jnp.clip(x * alpha + beta, 0, 1), "alpha", "beta"),
    "HardSwish": plain(lambda x: x * jnp.clip(x / 6 + 0.5, 0, 1)),
    "Hardmax": _hardmax,
    "LeakyRelu": _with(lambda x, slope: jnp.where(x < 0, x * slope, x), "alpha"),
    "LogSoftmax": _along_axis(jax.nn.log_softmax),
    "Mish": plain(lambda x: x * jnp.tanh(jax.nn.softplus(x))),
    "PRelu": plain(lambda x, slope: jnp.where(x < 0, x * slope, x)),
    "Relu": plain(lambda x: jnp.maximum(x, 0)),
    "Selu": _with(lambda x, alpha, gamma: gamma * _elu(x, alpha), "alpha", "gamma"),
    "Shrink": _with(_shrink, "bias", "lambd"),
    "Sigmoid": plain(jax.nn.sigmoid),
    "Softmax": _along_axis(jax.nn.softmax),
    "Softplus": plain(jax.nn.softplus),
    "Softsign": plain(lambda x: x / (1 + jnp.abs(x))),
    "Tanh": plain(jnp.tanh),
    "ThresholdedRelu": _with(lambda x, alpha: jnp.where(x > alpha, x, jnp.zeros_like(x)), "alpha"),
}
