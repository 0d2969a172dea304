"""Which of a lowered module's functions is worth a search."""

from __future__ import annotations

from math import prod
from typing import Any

from tuning.routes.compiler.tvm.lean import Schedule, tvm


def heaviest(module: Any) -> str | None:
    """The PrimFunc with the most iterations: the one worth the search."""
    work = {
        var.name_hint: _work(function)
        for var, function in module.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }
    return max(work, key=lambda name: work[name], default=None)


def _work(function: Any) -> int:
    made = Schedule(function)
    blocks = made.get_child_blocks(made.get_sblock("root"))
    return sum(prod(int(v.dom.extent) for v in made.get(block).iter_vars) for block in blocks)
