"""Products whose columns fill no vectors (97, 1001), or whose rows no tile divides: padded, and cut again.

TVM pads what it knows as an einsum: matrix products, not convolutions (``data[y + ry]``), which keep their
narrow vectors.
"""

from __future__ import annotations

from typing import Any

from tuning.routes.compiler.tvm.blocks import is_injective, largest_divisor, power_divisor

_MOST_WASTE = 1.7
"""Padded ÷ real columns, above which narrower vectors are as good."""
_LEAST_ROWS = 16
_HEIGHT = 7
"""Rows of a register tile, at most, that are looked for."""


def pad_product(made: Any, block: Any, columns: int, rows: int | None, full: int) -> bool:
    """Pad a product's columns to whole vectors of ``full`` lanes, and rows that no tile divides to fours.

    ``columns`` and ``rows`` are positions of iteration variables. False, and nothing done, where that cannot
    be or is not worth it. What cuts the result is folded into an epilogue that reads it.
    """
    from tvm.s_tir.schedule import ScheduleError

    sizes = [int(iter_var.dom.extent) for iter_var in made.get(block).iter_vars]
    units = [1] * len(sizes)
    units[columns] = _column_unit(sizes[columns], full)
    if rows is not None and sizes[rows] >= _LEAST_ROWS and largest_divisor(sizes[rows], _HEIGHT) < 3:
        units[rows] = 4
    if all(unit == 1 for unit in units):
        return False
    try:
        made.pad_einsum(block, units)
    except ScheduleError:
        return False
    for cut in made.get_consumers(block):
        if is_injective(made, cut) and made.get_consumers(cut):
            made.compute_inline(cut)
    return True


def _column_unit(extent: int, full: int) -> int:
    """Lanes to pad to; 1 where there is nothing to win."""
    lanes = power_divisor(extent, full)
    unit = min(full, 1 << (extent - 1).bit_length())
    padded = -(-extent // unit) * unit
    if lanes >= unit or unit < 4 or (lanes >= 4 and padded > _MOST_WASTE * extent):
        return 1
    return unit


def fold_pad(made: Any, packed: Any) -> None:
    """Let the block that packs an operand read the operand itself, and pad it on the way."""
    for pad in made.get_producers(packed):
        made.compute_inline(pad)


def unpadded(made: Any, block: Any, source: Any) -> Any:
    """The buffer behind ``source``, where that is one that :func:`pad_product` made; else ``source``."""
    for producer in made.get_producers(block):
        stmt = made.get(producer)
        if stmt.writes[0].source.same_as(source) and stmt.name_hint.endswith("_pad") and len(stmt.reads) == 1:
            return stmt.reads[0].source
    return source
