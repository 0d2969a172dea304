"""Matrix products and convolutions: sums of products over a reduction domain.

``layout`` says which axis of the result lies innermost while it is summed up: ``rows`` (the result's own), or
``channels``, for which constant weights are packed ahead and the result is turned round at the end.
``panels`` is ``rows`` with a constant matrix cut into panels ahead.
"""

from __future__ import annotations

from typing import Any

from opatlas.load.torch.ops.windows import read_window
from tuning.routes.base import RouteError
from tuning.routes.compiler.halide.pooling import edged
from tuning.routes.compiler.halide.site import HalideSite, HalideTensor, Index, broadcast
from tuning.routes.compiler.halide.tiles import tile

CHANNELS_LAST, PANELS = "channels", "panels"


def packed(site: HalideSite, position: int, order: tuple[int, ...]) -> HalideTensor:
    """An input with its axes in another order: done ahead where it is constant, else read as it lies.
    ``at`` takes the input's own indices."""
    tensor = site.tensor(position)
    number = tensor.number
    if number < 0 or site.p.operator.inputs[number].role != "const":
        return site.p.stored(tensor, wide=True)
    if site.p.packed.setdefault(number, order) != order:
        raise ValueError("one constant in two layouts")
    return tensor


def panelled(site: HalideSite, turned: bool) -> HalideTensor:
    """A constant second factor cut into panels as wide as a register tile, each dense from top to bottom:
    rows of a wide matrix lie so far apart that every one costs a look at another page."""
    tensor, made = site.tensor(1), site.output()
    if tensor.number < 0 or len(tensor.shape) != 2 or len(made.shape) != 2:
        raise RouteError("panels are for one constant matrix")
    _, vectors, lanes = tile(made.shape, 0, site.p.lanes, whole=True)
    if made.shape[1] % (vectors * lanes):
        raise RouteError("panels do not cover the matrix")
    site.p.panels[tensor.number] = (0 if turned else 1, vectors * lanes)
    site.p.packed[tensor.number] = (0, 2, 1) if turned else (1, 0, 2)
    return tensor


def matmul(site: HalideSite) -> list[HalideTensor]:
    """MatMul and Gemm. (…, M, K) · (…, K, N), either side transposed by Gemm's attributes."""
    p, made = site.p, site.output()
    gemm = site.node.op == "Gemm"
    turned_a, turned_b = site.flag("transA"), site.flag("transB")
    a = p.stored(site.tensor(0), wide=True)
    rank_b = len(site.input(1).shape)
    order = (*range(rank_b - 2), rank_b - 1, rank_b - 2) if turned_b else tuple(range(rank_b))
    b = packed(site, 1, order) if p.layout != PANELS else panelled(site, turned_b)
    a_vector, b_vector = len(a.shape) == 1, len(b.shape) == 1
    depth = a.shape[-2] if turned_a else a.shape[-1]
    batch = made.shape[: len(made.shape) - 2 + a_vector + b_vector]
    rows = () if a_vector else (made.shape[len(batch)],)
    columns = () if b_vector else (made.shape[-1],)

    def left(outer: Index, m: list[Any], k: Any) -> Any:
        if a_vector:
            return a.at([k])
        own = _batch_index(a, outer)
        return a.at([*own, k, *m]) if turned_a else a.at([*own, *m, k])

    def right(outer: Index, n: list[Any], k: Any) -> Any:
        if b_vector:
            return b.at([k])
        own = _batch_index(b, outer)
        return b.at([*own, *n, k]) if turned_b else b.at([*own, k, *n])

    def term(i: list[Any], k: Any) -> Any:
        outer, rest = i[: len(batch)], i[len(batch) :]
        return left(outer, rest[: len(rows)], k) * right(outer, rest[len(rows) :], k)

    shape = (*batch, *rows, *columns)
    along = b_vector or (turned_b and b.number not in p.packed)
    total = dot(site, shape, made.dtype, depth, term, along=along)
    if not gemm:
        return [total]
    alpha, beta = (p.constant(site.number(name), made.dtype) for name in ("alpha", "beta"))
    scaled, shifted = (site.number(name) != 1.0 for name in ("alpha", "beta"))
    bias = broadcast(site.tensor(2), 2) if site.has(2) else None

    def at(index: Index) -> Any:
        value = total.at(index) * alpha if scaled else total.at(index)
        if bias is None:
            return value
        return value + (bias(index) * beta if shifted else bias(index))

    return [HalideTensor(made.shape, made.dtype, at)]


def dot(
    site: HalideSite, shape: tuple[int, ...], dtype: str, depth: int, term: Any, *, along: bool
) -> HalideTensor:
    """Sums over ``depth``. ``along``: both factors lie along it in memory, so that vectors are of it too."""
    p = site.p
    lanes = p.lanes
    zero = p.constant(0.0, dtype)
    if not along or depth < 2 * lanes:
        updates = [([depth], lambda s, i, r: s + term(i, r[0]))]
        return p.accumulate("product", shape, dtype, zero, updates, role="product")
    steps = depth // lanes
    partial = p.accumulate(
        "partial",
        (*shape, lanes),
        dtype,
        zero,
        [([steps], lambda s, i, r: s + term(i[:-1], r[0] * lanes + i[-1]))],
        role="dots",
        kept=tuple(range(len(shape))),
    )
    updates = [([lanes], lambda s, i, r: s + partial.at([*i, r[0]]))]
    if depth % lanes:
        updates.append(([depth % lanes], lambda s, i, r: s + term(i, r[0] + steps * lanes)))
    return p.accumulate("total", shape, dtype, zero, updates, role="dot", kept=tuple(range(len(shape))))


