"""Products whose columns fill no vectors (97, 127, 1001): padded to whole ones, the rest cut off again.

TVM pads what it knows as an einsum: matrix products, not convolutions (``data[y + ry]``), which keep their
narrow vectors.
"""

from __future__ import annotations

from typing import Any

from tuning.routes.compiler.tvm.blocks import is_injective, power_divisor

_MOST_WASTE = 1.7
"""Padded ÷ real columns, above which narrower vectors are as good."""


def pad_columns(made: Any, block: Any, position: int, full: int) -> bool:
    """Pad the block's iteration variable ``position`` to whole vectors of ``full`` lanes.

    False, and nothing done, where that cannot be or is not worth it. What cuts the result is folded into an
    epilogue that reads it.
    """
    from tvm.s_tir.schedule import ScheduleError

    iter_vars = made.get(block).iter_vars
    extent = int(iter_vars[position].dom.extent)
    lanes = power_divisor(extent, full)
    unit = min(full, 1 << (extent - 1).bit_length())
    padded = -(-extent // unit) * unit
    if lanes >= unit or unit < 4 or (lanes >= 4 and padded > _MOST_WASTE * extent):
        return False
    units = [unit if i == position else 1 for i in range(len(iter_vars))]
    try:
        made.pad_einsum(block, units)
    except ScheduleError:
        return False
    for cut in made.get_consumers(block):
        if is_injective(made, cut) and made.get_consumers(cut):
            made.compute_inline(cut)
    return True


def fold_pad(made: Any, packed: Any) -> None:
    """Let the block that packs an operand read the operand itself, and pad it on the way."""
    for pad in made.get_producers(packed):
        made.compute_inline(pad)


def unpadded(made: Any, block: Any, source: Any) -> Any:
    """The buffer behind ``source``, where that is one that :func:`pad_columns` made; else ``source``."""
    for producer in made.get_producers(block):
        stmt = made.get(producer)
        if stmt.writes[0].source.same_as(source) and stmt.name_hint.endswith("_pad") and len(stmt.reads) == 1:
            return stmt.reads[0].source
    return source
