"""Reductions over axes, running sums, sorted choices and losses."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.activation import first_extreme
from opatlas.load.torch.ops.site import Builder, Built, TorchSite

Reduce = Callable[[torch.Tensor, list[int], bool], torch.Tensor]


def _reduce(function: Reduce) -> Builder:
    def build(site: TorchSite) -> Built:
        keep, axes = site.flag("keepdims"), site.axes()
        if not axes:
            # Nothing to fold: what is left is the function of one element at a time.
            return lambda x, *_: function(x.unsqueeze(0), [0], False)
        return lambda x, *_: function(x, axes, keep)

    return build


def _sum(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    return torch.sum(x, axes, keep, dtype=x.dtype)


def _mean(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    if x.is_floating_point():
        return torch.mean(x, axes, keep)
    count = math.prod(x.shape[axis] for axis in axes)
    return torch.div(_sum(x, axes, keep), count, rounding_mode="trunc")


def _product(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keep, dtype=x.dtype)
    return x


def _l2(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    if x.is_floating_point():
        return torch.linalg.vector_norm(x, 2, axes, keep)
    return torch.sqrt(_sum(x * x, axes, keep).double()).to(x.dtype)


def _arg(largest: bool) -> Builder:
    def build(site: TorchSite) -> Built:
        axis, keep = site.axis(), site.flag("keepdims")
        if not site.flag("select_last_index"):
            return lambda x: first_extreme(x, axis, largest, keep)
        last = site.shape(0)[axis] - 1
        return lambda x: last - first_extreme(torch.flip(x, [axis]), axis, largest, keep)

    return build


def _cumulative_sum(site: TorchSite) -> Built:
    [axis] = site.numbers(1)
    exclusive, reverse = site.flag("exclusive"), site.flag("reverse")
    if not exclusive and not reverse:
        return lambda x, *_: torch.cumsum(x, axis, dtype=x.dtype)

    def run(x, *_):
        turned = torch.flip(x, [axis]) if reverse else x
        sums = torch.cumsum(turned, axis, dtype=x.dtype)
        if exclusive:
            sums = torch.cat(
                [torch.zeros_like(sums.narrow(axis, 0, 1)), sums.narrow(axis, 0, x.shape[axis] - 1)], axis
            )
        return torch.flip(sums, [axis]) if reverse else sums

    return run


def _top(site: TorchSite) -> Built:
    count = site.numbers(1)[0]
    axis, largest, order = site.axis(), site.flag("largest"), site.flag("sorted")
    return lambda x, *_: torch.topk(x, count, axis, largest, order)


def _loss(site: TorchSite) -> Built:
    how, ignored = site.attrs["reduction"], site.attrs.get("ignore_index", _NO_INDEX)
    function = F.nll_loss if site.node.op == "NegativeLogLikelihoodLoss" else F.cross_entropy

    def loss(x, target, weight=None):
        return function(x, target.long(), weight, ignore_index=ignored, reduction=how)

    if len(site.node.outputs) == 1:
        return loss
    return lambda x, target, weight=None: (loss(x, target, weight), torch.log_softmax(x, 1))


_NO_INDEX = -(1 << 62)  # no target has it: PyTorch's own default of -100 would be a target to ignore

BUILDERS: dict[str, Builder] = {
    "ArgMax": _arg(largest=True),
    "ArgMin": _arg(largest=False),
    "CumSum": _cumulative_sum,
    "NegativeLogLikelihoodLoss": _loss,
    "ReduceL1": _reduce(lambda x, axes, keep: _sum(x.abs(), axes, keep)),
    "ReduceL2": _reduce(_l2),
    "ReduceLogSum": _reduce(lambda x, axes, keep: torch.log(_sum(x, axes, keep))),
    "ReduceLogSumExp": _reduce(torch.logsumexp),
    "ReduceMax": _reduce(torch.amax),
    "ReduceMean": _reduce(_mean),
    "ReduceMin": _reduce(torch.amin),
    "ReduceProd": _reduce(_product),
    "ReduceSum": _reduce(_sum),
    "ReduceSumSquare": _reduce(lambda x, axes, keep: _sum(x * x, axes, keep)),
    "SoftmaxCrossEntropyLoss": _loss,
    "TopK": _top,
}
