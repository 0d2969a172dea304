"""The numbers of a node's static inputs, and that they are positive."""

from __future__ import annotations

from opatlas.identity.statics import STATIC
from opatlas.identity.workbench import NodeStep, Workbench


def ints(step: NodeStep, work: Workbench, position: int) -> list[int] | None:
    return work.ints(step, position, STATIC[step.op][position])


def positive_inputs(step: NodeStep, work: Workbench) -> None:
    for position, word in STATIC[step.op].items():
        value = work.static(step, position, word)
        if value is not None and word != "axis" and value.dtype.startswith(("int", "uint")):
            step.need(all(int(item) >= 1 for item in value.data or ()), f"{word} must be at least 1")
