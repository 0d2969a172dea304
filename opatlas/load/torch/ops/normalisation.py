"""Normalisations, in inference (batch normalisation in training mode too: open logs hold such calls)."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.site import Builder, Built, TorchSite
from opatlas.load.torch.ops.types import float_type


def _batch(site: TorchSite) -> Built:
    made = _batch_of_one_type(site)
    return _widened(made) if is_mixed(site) else made


def is_mixed(site: TorchSite) -> bool:
    """Whether scale and statistics have other types: ONNX allows any, PyTorch hardly any."""
    return len({site.input(number).dtype for number in range(5)}) > 1


def _widened(function: Built) -> Built:
    def run(x, w, b, mean, var):
        tensors = (x, w, b, mean, var)
        wide = functools.reduce(torch.promote_types, (one.dtype for one in tensors), torch.float32)
        made = function(*(one.to(wide) for one in tensors))
        if isinstance(made, torch.Tensor):
            return made.to(x.dtype)
        return made[0].to(x.dtype), made[1].to(mean.dtype), made[2].to(var.dtype)

    return run


def _batch_of_one_type(site: TorchSite) -> Built:
    epsilon = site.number("epsilon")
    if not site.flag("training_mode"):
        return lambda x, w, b, mean, var: F.batch_norm(x, mean, var, w, b, False, 0.0, epsilon)
    momentum = site.number("momentum")
    axes = [axis for axis in range(site.rank()) if axis != 1]
    if len(site.node.outputs) == 1:
        return lambda x, w, b, mean, var: F.batch_norm(x, None, None, w, b, True, 0.0, epsilon)
    if momentum == 0:
        return _batch_with_statistics(epsilon)

    def run(x, w, b, mean, var):
        # ONNX keeps the population's variance, PyTorch the sample's: the running values are made here.
        new_var, new_mean = torch.var_mean(x, axes, correction=0)
        made = F.batch_norm(x, None, None, w, b, True, 0.0, epsilon)
        return (
            made,
            mean * momentum + new_mean.to(mean.dtype) * (1 - momentum),
            var * momentum + new_var.to(var.dtype) * (1 - momentum),
        )

    return run


def _batch_with_statistics(epsilon: float) -> Built:
    """The batch's own mean and variance, as PyTorch's one call makes them beside the normalised tensor."""

    def run(x, w, b, mean, var):
        made, new_mean, inverse = torch.native_batch_norm(x, w, b, None, None, True, 0.0, epsilon)
        return made, new_mean.to(mean.dtype), (inverse.pow(-2) - epsilon).to(var.dtype)

    return run


def _layer(site: TorchSite) -> Built:
    axis, epsilon = site.axis(), site.number("epsilon")
    shape = site.shape(0)[axis:]
    biased = site.has(2)
    if len(site.node.outputs) == 1:
        if site.shape(1) == shape and (not biased or site.shape(2) == shape):
            return lambda x, w, b=None: F.layer_norm(x, shape, w, b, epsilon)
        return lambda x, w, b=None: _scaled(F.layer_norm(x, shape, None, None, epsilon), w, b)
    axes = list(range(axis, site.rank()))
    stash = float_type(site, site.output(1).dtype)  # the statistics keep their own, wider type

    def run(x, w, b=None):
        wide = x.to(stash)
        var, mean = torch.var_mean(wide, axes, correction=0, keepdim=True)
        inverse = torch.rsqrt(var + epsilon)
        return _scaled(((wide - mean) * inverse).to(x.dtype), w, b), mean, inverse

    return run


def _scaled(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x * scale if bias is None else x * scale + bias


def _rms(site: TorchSite) -> Built:
    axis, epsilon = site.axis(), site.number("epsilon")
    shape = site.shape(0)[axis:]
    if site.shape(1) == shape:
        return lambda x, w: F.rms_norm(x, shape, w, epsilon)
    return lambda x, w: F.rms_norm(x, shape, None, epsilon) * w


def _group(site: TorchSite) -> Built:
    groups, epsilon = site.attrs["num_groups"], site.number("epsilon")
    return lambda x, w, b: F.group_norm(x, groups, w, b, epsilon)


def _instance(site: TorchSite) -> Built:
    epsilon = site.number("epsilon")
    if all(size == 1 for size in site.shape(0)[2:]):
        # PyTorch's checked calls refuse one element a channel: they think of training.
        batch, channels = site.shape(0)[:2]
        return lambda x, w, b: torch.native_group_norm(x, w, b, batch, channels, 1, channels, epsilon)[0]
    return lambda x, w, b: F.instance_norm(x, None, None, w, b, True, 0.0, epsilon)


def _local_response(site: TorchSite) -> Built:
    size = site.attrs["size"]
    alpha, beta = site.number("alpha"), site.number("beta")
    bias = site.number("bias")
    if size % 2:
        return lambda x: F.local_response_norm(x, size, alpha, beta, bias)
    before, after = (size - 1) // 2, size // 2  # PyTorch leans the other way for even sizes

    def run(x):
        flat = x.reshape(x.shape[0], 1, x.shape[1], -1)
        squares = F.avg_pool2d(F.pad(flat * flat, (0, 0, before, after)), (size, 1), 1)
        return x / torch.pow(squares.reshape(x.shape) * alpha + bias, beta)

    return run


def _mean_variance(site: TorchSite) -> Built:
    axes = site.attrs["axes"]

    def run(x):
        var, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
        return (x - mean) / (torch.sqrt(var) + 1e-9)

    return run


def _lp(site: TorchSite) -> Built:
    axis, power = site.axis(), site.number("p")

    def run(x):
        norm = torch.linalg.vector_norm(x, power, axis, keepdim=True)
        return torch.where(norm == 0, torch.zeros_like(x), x / norm)

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
