"""Our own schedule for products: a tile of sums in vector registers, run over the whole depth.

Around it the result is walked panel by panel: the vector axis outermost, so that a panel of the second factor
stays in the cache while every row tile passes by.
"""

from __future__ import annotations

from math import prod
from typing import Any

from opatlas.identity import Node, Setting
from tuning.routes.base import RouteError
from tuning.routes.compiler.halide.lower import Lowered
from tuning.routes.compiler.halide.machine import import_halide
from tuning.routes.compiler.halide.site import MadeFunc
from tuning.routes.compiler.halide.tiles import tile

_TASKS_PER_THREAD = 16
_PARALLEL_WORK = 1 << 16
"""Multiplications below which waking a thread costs more than it saves."""


def apply(lowered: Lowered, setting: Setting) -> str:
    """Schedule the pipeline; returns the schedule as text. Raises RouteError where it has no one product."""
    funcs = lowered.pipeline.funcs
    log: list[str] = []
    sums = [made for made in funcs if made.role in ("product", "dots")]
    if len(sums) != 1 or len(lowered.outputs) != 1 or any(m.role in ("partial", "total") for m in funcs):
        raise RouteError("our schedule is for one product with what follows it element by element")
    for number, made in enumerate(funcs):
        # What comes after the product is left inlined into the result.
        if made.role == "first" or (made.role == "value" and number < funcs.index(sums[0])):
            _root(made, lowered, setting, log)
    if sums[0].role == "product":
        _tiles(sums[0], lowered, setting, log)
    else:
        _dots(sums[0], next(made for made in funcs if made.role == "dot"), lowered, setting, log)
    return "// register tiles\n" + "\n".join(log) + "\n"


def _root(made: MadeFunc, lowered: Lowered, setting: Setting, log: list[str]) -> None:
    """A padded or moved input: computed whole, first."""
    func, lanes = made.func, lowered.pipeline.lanes
    func.compute_root()
    log.append(f"{func.name()}.compute_root()")
    if made.shape[-1] >= lanes:
        func.vectorize(made.variables[-1], lanes, import_halide().TailStrategy.ShiftInwards)
        log.append(f"  .vectorize({made.variables[-1].name()}, {lanes})")
    outer = 1 if len(made.shape) > 2 and made.shape[1] > 1 else 0
    if len(made.shape) > 1 and prod(made.shape) > _PARALLEL_WORK and setting.threads > 1:
        func.parallel(made.variables[outer])
        log.append(f"  .parallel({made.variables[outer].name()})")


def _tiles(made: MadeFunc, lowered: Lowered, setting: Setting, log: list[str]) -> None:
    hl, p = import_halide(), lowered.pipeline
    out, shape = lowered.outputs[0], lowered.shapes[0]
    places, row = _places(made, p.layout, p.operator.nodes[-1])
    if len(shape) != len(made.shape):  # blocks of channels, say
        raise RouteError("our schedule is for results of as many dimensions as the product has")
    rows, vectors, lanes = tile(made.shape, row, p.lanes, whole=p.layout == "panels")
    v = [hl.Var(f"d{axis}") for axis in range(len(shape))]  # the output's, in its own order
    wide, high = v[places[-1]], v[places[row]] if row >= 0 else None
    shift = hl.TailStrategy.ShiftInwards
    wide_out, wide_in, high_out, high_in = (hl.Var(name) for name in ("wo", "wi", "ho", "hi"))
    out.compute_root().split(wide, wide_out, wide_in, vectors * lanes, shift)
    log.append(f"{out.name()}.compute_root().split({wide.name()}, wo, wi, {vectors * lanes})")
    inner, outer = [wide_in], []
    if high is not None:
        out.split(high, high_out, high_in, rows, shift)
        log.append(f"  .split({high.name()}, ho, hi, {rows})")
        inner.append(high_in)
        outer.append(high_out)
    taken = {places[-1], places[row]} if row >= 0 else {places[-1]}
    rest = [v[axis] for axis in reversed(range(len(shape))) if axis not in taken]
    # A matrix product's panels belong to one batch; a convolution's weights to all places.
    matrix = row == len(made.shape) - 2 and p.layout != "channels"
    outer += [wide_out, *rest] if matrix else [*rest, wide_out]
    out.reorder(*inner, *outer)
    log.append(f"  .reorder({', '.join(one.name() for one in [*inner, *outer])})")
    if high is not None:
        out.unroll(high_in)
    out.vectorize(wide_in, lanes)
    log.append(f"  .unroll(hi).vectorize(wi, {lanes})")
    count = _count(made.shape, {len(made.shape) - 1: vectors * lanes, row: rows})
    at = _spread(out, outer, count, prod(made.shape) * prod(made.reduced), setting, log)
    _sum(made, at, out, row, lanes, log)


def _places(made: MadeFunc, layout: str, last: Node) -> tuple[list[int], int]:
    """The output's axis for each axis of the product, and the product's axis that makes a tile's rows."""
    rank = len(made.shape)
    places, row = list(range(rank)), rank - 2 if rank > 1 else -1
    if layout == "channels":
        places = [0, *range(2, rank), 1]
    elif made.reduced[1:] or (rank == 3 and len(made.reduced) == 2):  # a convolution: rows are its channels
        row = 1
    turned = list(last.attributes.get("perm", range(rank)[::-1])) if last.op == "Transpose" else []
    if len(turned) == rank:
        places = [turned.index(axis) for axis in places]
    return places, row


