"""Activations, and the softmax family."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.site import TorchSite

Built = Callable[..., torch.Tensor]


def _plain(function: Built) -> Callable[[TorchSite], Built]:
    return lambda site: function


def _number(site: TorchSite, name: str, default: float) -> float:
    return float(site.attrs.get(name, default))


def _celu(site: TorchSite) -> Built:
    alpha = _number(site, "alpha", 1.0)
    return lambda x: F.celu(x, alpha)


def _elu(site: TorchSite) -> Built:
    alpha = _number(site, "alpha", 1.0)
    return lambda x: F.elu(x, alpha)


def _gelu(site: TorchSite) -> Built:
    mode = str(site.attrs.get("approximate", "none"))
    return functools.partial(F.gelu, approximate=mode) if mode == "tanh" else F.gelu


def _hard_sigmoid(site: TorchSite) -> Built:
    alpha, beta = _number(site, "alpha", 0.2), _number(site, "beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-7 and beta == 0.5:
        return F.hardsigmoid
    return lambda x: torch.clamp(x * alpha + beta, 0, 1)


def _leaky_relu(site: TorchSite) -> Built:
    slope = _number(site, "alpha", 0.01)
    return lambda x: F.leaky_relu(x, slope)


def _prelu(site: TorchSite) -> Built:
    # The slope broadcasts to x; one slope a channel is PyTorch's own form.
    rank, slopes = site.rank(), site.shape(1)
    channels = site.shape(0)[1] if rank > 1 else 1
    per_channel = (1,) * (len(slopes) - rank + 1) + (channels,) + (1,) * (rank - 2)
    if len(slopes) and slopes == per_channel[-len(slopes) :] and len(slopes) >= rank - 1:
        return lambda x, slope: F.prelu(x, slope.reshape(-1))
    return lambda x, slope: torch.where(x < 0, x * slope, x)


def _selu(site: TorchSite) -> Built:
    alpha = _number(site, "alpha", 1.6732632423543772)
    gamma = _number(site, "gamma", 1.0507009873554805)
    if abs(alpha - 1.6732632423543772) < 1e-6 and abs(gamma - 1.0507009873554805) < 1e-6:
        return torch.selu
    return lambda x: gamma * F.elu(x, alpha)


def _shrink(site: TorchSite) -> Built:
    bias, bound = _number(site, "bias", 0.0), _number(site, "lambd", 0.5)
    zero = functools.partial(torch.zeros_like)
    return lambda x: torch.where(x < -bound, x + bias, torch.where(x > bound, x - bias, zero(x)))


def _thresholded_relu(site: TorchSite) -> Built:
    alpha = _number(site, "alpha", 1.0)
    return lambda x: F.threshold(x, alpha, 0.0)


def _softmax(site: TorchSite) -> Built:
    axis = site.axis(default=-1)
    return lambda x: torch.softmax(x, axis)


def _log_softmax(site: TorchSite) -> Built:
    axis = site.axis(default=-1)
    return lambda x: torch.log_softmax(x, axis)


def _hardmax(site: TorchSite) -> Built:
    axis = site.axis(default=-1)

    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x).scatter_(axis, first_extreme(x, axis, largest=True), 1)

    return run


def first_extreme(x: torch.Tensor, axis: int, largest: bool, keep: bool = True) -> torch.Tensor:
    """Index of the first largest (or smallest) element: PyTorch promises no order among equals."""
    return (torch.argmax if largest else torch.argmin)(x, axis, keepdim=keep)


BUILDERS: dict[str, Callable[[TorchSite], Callable[..., object]]] = {
    "Celu": _celu,
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _plain(F.hardswish),
    "Hardmax": _hardmax,
    "LeakyRelu": _leaky_relu,
    "LogSoftmax": _log_softmax,
    "Mish": _plain(F.mish),
    "PRelu": _prelu,
    "Relu": _plain(torch.relu),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": _plain(torch.sigmoid),
    "Softmax": _softmax,
    "Softplus": _plain(F.softplus),
    "Softsign": _plain(F.softsign),
    "Tanh": _plain(torch.tanh),
    "ThresholdedRelu": _thresholded_relu,
}
