"""Hand-written CPU schedules for any lowered function: register tiles for contractions, rows for the rest.

A *contraction* (matrix product, convolution) multiplies two tensors and adds up. Its schedule keeps a tile
of sums in vector registers: ``lanes`` × ``vectors`` wide along one axis, ``rows`` high along another; both
loops sit below the reduction and are unrolled. Everything else walks over its leading axes in parallel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any

from tuning.routes.compiler.tvm.patches import import_tvm


@dataclass(frozen=True)
class Machine:
    """What a schedule has to know of the hardware and the setting."""

    vector_bytes: int
    threads: int
    l2_bytes: int

    @property
    def accumulators(self) -> int:
        """Vector registers for sums. With AVX-512 16 vectors of 64 bytes would be 1 kB, which TVM puts on
        the heap instead of into registers."""
        return 15 if self.vector_bytes == 64 else 12


@dataclass(frozen=True)
class Axis:
    """One iteration variable of a block."""

    index: int
    extent: int
    reduces: bool
    in_reads: tuple[bool, ...]  # whether each read tensor's index uses it
    last_of_reads: tuple[bool, ...]  # … and is the plain, contiguous last index
    last_of_write: bool


def schedule(function: Any, machine: Machine, variant: str) -> Any:
    """A ``Schedule`` of the PrimFunc; ``variant`` is ``packed``, ``flat`` or ``rows``."""
    import_tvm()
    from tvm.s_tir import Schedule
    from tvm.s_tir.schedule import ScheduleError

    free = {int(i) for i in function.attrs.get("layout_free_buffers", ())}
    if variant != "rows":
        made = Schedule(function)
        try:
            from tuning.routes.compiler.tvm.contraction import schedule_contraction

            inline_cheap(made)
            if schedule_contraction(made, machine, variant, free):
                return made
        except ScheduleError:
            pass  # a shape of computation that the tiles do not fit; rows fit all
    made = Schedule(function)
    inline_cheap(made)
    for attempt in (_rows, _blockwise):
        copy = made.copy()
        try:
            attempt(copy, machine)
            return copy
        except ScheduleError:
            continue
    return made


def blocks_of(made: Any) -> list[Any]:
    """The blocks below the root, in order."""
    return list(made.get_child_blocks(made.get_sblock("root")))


def is_injective(made: Any, block: Any) -> bool:
    return all(iter_var.iter_type == 0 for iter_var in made.get(block).iter_vars)


def inline_cheap(made: Any) -> None:
    """Inline every injective block into what reads it, unless that repeats a costly function per use or puts
    a border test (padding) into an inner loop."""
    from tvm.s_tir.schedule import ScheduleError

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


_COSTLY = {"exp", "tanh", "erf", "sigmoid", "pow", "log", "sqrt", "rsqrt"}
_CALL = re.compile(r"\bT\.(\w+)\(")


def _worth_inlining(made: Any, block: Any, consumers: list[Any]) -> bool:
    calls = _calls(made.get(block))
    reads_by_reduction = any(not is_injective(made, consumer) for consumer in consumers)
    if "if_then_else" in calls and reads_by_reduction:
        return False
    return not (calls & _COSTLY and (len(consumers) > 1 or reads_by_reduction))


def _calls(block: Any) -> set[str]:
    """Names of the intrinsics that a block calls. TVM 0.27 offers Python no visitor over statements, so they
    are read off its script."""
    return set(_CALL.findall(block.script()))


def largest_divisor(extent: int, limit: int) -> int:
    """The largest divisor of ``extent`` that is at most ``limit``."""
    return max(d for d in range(1, max(1, min(extent, limit)) + 1) if extent % d == 0)


def power_divisor(extent: int, limit: int) -> int:
    """The largest power of two that divides ``extent``, at most ``limit``."""
    return min(extent & -extent, limit)


def extents(made: Any, loops: list[Any]) -> list[int]:
    return [int(made.get(loop).extent) for loop in loops]


def lanes_of(made: Any, block: Any, machine: Machine) -> int:
    """Elements in a vector of what the block writes."""
    from tuning.routes.compiler.tvm.table import item_bytes

    return machine.vector_bytes // item_bytes(str(made.get(block).writes[0].source.dtype))


def vectorise_last(made: Any, block: Any, machine: Machine) -> None:
    """Vectorise a block's innermost loop by what divides it."""
    loops = made.get_loops(block)
    if not loops:
        return
    extent = extents(made, loops)[-1]
    lanes = power_divisor(extent, lanes_of(made, block, machine))
    if lanes < 2:
        return
    if lanes < extent:
        _, inner = made.split(loops[-1], [None, lanes])
        made.vectorize(inner)
    else:
        made.vectorize(loops[-1])


