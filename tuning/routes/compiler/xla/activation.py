"""Activations, and the softmax family."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from opatlas.load.torch.ops.site import TorchSite
from tuning.routes.compiler.xla.elementwise import Builder, Built, plain


def _number(site: TorchSite, name: str, default: float) -> float:
    return float(site.attrs.get(name, default))


def _elu(site: TorchSite) -> Built:
    alpha = _number(site, "alpha", 1.0)
    return lambda x: jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0)))


def _celu(site: TorchSite) -> Built:
    alpha = _number(site, "alpha", 1.0)
    return lambda x: jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0) / alpha))


def _selu(site: TorchSite) -> Built:
    alpha = _number(site, "alpha", 1.6732632423543772)
    gamma = _number(site, "gamma", 1.0507009873554805)
    return lambda x: gamma * jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0)))


def _gelu(site: TorchSite) -> Built:
    if str(site.attrs.get("approximate", "none")) == "tanh":
        return lambda x: jax.nn.gelu(x, approximate=True)
    return lambda x: 0.5 * x * (1 + jax.scipy.special.erf(x * 0.7071067811865476))


def _hard_sigmoid(site: TorchSite) -> Built:
    alpha, beta = _number(site, "alpha", 0.2), _number(site, "beta", 0.5)
    return lambda x: jnp.clip(x * alpha + beta, 0, 1)


def _leaky_relu(site: TorchSite) -> Built:
    slope = _number(site, "alpha", 0.01)
    return lambda x: jnp.where(x < 0, x * slope, x)


def _shrink(site: TorchSite) -> Built:
    bias, bound = _number(site, "bias", 0.0), _number(site, "lambd", 0.5)
    return lambda x: jnp.where(x < -bound, x + bias, jnp.where(x > bound, x - bias, jnp.zeros_like(x)))


def _thresholded_relu(site: TorchSite) -> Built:
    alpha = _number(site, "alpha", 1.0)
    return lambda x: jnp.where(x > alpha, x, jnp.zeros_like(x))


def _along_axis(function: Callable[..., jax.Array]) -> Builder:
    def build(site: TorchSite) -> Built:
        axis = site.axis(default=-1)
        return lambda x: function(x, axis=axis)

    return build


def _hardmax(site: TorchSite) -> Built:
    axis = site.axis(default=-1)
    return lambda x: jax.nn.one_hot(jnp.argmax(x, axis), x.shape[axis], axis=axis, dtype=x.dtype)


BUILDERS: dict[str, Builder] = {
    "Celu": _celu,
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": plain(lambda x: x * jnp.clip(x / 6 + 0.5, 0, 1)),
    "Hardmax": _hardmax,
    "LeakyRelu": _leaky_relu,
    "LogSoftmax": _along_axis(jax.nn.log_softmax),
    "Mish": plain(lambda x: x * jnp.tanh(jax.nn.softplus(x))),
    "PRelu": plain(lambda x, slope: jnp.where(x < 0, x * slope, x)),
    "Relu": plain(lambda x: jnp.maximum(x, 0)),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": plain(jax.nn.sigmoid),
    "Softmax": _along_axis(jax.nn.softmax),
    "Softplus": plain(jax.nn.softplus),
    "Softsign": plain(lambda x: x / (1 + jnp.abs(x))),
    "Tanh": plain(jnp.tanh),
    "ThresholdedRelu": _thresholded_relu,
}