def _dots(made: MadeFunc, total: MadeFunc, lowered: Lowered, setting: Setting, log: list[str]) -> None:
    """Both factors lie along the depth: a block of results, each a vector of sums until the end."""
    hl, out, shape = import_halide(), lowered.outputs[0], lowered.shapes[0]
    side = 4 if lowered.pipeline.lanes == 16 else 3
    sizes = {axis: min(shape[axis], side) for axis in range(len(shape))[-2:] if total.shape}
    if len(sizes) == 2 and 1 in sizes.values():
        sizes = {axis: 1 if size == 1 else min(shape[axis], 2 * side) for axis, size in sizes.items()}
    v = [hl.Var(f"d{axis}") for axis in range(len(shape))]
    blocks = {axis: (hl.Var(f"o{axis}"), hl.Var(f"i{axis}")) for axis in sizes}
    out.compute_root()
    log.append(f"{out.name()}.compute_root()")
    for axis, size in sizes.items():
        out.split(v[axis], *blocks[axis], size, hl.TailStrategy.ShiftInwards)
        log.append(f"  .split({v[axis].name()}, o{axis}, i{axis}, {size})")
    inner = [blocks[axis][1] for axis in reversed(sizes)]
    outer = [blocks[axis][0] if axis in blocks else v[axis] for axis in reversed(range(len(shape)))]
    out.reorder(*inner, *outer)
    for one in inner:
        out.unroll(one)
    log.append(f"  .reorder({', '.join(one.name() for one in [*inner, *outer])}), the inner ones unrolled")
    at = _spread(out, outer, _count(shape, sizes), prod(made.shape) * prod(made.reduced), setting, log)
    for one in (made, total):
        one.func.compute_at(out, at).store_in(hl.MemoryType.Stack)
        log.append(f"{one.func.name()}.compute_at({out.name()}, {at.name()}).store_in(MemoryType::Stack)")
    lane, places = made.variables[-1], list(reversed(made.variables[:-1]))
    update = made.func.update(0)
    update.reorder(lane, *places, *made.func.rvars(0))
    for stage in (made.func, update):
        stage.vectorize(lane)
        for one in places:
            stage.unroll(one)
    finish = total.func.update(0)
    finish.reorder(*total.func.rvars(0), *reversed(total.variables))
    finish.atomic().vectorize(total.func.rvars(0)[0])
    for one in total.variables:
        finish.unroll(one)
    log.append(f"  lanes vectorised, places unrolled; {total.func.name()} adds a vector's lanes up at once")


def _count(shape: tuple[int, ...], tile_of: dict[int, int]) -> int:
    """How many tiles cover the shape."""
    return prod(-(-extent // tile_of.get(axis, 1)) for axis, extent in enumerate(shape))


def _spread(out: Any, outer: list[Any], tiles: int, work: int, setting: Setting, log: list[str]) -> Any:
    """Fuse the tiles into one loop and give stretches of it to the threads; returns the loop of one tile."""
    hl = import_halide()
    fused = outer[0]
    for number, one in enumerate(outer[1:]):
        joined = hl.Var(f"f{number}")
        out.fuse(fused, one, joined)
        log.append(f"  .fuse({fused.name()}, {one.name()}, {joined.name()})")
        fused = joined
    if setting.threads < 2 or tiles < 2 or work < _PARALLEL_WORK:
        return fused
    stretch = -(-tiles // (setting.threads * _TASKS_PER_THREAD))
    if stretch == 1:
        out.parallel(fused)
        log.append(f"  .parallel({fused.name()})")
        return fused
    task, one = hl.Var("task"), hl.Var("tile")
    out.split(fused, task, one, stretch, hl.TailStrategy.GuardWithIf).parallel(task)
    log.append(f"  .split({fused.name()}, task, tile, {stretch}).parallel(task)")
    return one


def _sum(made: MadeFunc, at: Any, out: Any, row: int, lanes: int, log: list[str]) -> None:
    """The sums of one tile, in registers, over the whole depth."""
    hl, func = import_halide(), made.func
    wide = made.variables[-1]
    func.compute_at(out, at).store_in(hl.MemoryType.Stack)
    inner, piece = hl.Var("vi"), hl.Var("vo")
    update = func.update(0)
    domain = list(func.rvars(0))
    for stage in (func, update):
        tail = hl.TailStrategy.RoundUp if stage is func else hl.TailStrategy.GuardWithIf
        stage.split(wide, piece, inner, lanes, tail)
    log.append(f"{func.name()}.compute_at({out.name()}, {at.name()}).store_in(MemoryType::Stack)")
    rest = [one for axis, one in enumerate(made.variables[:-1]) if axis != row]
    tile_loops = [inner, piece, *([made.variables[row]] if row >= 0 else [])]
    update.reorder(*tile_loops, *domain, *reversed(rest))
    func.reorder(*tile_loops, *reversed(rest))
    for stage in (func, update):
        stage.vectorize(inner)
        stage.unroll(piece)
        if row >= 0:
            stage.unroll(made.variables[row])
    unrolled = f".unroll({made.variables[row].name()})" if row >= 0 else ""
    log.append(f"  .split({wide.name()}, vo, vi, {lanes}).vectorize(vi).unroll(vo){unrolled}")
    log.append("  .update(): the same, around the reduction domain's loops")