def parallel_flat(made: Any, block: Any, machine: Machine) -> None:
    """For an injective block: one flat loop, cut into chunks for the threads, vectors inside."""
    loops = made.get_loops(block)
    if not loops:
        return
    sizes = extents(made, loops)
    last = sizes[-1]
    lanes = power_divisor(last, lanes_of(made, block, machine))
    if lanes < 4 and prod(sizes) % (lanes_of(made, block, machine)) == 0:
        lanes = lanes_of(made, block, machine)
        flat = made.fuse(*loops)
        outer, inner = made.split(flat, [None, lanes])
        made.vectorize(inner)
    else:
        outer, inner = made.split(loops[-1], [None, lanes])
        if lanes > 1:
            made.vectorize(inner)
        outer = made.fuse(*loops[:-1], outer)
    _parallel(made, outer, prod(sizes), machine)


PARALLEL_ELEMENTS = 8192
"""Below this much work a thread's wake-up costs more than it saves."""


def _parallel(made: Any, loop: Any, work: int, machine: Machine) -> None:
    if machine.threads > 1 and work >= PARALLEL_ELEMENTS and int(made.get(loop).extent) > 1:
        made.parallel(loop)


def _work(made: Any) -> int:
    return max(
        (
            prod(int(iter_var.dom.extent) for iter_var in made.get(block).iter_vars)
            for block in blocks_of(made)
        ),
        default=1,
    )


def _rows(made: Any, machine: Machine) -> None:
    """All blocks share their leading spatial axes (softmax, layer norm, pooling): walk over those in
    parallel and do everything for one row while it is in the cache. Raises ScheduleError where not."""
    blocks = blocks_of(made)
    if all(is_injective(made, block) for block in blocks):
        for block in blocks:
            parallel_flat(made, block, machine)
        return
    _split_reductions(made, machine)
    blocks = blocks_of(made)
    shared = min(_leading_spatial(made, block) for block in blocks)
    if not shared:
        _blockwise(made, machine)
        return
    last = blocks[-1]
    work = _work(made)
    loops = made.get_loops(last)
    if shared == len(loops) and is_injective(made, last) and len(loops) > 1 and len(blocks) > 1:
        shared -= 1
    row = made.fuse(*loops[:shared]) if shared > 1 else loops[0]
    if len(loops) == shared and len(blocks) == 1:
        _one_reduction(made, last, machine)
        return
    _parallel(made, row, work, machine)
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
    floating-point sums itself."""
    for block in blocks_of(made):
        if is_injective(made, block):
            continue
        loops = made.get_loops(block)
        iter_vars = made.get(block).iter_vars
        reducing = [loop for loop, v in zip(loops, iter_vars, strict=True) if v.iter_type == 2]
        if len(reducing) != 1 or iter_vars[-1].iter_type != 2:
            continue
        lanes = power_divisor(extents(made, reducing)[0], 2 * lanes_of(made, block, machine))
        if lanes < 4 or extents(made, reducing)[0] < 4 * lanes:
            continue
        _, inner = made.split(reducing[0], [None, lanes])
        partial = made.rfactor(inner, len(loops) - 1)
        loops = made.get_loops(partial)
        made.reorder(loops[-2], loops[-1]) if False else None
        _vectorise_partial(made, partial)


def _vectorise_partial(made: Any, partial: Any) -> None:
    """Put the lanes of a partial reduction innermost."""
    loops = made.get_loops(partial)
    iter_vars = made.get(partial).iter_vars
    del iter_vars
    made.vectorize(loops[-1])


def _one_reduction(made: Any, block: Any, machine: Machine) -> None:
    """A lone reduction with only spatial axes outside (pooling, a row sum): parallel over the outer axes,
    vectors along the innermost spatial one where it is contiguous."""
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
        _parallel(made, row, work, machine)
        made.vectorize(inner)
        made.decompose_reduction(block, reducing[0])
        return
    row = made.fuse(*spatial) if len(spatial) > 1 else spatial[0]
    _parallel(made, row, work, machine)


def _blockwise(made: Any, machine: Machine) -> None:
    """Each block for itself: injective ones flat, reductions parallel over their spatial axes."""
    for block in blocks_of(made):
        if is_injective(made, block):
            parallel_flat(made, block, machine)
        elif _leading_spatial(made, block):
            _one_reduction(made, block, machine)
