"""Reductions whose sums lie side by side in vector registers, and the normalisations made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tuning.routes.compiler.halide import intrinsics as fn
from tuning.routes.compiler.halide.site import HalideSite, HalideTensor, Index, Pipeline, broadcast

_CHUNK = 16384
"""Elements that make it worth while to give a lone sum to several threads."""
_LOWEST = {"float32": -3.4028234663852886e38, "float64": -1.7976931348623157e308}


def reduced(
    p: Pipeline,
    source: HalideTensor,
    axes: Sequence[int],
    kind: str,
    *,
    term: Callable[[Any], Any] | None = None,
) -> HalideTensor:
    """The source reduced over ``axes``, which stay with an extent of 1. ``kind``: sum, prod, max, min.

    Where the innermost axis is reduced, as many partial results as two vectors hold lie side by side:
    Halide's autoschedulers make vectors of a result's axes only.
    """
    shape, dtype = source.shape, source.dtype
    read = (lambda at: term(source.at(at))) if term else source.at
    first, join = _start(p, dtype, kind), _join(p, kind)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    over = [axis for axis in range(len(shape)) if axis in axes]
    kept_shape = [shape[axis] for axis in kept]

    def place(inner: Sequence[Any], reduction: Sequence[Any]) -> list[Any]:
        index: list[Any] = [None] * len(shape)
        for axis, i in zip(kept, inner, strict=True):
            index[axis] = i
        for axis, i in zip(over, reduction, strict=True):
            index[axis] = i
        return index

    lanes = 2 * p.lanes
    about = {"kept": tuple(kept)}
    if not over or over[-1] != len(shape) - 1 or shape[-1] < 2 * lanes:
        updates = [([shape[a] for a in over], lambda s, i, r: join(s, read(place(i, r))))]
        total = p.accumulate("total", kept_shape, dtype, first, updates, role="total", **about)
        return _kept_as_one(total, shape, axes)
    extent, outer = shape[-1], [shape[axis] for axis in over[:-1]]
    chunks = _chunks(p, prod(kept_shape), extent // lanes, prod(outer))
    steps = extent // (lanes * chunks)
    split = [chunks] if chunks > 1 else []

    def side_by_side(so_far: Any, i: list[Any], r: list[Any]) -> Any:
        step = i[len(kept)] * steps + r[-1] if chunks > 1 else r[-1]
        return join(so_far, read(place(i[: len(kept)], [*r[:-1], step * lanes + i[-1]])))

    partial = p.accumulate(
        "partial",
        [*kept_shape, *split, lanes],
        dtype,
        first,
        [([*outer, steps], side_by_side)],
        role="partial",
        **about,
    )
    updates = [([*split, lanes], lambda s, i, r: join(s, partial.at([*i, *r])))]
    done = steps * chunks * lanes
    if done < extent:
        rest = [*outer, extent - done]
        updates.append((rest, lambda s, i, r: join(s, read(place(i, [*r[:-1], r[-1] + done])))))
    total = p.accumulate("total", kept_shape, dtype, first, updates, role="total", **about)
    return _kept_as_one(total, shape, axes)


def _chunks(p: Pipeline, results: int, vectors: int, outer: int) -> int:
    """Parts of a long sum that several threads can add up: 1 where there are results enough."""
    if results >= 2 * p.threads or p.threads == 1 or vectors * outer * 2 * p.lanes < _CHUNK:
        return 1
    return max(1, min(4 * p.threads, vectors))


def _kept_as_one(total: HalideTensor, shape: Sequence[int], axes: Sequence[int]) -> HalideTensor:
    full = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))

    def at(index: Index) -> Any:
        return total.at([i for axis, i in enumerate(index) if axis not in axes])

    return HalideTensor(full, total.dtype, at, cheap=True)


def _start(p: Pipeline, dtype: str, kind: str) -> Any:
    if kind in ("sum", "prod"):
        return p.constant(0 if kind == "sum" else 1, dtype)
    sign = 1.0 if kind == "max" else -1.0
    if dtype in _LOWEST:
        # Relaxed rules know no infinity.
        return p.constant(sign * (float("-inf") if p.strict else _LOWEST[dtype]), dtype)
    kind_of = p.type(dtype)
    return kind_of.min() if kind == "max" else kind_of.max()


def _join(p: Pipeline, kind: str) -> Callable[[Any, Any], Any]:
    hl = p.hl
    if kind == "sum":
        return lambda a, b: a + b
    if kind == "prod":
        return lambda a, b: a * b
    # max and min of the processor give the second operand where one is NaN: the new one, and for good
    # only where a comparison says so.
    if kind == "max":
        return lambda a, b: hl.select(a > b, a, b) if not p.strict else _nan_kept(hl, a, b, a > b)
    return lambda a, b: hl.select(a < b, a, b) if not p.strict else _nan_kept(hl, a, b, a < b)


def _nan_kept(hl: Any, a: Any, b: Any, first: Any) -> Any:
    return hl.select(first | hl.is_nan(a), a, b) if a.type().is_float() else hl.select(first, a, b)


def reduce_node(site: HalideSite) -> list[HalideTensor]:
    """ReduceSum and its kin."""
    source, axes, p, op = site.tensor(0), site.axes(), site.p, site.node.op
    made = site.output()
    source = HalideTensor(source.shape, made.dtype, source.at, source.cheap) if axes else source
    terms: dict[str, Callable[[Any], Any]] = {
        "ReduceL1": site.hl.abs,
        "ReduceL2": lambda x: x * x,
        "ReduceSumSquare": lambda x: x * x,
    }
    kind = {"ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod"}.get(op, "sum")
    if op == "ReduceLogSumExp":
        largest = reduced(p, source, axes, "max")
        spread = broadcast(largest, len(source.shape))
        below = HalideTensor(source.shape, source.dtype, lambda i: fn.exp(source.at(i) - spread(i)))
        total = reduced(p, below, axes, "sum")
    else:
        largest, total = None, reduced(p, source, axes, kind, term=terms.get(op))
    count = prod(source.shape[axis] for axis in axes)

    def at(index: Index) -> Any:
        full = list(index)
        if len(full) != len(source.shape):
            rest = iter(index)
            full = [0 if axis in axes else next(rest) for axis in range(len(source.shape))]
        value = total.at(full)
        if op == "ReduceMean":
            return value / p.constant(count, made.dtype)
        if op == "ReduceL2":
            return site.hl.sqrt(value)
        if op in ("ReduceLogSum", "ReduceLogSumExp"):
            value = site.hl.log(value)
            return value + largest.at(full) if largest else value
        return value

    return [HalideTensor(made.shape, made.dtype, at)]


def softmax(site: HalideSite) -> list[HalideTensor]:
    """Softmax and LogSoftmax, less the row's largest, so that nothing overflows."""
    p, source, axis = site.p, site.p.stored(site.tensor(0)), site.axis()
    rank = len(source.shape)
    largest = broadcast(reduced(p, source, [axis], "max"), rank)
    if site.node.op == "LogSoftmax":
        powers = HalideTensor(source.shape, source.dtype, lambda i: fn.exp(source.at(i) - largest(i)))
        total = broadcast(reduced(p, powers, [axis], "sum"), rank)
        return [
            HalideTensor(
                source.shape, source.dtype, lambda i: source.at(i) - largest(i) - site.hl.log(total(i))
            )
        ]
    powers = p.function("power", source.shape, source.dtype, lambda i: fn.exp(source.at(i) - largest(i)))
    total = broadcast(reduced(p, powers, [axis], "sum"), rank)
    return [HalideTensor(source.shape, source.dtype, lambda i: powers.at(i) / total(i))]


