"""Small questions about, and steps on, the blocks of a TVM schedule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any

from opatlas.identity.dtypes import item_bytes

PARALLEL_ELEMENTS = 8192
"""Below this much work a thread's wake-up costs more than it saves."""

_CALL = re.compile(r"\bT\.(\w+)\(")


@dataclass(frozen=True)
class Machine:
    """What a schedule has to know of the hardware and the setting."""

    vector_bytes: int
    threads: int

    @property
    def accumulators(self) -> int:
        """Vector registers for sums. With AVX-512 16 vectors of 64 bytes would be 1 kB, which TVM puts on
        the heap instead of into registers."""
        return 15 if self.vector_bytes == 64 else 12


def blocks_of(made: Any) -> list[Any]:
    """The blocks below the root, in order."""
    return list(made.get_child_blocks(made.get_sblock("root")))


def is_injective(made: Any, block: Any) -> bool:
    """Whether a block has no reduction axis."""
    return all(iter_var.iter_type == 0 for iter_var in made.get(block).iter_vars)


def calls_of(made: Any, block: Any) -> set[str]:
    """Names of the intrinsics that a block calls. TVM 0.27 offers Python no visitor over statements, so they
    are read off its script."""
    return set(_CALL.findall(made.get(block).script()))


def variables(expression: Any, groups: dict[Any, int] | None = None) -> set[Any]:
    """The variables of an index expression. With ``groups``, a variable that only appears divided by a
    constant (the channel of a grouped convolution) is put there, with the constant, and not returned."""
    from tvm import ir

    if isinstance(expression, ir.Var):
        return {expression}
    if groups is not None and type(expression).__name__ == "FloorDiv" and isinstance(expression.a, ir.Var):
        groups[expression.a] = int(expression.b)
        return set()
    parts = (getattr(expression, name, None) for name in ("a", "b", "value"))
    return {v for part in parts if isinstance(part, ir.Expr) for v in variables(part, groups)}


def divisors(extent: int) -> list[int]:
    return [d for d in range(1, extent + 1) if extent % d == 0]


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
    return machine.vector_bytes // item_bytes(str(made.get(block).writes[0].source.dtype))


def vectorise_last(made: Any, block: Any, machine: Machine) -> None:
    """Vectorise a block's innermost loop by what divides it; LLVM gets the odd ones to see to."""
    loops = made.get_loops(block)
    if not loops:
        return
    extent = extents(made, loops)[-1]
    lanes = power_divisor(extent, lanes_of(made, block, machine))
    if lanes < 4:
        return
    if lanes < extent:
        _, inner = made.split(loops[-1], [None, lanes])
        made.vectorize(inner)
    else:
        made.vectorize(loops[-1])


def parallel(made: Any, loop: Any, work: int, machine: Machine) -> None:
    """Run a loop on several threads if there is enough to do."""
    if machine.threads > 1 and work >= PARALLEL_ELEMENTS and int(made.get(loop).extent) > 1:
        made.parallel(loop)


def is_elementwise(made: Any, block: Any) -> bool:
    """Whether every read has the write's indices, or none that vary: then the loops may become one."""
    stmt = made.get(block)
    written = [str(d.min) for d in stmt.writes[0].region]
    return len(stmt.writes) == 1 and all(
        [str(d.min) for d in read.region] == written or not any(variables(d.min) for d in read.region)
        for read in stmt.reads
    )


def parallel_flat(made: Any, block: Any, machine: Machine) -> None:
    """For an injective block: outer loops fused and shared out, vectors inside."""
    loops = made.get_loops(block)
    if not loops:
        return
    sizes = extents(made, loops)
    full = lanes_of(made, block, machine)
    if is_elementwise(made, block):
        flat = made.fuse(*loops) if len(loops) > 1 else loops[0]
        lanes = power_divisor(prod(sizes), full)
        outer, inner = made.split(flat, [None, lanes])
        if lanes > 1:
            made.vectorize(inner)
    else:
        lanes = power_divisor(sizes[-1], full)
        if lanes == full:
            outer, inner = made.split(loops[-1], [None, lanes])
            made.vectorize(inner)
            outer = made.fuse(*loops[:-1], outer) if len(loops) > 1 else outer
        elif len(loops) > 1:
            outer = made.fuse(*loops[:-1]) if len(loops) > 2 else loops[0]
        else:
            outer = loops[0]
    parallel(made, outer, prod(sizes), machine)
