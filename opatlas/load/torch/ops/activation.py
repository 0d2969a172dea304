"""Activations, and the softmax family."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.site import Builder, Built, TorchSite, is_hard_sigmoid, plain


def _with_alpha(function: Built) -> Builder:
    def build(site: TorchSite) -> Built:
        alpha = site.number("alpha")
        return lambda x: function(x, alpha)

    return build


def _gelu(site: TorchSite) -> Built:
    tanh = site.attrs["approximate"] == "tanh"
    return functools.partial(F.gelu, approximate="tanh") if tanh else F.gelu


def _hard_sigmoid(site: TorchSite) -> Built:
    alpha, beta = site.number("alpha"), site.number("beta")
    return F.hardsigmoid if is_hard_sigmoid(site) else lambda x: torch.clamp(x * alpha + beta, 0, 1)


def _prelu(site: TorchSite) -> Built:
    # The slope broadcasts to x; one slope a channel is PyTorch's own form.
    rank, slopes = site.rank(), site.shape(1)
    channels = site.shape(0)[1] if rank > 1 else 1
    per_channel = (1,) * (len(slopes) - rank + 1) + (channels,) + (1,) * (rank - 2)
    if len(slopes) and slopes == per_channel[-len(slopes) :] and len(slopes) >= rank - 1:
        return lambda x, slope: F.prelu(x, slope.reshape(-1))
    return lambda x, slope: torch.where(x < 0, x * slope, x)


def _selu(site: TorchSite) -> Built:
    alpha, gamma = site.number("alpha"), site.number("gamma")
    if abs(alpha - 1.6732632423543772) < 1e-6 and abs(gamma - 1.0507009873554805) < 1e-6:
        return torch.selu
    return lambda x: gamma * F.elu(x, alpha)


def _shrink(site: TorchSite) -> Built:
    bias, bound, zero = site.number("bias"), site.number("lambd"), torch.zeros_like
    return lambda x: torch.where(x < -bound, x + bias, torch.where(x > bound, x - bias, zero(x)))


def _thresholded_relu(site: TorchSite) -> Built:
    alpha = site.number("alpha")
    return lambda x: F.threshold(x, alpha, 0.0)


def _along_axis(function: Built) -> Builder:
    def build(site: TorchSite) -> Built:
        axis = site.axis()
        return lambda x: function(x, axis)

    return build


def _hardmax(x: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.zeros_like(x).scatter_(axis, first_extreme(x, axis, largest=True), 1)


def first_extreme(x: torch.Tensor, axis: int, largest: bool, keep: bool = True) -> torch.Tensor:
    """Index of the first largest (or smallest) element: PyTorch promises no order among equals."""
    return (torch.argmax if largest else torch.argmin)(x, axis, keepdim=keep)


BUILDERS: dict[str, Builder] = {
    "Celu": _with_alpha(F.celu),
    "Elu": _with_alpha(F.elu),
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": plain(F.hardswish),
    "Hardmax": _along_axis(_hardmax),
    "LeakyRelu": _with_alpha(F.leaky_relu),
    "LogSoftmax": _along_axis(torch.log_softmax),
    "Mish": plain(F.mish),
    "PRelu": _prelu,
    "Relu": plain(torch.relu),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": plain(torch.sigmoid),
    "Softmax": _along_axis(torch.softmax),
    "Softplus": plain(F.softplus),
    "Softsign": plain(F.softsign),
    "Tanh": plain(torch.tanh),
    "ThresholdedRelu": _thresholded_relu,
}
