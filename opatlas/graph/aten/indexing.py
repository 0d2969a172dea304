"""Lookups and scatters by index, and the losses that pick by label."""

from __future__ import annotations

from functools import partial

from opatlas.graph.aten.builder import CannotMap, Ref
from opatlas.graph.aten.call import AtenRule, Call, rule

_REDUCTIONS = ("none", "mean", "sum")


def embedding(call: Call) -> Ref:
    weight, indices = call.tensor("weight"), call.tensor("indices")
    return call.node("Gather", weight, indices, shape=(*indices.shape, *weight.shape[1:]), axis=0)


def index_select(call: Call) -> Ref:
    x, index = call.tensor("self"), call.tensor("index")
    axis = call.axis(x.rank)
    return call.node("Gather", x, index, shape=x.resized(axis, *index.shape), axis=axis)


def gather(call: Call) -> Ref:
    """One element of the input for each element of the index."""
    x, index = call.tensor("self"), call.tensor("index")
    axis = call.axis(x.rank)
    if index.rank != x.rank:
        raise CannotMap("a gather with a scalar")
    return call.node("GatherElements", x, index, shape=index.shape, axis=axis)


def index(call: Call) -> Ref:
    """x[:, …, indices, …]: one tensor of positions along one axis, or several side by side."""
    x, places = call.tensor("self"), call.tensors("indices")
    axes = [axis for axis, place in enumerate(places) if place is not None]
    if len(axes) != 1:
        raise CannotMap("indexing by several tensors at once")
    place = places[axes[0]]
    if place is None or place.dtype == "bool":
        raise CannotMap("indexing by truth values: the result's shape depends on data")
    axis = axes[0]
    return call.node("Gather", x, place, shape=x.resized(axis, *place.shape), axis=axis)


def scatter(call: Call, reduction: str = "none") -> Ref:
    x, index, source = call.tensor("self"), call.tensor("index"), call.tensor("src")
    axis = call.axis(x.rank)
    if not x.shape or index.shape != source.shape or index.rank != x.rank:
        raise CannotMap("a scatter whose source is larger than its index")
    return call.node("ScatterElements", x, index, source, axis=axis, reduction=reduction)


def index_add(call: Call) -> Ref:
    """Adds slices at positions along an axis: the positions are spread over the other axes first."""
    x, index, source = call.tensor("self"), call.tensor("index"), call.tensor("source")
    if call.number("alpha") != 1 or not x.shape:
        raise CannotMap("index_add with a factor")
    axis = call.axis(x.rank)
    if x.rank > 1:
        thin = [index.shape[0] if i == axis else 1 for i in range(x.rank)]
        index = call.reshaped(call.reshaped(index, thin), source.shape, "Expand")
    return call.node("ScatterElements", x, index, source, axis=axis, reduction="add")


def nll_loss(call: Call) -> Ref:
    """The loss itself; the total weight beside it is read by the backward pass alone."""
    x, target, weight = call.tensor("self"), call.tensor("target"), call.optional("weight")
    reduction = _REDUCTIONS[int(call.number("reduction"))]
    if x.rank < 2:
        raise CannotMap("a loss of one sample without a batch dimension")
    return call.node(
        "NegativeLogLikelihoodLoss", x, target, weight, shape=target.shape if reduction == "none" else (),
        reduction=reduction, ignore_index=int(call.number("ignore_index")),
    )  # fmt: skip


def mse_loss(call: Call) -> Ref:
    a, b, reduction = call.tensor("self"), call.tensor("target"), int(call.number("reduction"))
    if a.shape != b.shape or a.dtype != b.dtype:
        raise CannotMap("a loss between tensors of different shapes")
    apart = call.node("Sub", a, b)
    squares = call.node("Mul", apart, apart)
    if reduction == 0:
        return squares
    op = "ReduceMean" if reduction == 1 else "ReduceSum"
    return call.node(op, squares, call.constant(list(range(a.rank))), shape=(), keepdims=0)


_SCATTER_ADD = rule("self, dim, index, src", partial(scatter, reduction="add"))
_INDEX_ADD = rule("self, dim, index, source, alpha=1", index_add)
_LOSS = rule("self, target, weight=None, reduction=1, ignore_index=-100", nll_loss)

RULES: dict[str, AtenRule] = {
    "embedding": rule("weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False", embedding),
    "index_select": rule("self, dim, index", index_select),
    "gather": rule("self, dim, index, sparse_grad=False", gather),
    "index.Tensor": rule("self, indices", index),
    "scatter.src": rule("self, dim, index, src", scatter),
    "scatter_add": _SCATTER_ADD,
    "scatter_add_": _SCATTER_ADD,
    "index_add": _INDEX_ADD,
    "index_add_": _INDEX_ADD,
    "nll_loss_forward": _LOSS,
    "nll_loss2d_forward": _LOSS,
    "mse_loss": rule("self, target, reduction=1", mse_loss),
}
