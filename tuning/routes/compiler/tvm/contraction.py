"""Register tiles for contractions. See :mod:`tuning.routes.compiler.tvm.schedules`.

For ``C[…, r, …, v] += A[…, r, k] * B[k, v]`` the tile is ``rows`` × ``vectors`` × ``lanes`` sums: per step
of the reduction it loads ``vectors`` vectors of one operand and ``rows`` scalars of the other. ``packed``
lets the vectors run along the axis of the second operand alone (a convolution's output channels) and copies
that operand into panels of just that width (once, where it is constant); ``flat`` lets them run along the
output's innermost axis, which needs no copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import Any

from tuning.routes.compiler.tvm.blocks import (
    Machine,
    blocks_of,
    divisors,
    extents,
    is_injective,
    lanes_of,
    largest_divisor,
    parallel_flat,
    power_divisor,
    variables,
    vectorise_last,
)
from tuning.routes.compiler.tvm.padding import fold_pad, pad_product, unpadded

_LEAST_WORK = 4096
"""Multiplications below which tiles are not worth their set-up."""


@dataclass(frozen=True)
class Axis:
    """One iteration variable of the contraction, by its position among the block's."""

    index: int
    extent: int
    reduces: bool
    reads: tuple[bool, bool]  # whether each operand's index depends on it
    group: int = 0  # an operand depends on it only from one group of this many to the next


@dataclass(frozen=True)
class Shape:
    """A wish for the tile: what a search varies. Numbers that do not divide are rounded down to ones that
    do; 0 leaves the choice to :func:`_choose_tile`."""

    height: int = 0
    vectors: int = 0
    columns: int = 256  # columns done before the next strip of rows
    rows: int = 96  # rows done while a panel is in the cache
    outer_rows: bool | None = None  # other spatial axes inside the panels instead of outside


AS_CHOSEN = Shape()


@dataclass(frozen=True)
class Tile:
    """What is kept in registers: sums along ``columns`` (vectors × lanes) and, if any, ``rows``."""

    columns: Axis
    rows: Axis | None
    lanes: int
    vectors: int
    height: int
    shape: Shape

    @property
    def width(self) -> int:
        return self.lanes * self.vectors


def schedule_contraction(made: Any, machine: Machine, variant: str, free: set[int], shape: Shape) -> bool:
    """Tile the function's one contraction and make the rest flat; False where there is no such thing."""
    block = _find(made)
    if block is None:
        return False
    _decompose_padding(made)  # before columns are padded: that is folded into the packing
    axes = _axes(made, block)
    columns = _columns(made, block, axes, variant)
    full = lanes_of(made, block, machine)
    if variant == "packed" and columns:
        rows = [axis.index for axis in axes if not axis.reduces and axis.reads == (True, False)]
        if pad_product(made, block, columns[-1].index, rows[-1] if rows else None, full):
            axes = _axes(made, block)
    tile = _choose_tile(made, block, axes, machine, variant, shape)
    if tile is None:
        return False
    if variant == "packed":
        _pack(made, block, tile, free)
    consumer = _consumer(made, block)
    mine = {made.get(one).name_hint for one in (block, consumer)}
    others = [other for other in blocks_of(made) if made.get(other).name_hint not in mine]
    _tile(made, block, consumer, axes, tile, machine)
    for other in others:
        _flat(made, other, machine)
    return True


def is_contraction(made: Any) -> bool:
    """Whether the function has a product to tile at all."""
    return _find(made) is not None


def _find(made: Any) -> Any | None:
    """The one reduction block, if it reads two tensors and does enough work."""
    reductions = [block for block in blocks_of(made) if not is_injective(made, block)]
    if len(reductions) != 1:
        return None
    stmt = made.get(reductions[0])
    work = prod(int(iter_var.dom.extent) for iter_var in stmt.iter_vars)
    if len(stmt.reads) != 2 or len(stmt.writes) != 1 or work < _LEAST_WORK:
        return None
    return reductions[0]


