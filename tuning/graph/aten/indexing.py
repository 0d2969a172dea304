"""Lookups and scatters by index, and the losses that pick by label."""

from __future__ import annotations

from tuning.graph.aten.builder import CannotMap, Ref, normal_axis
from tuning.graph.aten.call import AtenRule, Call, rule

_REDUCTIONS = ("none", "mean", "sum")


def embedding(call: Call) -> Ref:
    weight, indices = call.tensor("weight"), call.tensor("indices")
    return call.graph.node("Gather", weight, indices, shape=(*indices.shape, *weight.shape[1:]), axis=0)


def index_select(call: Call) -> Ref:
    x, index = call.tensor("self"), call.tensor("index")
    axis = normal_axis(call.get("dim"), len(x.shape))
    return call.graph.node(
        "Gather", x, index, shape=(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), axis=axis
    )


def gather(call: Call) -> Ref:
    """One element of the input for each element of the index."""
    x, index = call.tensor("self"), call.tensor("index")
    axis = normal_axis(call.get("dim"), len(x.shape))
    if len(index.shape) != len(x.shape):
        raise CannotMap("a gather with a scalar")
    return call.graph.node("GatherElements", x, index, shape=index.shape, axis=axis)


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
    return call.graph.node(
        "Gather", x, place, shape=(*x.shape[:axis], *place.shape, *x.shape[axis + 1 :]), axis=axis
    )


def scatter(call: Call, reduction: str = "none") -> Ref:
    x, index, source = call.tensor("self"), call.tensor("index"), call.tensor("src")
    axis = normal_axis(call.get("dim"), len(x.shape))
    if not x.shape or index.shape != source.shape or len(index.shape) != len(x.shape):
        raise CannotMap("a scatter whose source is larger than its index")
    return call.graph.node("ScatterElements", x, index, source, axis=axis, reduction=reduction)


def scatter_add(call: Call) -> Ref:
    return scatter(call, "add")


def index_add(call: Call) -> Ref:
    """Adds slices at positions along an axis: the positions are spread over the other axes first."""
    x, index, source = call.tensor("self"), call.tensor("index"), call.tensor("source")
    if call.number("alpha") != 1 or not x.shape:
        raise CannotMap("index_add with a factor")
    axis = normal_axis(call.get("dim"), len(x.shape))
    if len(x.shape) > 1:
        thin = [index.shape[0] if i == axis else 1 for i in range(len(x.shape))]
        index = call.graph.node("Reshape", index, call.graph.constant(thin), shape=thin)
        index = call.graph.node("Expand", index, call.graph.constant(list(source.shape)), shape=source.shape)
    return call.graph.node("ScatterElements", x, index, source, axis=axis, reduction="add")


def nll_loss(call: Call) -> Ref:
    """The loss itself; the total weight beside it is read by the backward pass alone."""
    x, target, weight = call.tensor("self"), call.tensor("target"), call.optional("weight")
    reduction = _REDUCTIONS[int(call.number("reduction"))]
    if len(x.shape) < 2:
        raise CannotMap("a loss of one sample without a batch dimension")
    return call.graph.node(
        "NegativeLogLikelihoodLoss", x, target, weight, shape=target.shape if reduction == "none" else (),
        reduction=reduction, ignore_index=int(call.number("ignore_index")),
    )  # fmt: skip


def mse_loss(call: Call) -> Ref:
    a, b, reduction = call.tensor("self"), call.tensor("target"), int(call.number("reduction"))
    if a.shape != b.shape or a.dtype != b.dtype:
        raise CannotMap("a loss between tensors of different shapes")
    apart = call.graph.node("Sub", a, b)
    squares = call.graph.node("Mul", apart, apart)
    if reduction == 0:
        return squares
    op = "ReduceMean" if reduction == 1 else "ReduceSum"
    return call.graph.node(op, squares, call.graph.constant(list(range(len(a.shape)))), shape=(), keepdims=0)


_LOSS = "self, target, weight=None, reduction=1, ignore_index=-100"

RULES: dict[str, AtenRule] = {
    "embedding": rule("weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False", embedding),
    "index_select": rule("self, dim, index", index_select),
    "gather": rule("self, dim, index, sparse_grad=False", gather),
    "index.Tensor": rule("self, indices", index),
    "scatter.src": rule("self, dim, index, src", scatter),
    "scatter_add": rule("self, dim, index, src", scatter_add),
    "scatter_add_": rule("self, dim, index, src", scatter_add),
    "index_add": rule("self, dim, index, source, alpha=1", index_add),
    "index_add_": rule("self, dim, index, source, alpha=1", index_add),
    "nll_loss_forward": rule(_LOSS, nll_loss),
    "nll_loss2d_forward": rule(_LOSS, nll_loss),
    "mse_loss": rule("self, target, reduction=1", mse_loss),
}