def _batch_index(tensor: HalideTensor, outer: Index) -> list[Any]:
    own = tensor.shape[:-2]
    skip = len(outer) - len(own)
    return [0 if extent == 1 else i for extent, i in zip(own, outer[skip:], strict=True)]


def conv(site: HalideSite) -> list[HalideTensor]:
    """Conv over any number of spatial axes, grouped, dilated, strided, padded, with bias."""
    p, made = site.p, site.output()
    source, weights_value = site.tensor(0), site.input(1)
    spatial = len(source.shape) - 2
    window, group = read_window(site), site.attrs["group"]
    kernel, strides, dilations = window.kernel, window.strides, window.dilations
    per_group_in, per_group_out = weights_value.shape[1], made.shape[1] // group
    padded = p.stored(edged(site, source, window, p.constant(0.0, made.dtype)), wide=True)
    turned = p.layout == CHANNELS_LAST and per_group_out > 1
    order = (1, *range(2, 2 + spatial), 0) if turned else tuple(range(2 + spatial))
    weights = packed(site, 1, order) if turned else p.stored(site.tensor(1), wide=True)

    def term(n: Any, o: Any, places: list[Any], r: list[Any]) -> Any:
        where = [x * s + k * d for x, s, k, d in zip(places, strides, r[1:], dilations, strict=True)]
        base = r[0] if group == 1 else (o if per_group_out == 1 else o / per_group_out) * per_group_in + r[0]
        if group > 1 and per_group_in == 1:
            base = o if per_group_out == 1 else o / per_group_out
        return padded.at([n, base, *where]) * weights.at([o, *r])

    domain = [per_group_in, *kernel]
    if turned:
        shape = (made.shape[0], *made.shape[2:], made.shape[1])
        updates = [(domain, lambda s, i, r: s + term(i[0], i[-1], i[1:-1], r))]
    else:
        shape = made.shape
        updates = [(domain, lambda s, i, r: s + term(i[0], i[1], i[2:], r))]
    total = p.accumulate("product", shape, made.dtype, p.constant(0.0, made.dtype), updates, role="product")
    bias = site.tensor(2) if site.has(2) else None

    def at(i: Index) -> Any:
        value = total.at([i[0], *i[2:], i[1]]) if turned else total.at(i)
        return value if bias is None else value + bias.at([i[1]])

    return [HalideTensor(made.shape, made.dtype, at)]


def conv_transpose(site: HalideSite) -> list[HalideTensor]:
    """ConvTranspose, gathered: for each result the kernel's places whose source is a whole step away."""
    p, made, hl = site.p, site.output(), site.hl
    source, weights = (p.stored(site.tensor(position), wide=True) for position in (0, 1))
    spatial = len(source.shape) - 2
    window, group = read_window(site), site.attrs["group"]
    kernel, strides, dilations, before = window.kernel, window.strides, window.dilations, window.begins
    ins, outs = source.shape[1] // group, weights.shape[1]
    # With a dilation the whole kernel is tried; without, only every stride-th place can meet the source.
    tried = [k if d > 1 else -(-k // s) for k, s, d in zip(kernel, strides, dilations, strict=True)]

    def term(so_far: Any, i: list[Any], r: list[Any]) -> Any:
        where, taken, checks = [], [], []
        for axis in range(spatial):
            place = i[2 + axis] + before[axis]
            s, d, k, n = strides[axis], dilations[axis], kernel[axis], source.shape[2 + axis]
            if d > 1:
                tap, moved = r[1 + axis], place - r[1 + axis] * d
                at = moved / s
                checks.append((moved % s == 0) & (at >= 0) & (at < n))
            else:
                tap, at = place % s + r[1 + axis] * s, place / s - r[1 + axis]
                checks.append((tap < k) & (at >= 0) & (at < n))
            taken.append(hl.clamp(tap, 0, k - 1))
            where.append(hl.clamp(at, 0, n - 1))
        block = i[1] / outs
        value = source.at([i[0], block * ins + r[0] if group > 1 else r[0], *where])
        factor = weights.at([block * ins + r[0] if group > 1 else r[0], i[1] % outs, *taken])
        inside = checks[0]
        for check in checks[1:]:
            inside = inside & check
        return so_far + hl.select(inside, value * factor, p.constant(0.0, made.dtype))

    zero = p.constant(0.0, made.dtype)
    total = p.accumulate("product", made.shape, made.dtype, zero, [([ins, *tried], term)], role="product")
    bias = site.tensor(2) if site.has(2) else None
    if bias is None:
        return [total]
    return [HalideTensor(made.shape, made.dtype, lambda i: total.at(i) + bias.at([i[1]]))]