def _axes(made: Any, block: Any) -> list[Axis]:
    stmt = made.get(block)
    groups: dict[Any, int] = {}
    used = [
        {var for dimension in read.region for var in variables(dimension.min, groups)} for read in stmt.reads
    ]
    return [
        Axis(
            i,
            int(iter_var.dom.extent),
            iter_var.iter_type != 0,
            (iter_var.var in used[0], iter_var.var in used[1]),
            groups.get(iter_var.var, 0),
        )
        for i, iter_var in enumerate(stmt.iter_vars)
    ]


def _choose_tile(
    made: Any, block: Any, axes: list[Axis], machine: Machine, variant: str, shape: Shape
) -> Tile | None:
    spatial = [axis for axis in axes if not axis.reduces]
    columns = _columns(made, block, axes, variant)
    if not columns:
        return None
    column = columns[-1]
    opposite = (not column.reads[0], not column.reads[1])
    rows = [axis for axis in spatial if axis.reads == opposite and axis.extent > 1]
    full = lanes_of(made, block, machine)
    whole = gcd(column.extent, column.group) if column.group else column.extent
    lanes = power_divisor(whole, full)
    if lanes < 4:
        return None
    best = max(
        (
            # Of equal axes the last: along it the operand is contiguous.
            (_load_ratio(height, vectors), -vectors, row.index if row else 0, row, height, vectors)
            for row in _or_none(rows)
            for height in divisors(row.extent if row else 1)
            for vectors in divisors(whole // lanes)
            if height * vectors <= machine.accumulators
            and height <= (shape.height or height)
            and vectors <= (shape.vectors or vectors)
        ),
        key=lambda choice: choice[:3],
    )
    *_, row, height, vectors = best
    return Tile(column, row, lanes, vectors, height, shape)


def _columns(made: Any, block: Any, axes: list[Axis], variant: str) -> list[Axis]:
    """The axes along which vectors may run; the last is taken."""
    spatial = [axis for axis in axes if not axis.reduces]
    if variant == "packed":
        return [axis for axis in spatial if axis.reads == (False, True) and axis.extent > 1]
    last = _last_written(made, block)
    return [axis for axis in spatial if axis.index == last and sum(axis.reads) == 1]


def _or_none(rows: list[Axis]) -> list[Axis | None]:
    return [*rows] or [None]


def _load_ratio(height: int, vectors: int) -> float:
    """Multiplications per load: what a tile is good for."""
    return height * vectors / (height + vectors)


def _last_written(made: Any, block: Any) -> int:
    """Position of the iteration variable that is the output's last index."""
    stmt = made.get(block)
    last = stmt.writes[0].region[-1].min
    return next((i for i, v in enumerate(stmt.iter_vars) if v.var.same_as(last)), -1)


def _decompose_padding(made: Any) -> None:
    """Turn "border or input?" per element into: fill with zeros, then copy the inside."""
    from tvm.s_tir.schedule import ScheduleError

    for block in blocks_of(made):
        if not is_injective(made, block) or "if_then_else" not in made.get(block).script():
            continue
        try:
            made.decompose_padding(block, made.get_loops(block)[0])
        except ScheduleError:
            continue  # a condition that is no padding


def _pack(made: Any, block: Any, tile: Tile, free: set[int]) -> None:
    """Copy the second operand into panels of the tile's width; constants are copied when prepared."""
    stmt = made.get(block)
    read = stmt.reads[1]
    var = stmt.iter_vars[tile.columns.index].var
    position = next((i for i, d in enumerate(read.region) if d.min.same_as(var)), -1)
    if position < 0:
        return
    parameters = made.mod["main"].params
    source = unpadded(made, block, read.source)
    constant = any(parameters[i].same_as(source) for i in free)
    packed = made.cache_read(block, 1, "global")
    if not source.same_as(read.source):
        fold_pad(made, packed)
    width = tile.width

    def panels(*indices: Any) -> list[Any]:
        rest = [index for i, index in enumerate(indices) if i != position]
        return [indices[position] // width, *rest, indices[position] % width]

    made.transform_layout(block, ("read", 1), panels)
    if constant:
        made.annotate(packed, "meta_schedule.layout_rewrite_preproc", True)


def _consumer(made: Any, block: Any) -> Any:
    """The block that takes the finished sums: an epilogue that is there, or a new copy to the output. The
    sums themselves get a layout of their own, with the vectors innermost."""
    consumers = made.get_consumers(block)
    if len(consumers) == 1 and is_injective(made, consumers[0]):
        return consumers[0]
    return made.cache_write(block, 0, "global")


def _tile(made: Any, block: Any, consumer: Any, axes: list[Axis], tile: Tile, machine: Machine) -> None:
    """Split, order and share out the loops; sums are started before and written back after the reduction."""
    _columns_last(made, block, tile)
    loops = made.get_loops(block)
    reducing = [loops[axis.index] for axis in axes if axis.reduces]
    others = [
        loops[axis.index]
        for axis in axes
        if not axis.reduces and axis is not tile.columns and axis is not tile.rows
    ]
    panels = tile.columns.extent // tile.width
    column_mid = largest_divisor(panels, max(1, tile.shape.columns // tile.width))
    column_out, column_in, vectors, lanes = made.split(
        loops[tile.columns.index], [None, column_mid, tile.vectors, tile.lanes]
    )
    outer, middle, inner = [column_out, *others], [column_in], []
    if tile.rows is not None:
        strips = tile.rows.extent // tile.height
        row_mid = largest_divisor(strips, max(1, tile.shape.rows // tile.height))
        row_out, row_in, height = made.split(loops[tile.rows.index], [None, row_mid, tile.height])
        outer, middle, inner = [column_out, *others, row_out], [column_in, row_in], [height]
        if _rows_inside(tile):
            outer, middle = [column_out, column_in], [*others, row_out, row_in]
    made.reorder(*outer, *middle, *reducing, *inner, vectors, lanes)
    made.reverse_compute_at(consumer, middle[-1], preserve_unit_loops=True)
    _parallel_prefix(made, outer, prod(axis.extent for axis in axes), machine)
    _unroll(made, block, len(inner) + 2)
    _unroll(made, made.decompose_reduction(block, reducing[0]), len(inner) + 2)
    if variables(made.get(consumer).writes[0].region[-1].min):  # the output is contiguous along the vectors
        vectorise_last(made, consumer, machine)


def _rows_inside(tile: Tile) -> bool:
    """Whether all rows pass by before the next panel: where lines are short a panel is used too rarely
    otherwise (1×1 convolutions over 14×14 and 7×7: 10–15 % faster)."""
    if tile.shape.outer_rows is not None or tile.rows is None:
        return bool(tile.shape.outer_rows)
    return tile.rows.extent <= 14


def _unroll(made: Any, block: Any, depth: int) -> None:
    """Vectorise a block's innermost loop and unroll the others of its ``depth`` innermost."""
    *unrolled, lanes = made.get_loops(block)[-depth:]
    for loop in unrolled:
        made.unroll(loop)
    made.vectorize(lanes)


def _columns_last(made: Any, block: Any, tile: Tile) -> None:
    """Store the sums with the tile's columns innermost, so that a vector is contiguous."""
    stmt = made.get(block)
    var = stmt.iter_vars[tile.columns.index].var
    region = stmt.writes[0].region
    position = next((i for i, d in enumerate(region) if d.min.same_as(var)), -1)
    if position in (-1, len(region) - 1):
        return
    made.transform_layout(
        block,
        ("write", 0),
        lambda *indices: [*(x for i, x in enumerate(indices) if i != position), indices[position]],
    )


def _parallel_prefix(made: Any, outer: list[Any], work: int, machine: Machine) -> None:
    """Share out the outermost loops: as few as give every thread several turns, so that what lies inside
    keeps its panel in the cache."""
    if machine.threads < 2 or work < 64 * _LEAST_WORK:
        return
    sizes = extents(made, outer)
    count = next(
        (i + 1 for i in range(len(sizes)) if prod(sizes[: i + 1]) >= 4 * machine.threads), len(sizes)
    )
    fused = made.fuse(*outer[:count]) if count > 1 else outer[0]
    if int(made.get(fused).extent) > 1:
        made.parallel(fused)


def _flat(made: Any, block: Any, machine: Machine) -> None:
    """Blocks beside the contraction (zero border, copies, runtime packing)."""
    rewritten = "meta_schedule.layout_rewrite_preproc" in made.get(block).annotations
    if is_injective(made, block) and not rewritten:
        parallel_flat(made, block, machine)