def normalise(site: HalideSite) -> list[HalideTensor]:
    """Layer, RMS, instance and group normalisation: over the innermost axes, then scale and bias."""
    p, op = site.p, site.node.op
    source = p.stored(site.tensor(0))
    shape, dtype = source.shape, source.dtype
    if op == "GroupNormalization" and shape[1] != site.attrs["num_groups"]:
        return _grouped(site, source, site.attrs["num_groups"])
    first = site.axis() if op in ("LayerNormalization", "RMSNormalization") else 2
    axes = list(range(first, len(shape)))
    scale = _per_channel(site, 1)
    bias = _per_channel(site, 2) if site.has(2) else None
    value, mean, inverse = _standard(site, source, axes, centred=op != "RMSNormalization")

    def at(index: Index) -> Any:
        made = value(index) * scale(index)
        return made if bias is None else made + bias(index)

    made = [HalideTensor(shape, dtype, at)]
    if op == "LayerNormalization":
        made += [extra for extra in (mean, inverse) if extra is not None]
    return made


def _per_channel(site: HalideSite, position: int) -> Callable[[Index], Any]:
    tensor = site.tensor(position)
    if site.node.op in ("LayerNormalization", "RMSNormalization"):
        return lambda index: broadcast(tensor, len(index))(index)
    return lambda index: tensor.at([index[1]])


