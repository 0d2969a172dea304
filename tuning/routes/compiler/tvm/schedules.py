"""Hand-written CPU schedules for any lowered function: register tiles for contractions, rows for the rest.

A *contraction* (matrix product, convolution) multiplies two tensors and adds up: see ``contraction.py``.
Everything else walks over the axes that all its blocks share, in parallel, and does a row at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tuning.routes.base import RouteError
from tuning.routes.compiler.tvm.blocks import (
    Machine,
    blocks_of,
    calls_of,
    extents,
    is_injective,
    lanes_of,
    parallel,
    parallel_flat,
    power_divisor,
    vectorise_last,
)
from tuning.routes.compiler.tvm.contraction import AS_CHOSEN, Shape, is_contraction, schedule_contraction
from tuning.routes.compiler.tvm.lean import Schedule, ScheduleError

_COSTLY = {"exp", "tanh", "erf", "sigmoid", "pow", "log", "sqrt", "rsqrt"}


def schedule(function: Any, machine: Machine, variant: str) -> Any:
    """A ``Schedule`` of the PrimFunc.

    ``packed`` falls back on ``flat``, that on ``rows``, which takes everything. ``flat only`` raises
    RouteError where it would come to what ``packed`` is anyway, so that nothing is built twice.
    """
    ways = {"packed": ("packed", "flat"), "flat only": ("packed", "flat"), "rows": ()}[variant]
    fitting = [name for name in ways if tiled(function, machine, name) is not None]
    if variant == "flat only" and is_contraction(Schedule(function)):
        if fitting != ["packed", "flat"]:
            raise RouteError("no second way to tile it: the innermost axis does not fill vectors")
        fitting = ["flat"]
    for name in fitting[:1]:
        made = tiled(function, machine, name)
        if made is not None:
            return made
    for step in (_rows, _blockwise):
        made = _attempt_rows(function, machine, step)
        if made is not None:
            return made
    made = Schedule(function)
    inline_cheap(made)
    return made


def tiled(function: Any, machine: Machine, variant: str, shape: Shape = AS_CHOSEN) -> Any | None:
    """A tiled schedule, or None where the function is no contraction that the tiles fit."""
    free = {int(i) for i in function.attrs.get("layout_free_buffers", ())}
    made = Schedule(function)
    try:
        inline_cheap(made)
        return made if schedule_contraction(made, machine, variant, free, shape) else None
    except ScheduleError:
        return None


def _attempt_rows(function: Any, machine: Machine, step: Callable[[Any, Machine], None]) -> Any | None:
    made = Schedule(function)
    inline_cheap(made)
    try:
        step(made, machine)
        return made
    except ScheduleError:
        return None


def inline_cheap(made: Any) -> None:
    """Inline every injective block into what reads it, unless that repeats a costly function per use or puts
    a border test (padding) into an inner loop."""
    for block in blocks_of(made):
        if not is_injective(made, block):
            continue
        consumers = made.get_consumers(block)
        if not consumers or not _worth_inlining(made, block, consumers):
            continue
        try:
            made.compute_inline(block)
        except ScheduleError:
            continue


def _worth_inlining(made: Any, block: Any, consumers: list[Any]) -> bool:
    calls = calls_of(made, block)
    reads_by_reduction = any(not is_injective(made, consumer) for consumer in consumers)
    if "if_then_else" in calls and reads_by_reduction:
        return False
    repeated = any(_elements(made, consumer) > _elements(made, block) for consumer in consumers)
    return not (calls & _COSTLY and (len(consumers) > 1 or reads_by_reduction or repeated))


def _elements(made: Any, block: Any) -> int:
    return prod(int(iter_var.dom.extent) for iter_var in made.get(block).iter_vars)


def _rows(made: Any, machine: Machine) -> None:
    """All blocks share their leading spatial axes (softmax, layer norm): walk over those in parallel and do
    everything for one row while it is in the cache. Raises ScheduleError where that cannot be."""
    blocks = blocks_of(made)
    if all(is_injective(made, block) for block in blocks):
        _blockwise(made, machine)
        return
    _split_reductions(made, machine)
    blocks = blocks_of(made)
    last = blocks[-1]
    shared = min(_leading_spatial(made, block) for block in blocks)
    if len(blocks) > 1 and is_injective(made, last):
        shared = min(shared, len(made.get_loops(last)) - 1)
    if shared < 1 or len(blocks) == 1:
        _blockwise(made, machine)
        return
    work = max(prod(extents(made, made.get_loops(block))) for block in blocks)
    loops = made.get_loops(last)
    row = made.fuse(*loops[:shared]) if shared > 1 else loops[0]
    parallel(made, row, work, machine)
    for block in reversed(blocks[:-1]):
        made.compute_at(block, row, preserve_unit_loops=True)
    for block in blocks:
        if is_injective(made, block) and len(made.get_loops(block)) > 1:
            vectorise_last(made, block, machine)


def _leading_spatial(made: Any, block: Any) -> int:
    count = 0
    for iter_var in made.get(block).iter_vars:
        if iter_var.iter_type != 0:
            break
        count += 1
    return count


def _split_reductions(made: Any, machine: Machine) -> None:
    """Cut a long innermost reduction into vector lanes that are summed up at the end: LLVM may not reorder
    floating-point sums itself. Where no vector divides it (197 tokens), the last lanes are masked: LLVM makes
    vectors of such a loop, TVM would undo it into scalars."""
    for block in blocks_of(made):
        iter_vars = made.get(block).iter_vars
        if [v.iter_type for v in iter_vars].count(2) != 1 or iter_vars[-1].iter_type != 2:
            continue
        loops = made.get_loops(block)
        extent = extents(made, loops)[-1]
        full = lanes_of(made, block, machine)
        lanes = power_divisor(extent, 2 * full)
        masked = lanes < full and extent >= 4 * full
        if masked:
            lanes = full
        if lanes < 4 or extent < 4 * lanes:
            continue
        _, inner = made.split(loops[-1], [None, lanes])
        partial = made.rfactor(inner, len(loops) - 1)
        if not masked:
            made.vectorize(made.get_loops(partial)[-1])


def _one_reduction(made: Any, block: Any, machine: Machine) -> None:
    """A lone reduction with only spatial axes outside (pooling, a row sum): parallel over the outer axes,
    vectors along the innermost spatial one."""
    loops = made.get_loops(block)
    iter_vars = made.get(block).iter_vars
    spatial = [loop for loop, v in zip(loops, iter_vars, strict=True) if v.iter_type == 0]
    reducing = [loop for loop, v in zip(loops, iter_vars, strict=True) if v.iter_type != 0]
    work = prod(extents(made, loops))
    lanes = power_divisor(extents(made, spatial)[-1], lanes_of(made, block, machine))
    if lanes >= 4 and len(spatial) > 1:
        outer, inner = made.split(spatial[-1], [None, lanes])
        row = made.fuse(*spatial[:-1], outer)
        made.reorder(row, *reducing, inner)
        parallel(made, row, work, machine)
        made.vectorize(inner)
        start = made.decompose_reduction(block, reducing[0])
        made.vectorize(made.get_loops(start)[-1])
        return
    row = made.fuse(*spatial) if len(spatial) > 1 else spatial[0]
    parallel(made, row, work, machine)


def _blockwise(made: Any, machine: Machine) -> None:
    """Each block for itself: injective ones flat, reductions parallel over their spatial axes."""
    for block in blocks_of(made):
        if is_injective(made, block):
            parallel_flat(made, block, machine)
        elif _leading_spatial(made, block):
            _one_reduction(made, block, machine)
