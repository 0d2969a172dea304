"""Sums, means, extremes, variances, running sums, top-k."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from opatlas.graph.aten.builder import CannotMap, Ref, is_float, normal_axis
from opatlas.graph.aten.call import AtenRule, Call, rule


def _axes(call: Call, rank: int) -> list[int]:
    """The ``dim`` argument as axes counted from the front; all of them where it is left out or empty."""
    given = call.arguments.get("dim")
    if given is None or given == []:
        return list(range(rank))
    return sorted({normal_axis(axis, rank) for axis in call.numbers("dim")})


def _reduced(shape: Sequence[int], axes: Sequence[int], keep: bool) -> tuple[int, ...]:
    return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape) if keep or axis not in axes)


def _reduce(call: Call, op: str, x: Ref, axes: list[int], keep: bool) -> Ref:
    if not x.shape:
        return call.node("Identity", x)
    shape = _reduced(x.shape, axes, keep)
    return call.node(op, x, call.constant(axes), shape=shape, keepdims=int(keep))


def reduction(op: str, *, whole: str | None = None, dtype: str | None = None) -> Callable[[Call], Ref]:
    """A reduction over ``dim`` in ``dtype``, where that is said; ``whole`` is that of whole numbers."""

    def build(call: Call) -> Ref:
        x = call.tensor("self")
        wanted = call.dtype("dtype") if "dtype" in call.arguments else dtype
        x = call.cast(x, wanted or (x.dtype if is_float(x.dtype) else whole) or x.dtype)
        return _reduce(call, op, x, _axes(call, x.rank), bool(call.arguments.get("keepdim")))

    return build


_sum, _product = (reduction(op, whole="int64") for op in ("ReduceSum", "ReduceProd"))
_any, _all = (reduction(op, dtype="bool") for op in ("ReduceMax", "ReduceMin"))


def extreme_with_place(value: str, place: str) -> Callable[[Call], list[Ref]]:
    """Largest or smallest along one axis, and where it stands (the first, where several are equal)."""

    def build(call: Call) -> list[Ref]:
        x, keep = call.tensor("self"), call.flag("keepdim")
        axis = call.axis(x.rank)
        if not x.shape:
            raise CannotMap("a reduction of a scalar along an axis")
        best = _reduce(call, value, x, [axis], keep)
        where = call.node(place, x, shape=best.shape, dtype="int64", axis=axis, keepdims=int(keep))
        return [best, where]

    return build


def place_of(op: str) -> Callable[[Call], Ref]:
    def build(call: Call) -> Ref:
        x, keep = call.tensor("self"), call.flag("keepdim")
        if call.get("dim") is None or not x.shape:
            raise CannotMap("the place of an extreme of the flattened tensor")
        axis = call.axis(x.rank)
        return call.node(
            op, x, shape=_reduced(x.shape, [axis], keep), dtype="int64", axis=axis, keepdims=int(keep)
        )

    return build


def _moments(call: Call) -> tuple[Ref, Ref, list[int]]:
    """Variance and mean with the reduced axes kept."""
    x = call.tensor("self")
    axes, correction = _axes(call, x.rank), call.arguments.get("correction", 1)
    count = math.prod(x.shape[axis] for axis in axes) if x.shape else 1
    rest = count - (1 if correction is None else int(correction))
    if rest <= 0 or not is_float(x.dtype) or not x.shape:
        raise CannotMap("a variance of too few numbers")
    mean = _reduce(call, "ReduceMean", x, axes, True)
    apart = call.node("Sub", x, mean)
    squares = _reduce(call, "ReduceMean", call.node("Mul", apart, apart), axes, True)
    if rest != count:
        squares = call.node("Mul", squares, call.constant(count / rest, x.dtype))
    return squares, mean, axes


def _squeezed(call: Call, value: Ref, axes: list[int]) -> Ref:
    if call.flag("keepdim"):
        return value
    return call.node("Squeeze", value, call.constant(axes), shape=_reduced(value.shape, axes, False))


def variance(call: Call, *, root: bool = False) -> Ref:
    squares, _, axes = _moments(call)
    return _squeezed(call, call.node("Sqrt", squares) if root else squares, axes)


def variance_and_mean(call: Call) -> list[Ref]:
    squares, mean, axes = _moments(call)
    return [_squeezed(call, squares, axes), _squeezed(call, mean, axes)]


def vector_norm(call: Call) -> Ref:
    order = call.number("ord")
    if order not in (1, 2) or call.get("dtype") is not None:
        raise CannotMap("a norm of an order other than 1 and 2")
    return reduction("ReduceL1" if order == 1 else "ReduceL2")(call)


def cumsum(call: Call) -> Ref:
    x = call.tensor("self")
    wanted = call.dtype("dtype") or (x.dtype if is_float(x.dtype) else "int64")
    x = call.cast(x, wanted)
    if not x.shape:
        return call.node("Identity", x)
    axis = call.axis(x.rank)
    return call.node("CumSum", x, call.constant(axis, "int64", ()))


def topk(call: Call) -> list[Ref]:
    x, k = call.tensor("self"), int(call.number("k"))
    axis = call.axis(x.rank)
    shape = tuple(k if i == axis else dim for i, dim in enumerate(x.shape))
    return call.nodes_of(
        "TopK",
        [x, call.constant([k])],
        [(x.dtype, shape), ("int64", shape)],
        axis=axis,
        largest=int(call.flag("largest")),
        sorted=int(call.flag("sorted")),
    )


_DIM = "self, dim=None, keepdim=False"

RULES: dict[str, AtenRule] = {
    "sum.SymInt": rule("self, dim=None, keepdim=False, dtype=None", _sum),
    "sum.dim_IntList": rule("self, dim=None, keepdim=False, dtype=None", _sum),
    "sum": rule("self, dtype=None", _sum),
    "mean.dim": rule("self, dim=None, keepdim=False, dtype=None", reduction("ReduceMean")),
    "mean": rule("self, dtype=None", reduction("ReduceMean")),
    "prod": rule("self, dtype=None", _product),
    "prod.dim_int": rule("self, dim, keepdim=False, dtype=None", _product),
    "amax": rule("self, dim=[], keepdim=False", reduction("ReduceMax")),
    "amin": rule("self, dim=[], keepdim=False", reduction("ReduceMin")),
    "max": rule("self", reduction("ReduceMax")),
    "min": rule("self", reduction("ReduceMin")),
    "max.dim": rule("self, dim, keepdim=False", extreme_with_place("ReduceMax", "ArgMax")),
    "min.dim": rule("self, dim, keepdim=False", extreme_with_place("ReduceMin", "ArgMin")),
    "argmax": rule(_DIM, place_of("ArgMax")),
    "argmin": rule(_DIM, place_of("ArgMin")),
    "any": rule("self", _any),
    "any.dim": rule("self, dim, keepdim=False", _any),
    "all": rule("self", _all),
    "all.dim": rule("self, dim, keepdim=False", _all),
    "logsumexp": rule("self, dim, keepdim=False", reduction("ReduceLogSumExp")),
    "linalg_vector_norm": rule("self, ord=2, dim=None, keepdim=False, dtype=None", vector_norm),
    "var.correction": rule("self, dim=None, correction=None, keepdim=False", variance),
    "std.correction": rule("self, dim=None, correction=None, keepdim=False", partial(variance, root=True)),
    "var_mean.correction": rule("self, dim=None, correction=None, keepdim=False", variance_and_mean),
    "cumsum": rule("self, dim, dtype=None", cumsum),
    "topk": rule("self, k, dim=-1, largest=True, sorted=True", topk),
}