def _grouped(site: HalideSite, source: HalideTensor, groups: int) -> list[HalideTensor]:
    """Group normalisation as (batch, group, channel in the group, …)."""
    batch, channels, *rest = source.shape
    size = channels // groups
    split = HalideTensor(
        (batch, groups, size, *rest),
        source.dtype,
        lambda i: source.at([i[0], i[1] * size + i[2], *i[3:]]),
        cheap=True,
    )
    value, _, _ = _standard(site, split, list(range(2, len(split.shape))), centred=True)
    scale, bias = site.tensor(1), site.tensor(2)

    def at(i: Index) -> Any:
        made = value([i[0], i[1] / size, i[1] % size, *i[2:]])
        return made * scale.at([i[1]]) + bias.at([i[1]])

    return [HalideTensor(source.shape, source.dtype, at)]


def _standard(
    site: HalideSite, source: HalideTensor, axes: list[int], *, centred: bool
) -> tuple[Callable[[Index], Any], HalideTensor | None, HalideTensor]:
    """(value ‑ mean) ÷ deviation, the mean, and 1 ÷ deviation; two passes, as exact as can be."""
    p, rank, dtype = site.p, len(source.shape), source.dtype
    count = p.constant(prod(source.shape[axis] for axis in axes), dtype)
    mean: HalideTensor | None = None
    middle: Callable[[Index], Any] | None = None
    if centred:
        total = reduced(p, source, axes, "sum")
        mean = HalideTensor(total.shape, dtype, lambda i: total.at(i) / count)
        middle = broadcast(p.stored(mean, "mean"), rank)

    def less(index: Index) -> Any:
        return source.at(index) - middle(index) if middle else source.at(index)

    squares = reduced(p, HalideTensor(source.shape, dtype, less), axes, "sum", term=lambda x: x * x)
    epsilon = p.constant(site.number("epsilon"), dtype)
    one = p.constant(1.0, dtype)
    inverse = p.function(
        "inverse", squares.shape, dtype, lambda i: one / site.hl.sqrt(squares.at(i) / count + epsilon)
    )
    spread = broadcast(inverse, rank)
    return lambda index: less(index) * spread(index), mean, inverse


def batch_normalise(site: HalideSite) -> list[HalideTensor]:
    """By given statistics, or (``training_mode``) by the batch's own, with the running ones carried on."""
    p, source = site.p, site.tensor(0)
    dtype, channels = source.dtype, source.shape[1]
    scale, bias, mean, variance = (site.tensor(position) for position in range(1, 5))
    epsilon, one = p.constant(site.number("epsilon"), dtype), p.constant(1.0, dtype)
    made: list[HalideTensor] = []
    if site.flag("training_mode"):
        source = p.stored(source)
        axes = [axis for axis in range(len(source.shape)) if axis != 1]
        count = p.constant(prod(source.shape) // channels, dtype)
        pad = [0] * (len(source.shape) - 2)
        total = reduced(p, source, axes, "sum")
        own = p.function("mean", (channels,), dtype, lambda c: total.at([0, c[0], *pad]) / count)
        less = HalideTensor(source.shape, dtype, lambda i: source.at(i) - own.at([i[1]]))
        squares = reduced(p, less, axes, "sum", term=lambda x: x * x)
        spread = p.function("variance", (channels,), dtype, lambda c: squares.at([0, c[0], *pad]) / count)
        momentum = site.number("momentum")
        keep, gone = p.constant(momentum, dtype), p.constant(1.0 - momentum, dtype)
        for position, old, new in ((1, mean, own), (2, variance, spread)):
            if site.wants(position):
                made.append(_mixed(channels, dtype, old, new, keep, gone))
        mean, variance = own, spread
    factor = p.function(
        "factor",
        (channels,),
        dtype,
        lambda c: scale.at(c) * (one / site.hl.sqrt(variance.at(c) + epsilon)),
        role="first",
    )
    shift = p.function(
        "shift", (channels,), dtype, lambda c: bias.at(c) - mean.at(c) * factor.at(c), role="first"
    )

    def at(i: Index) -> Any:
        return source.at(i) * factor.at([i[1]]) + shift.at([i[1]])

    return [HalideTensor(source.shape, dtype, at), *made]


def _mixed(
    channels: int, dtype: str, old: HalideTensor, new: HalideTensor, keep: Any, gone: Any
) -> HalideTensor:
    return HalideTensor((channels,), dtype, lambda c: old.at(c) * keep + new.at(c) * gone)
