"""What is done to each row: softmax, norms, reductions. PURE."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from opatlas.identity import Operator, Setting, Target
from tuning.routes.compiler.triton.launch import (
    FLOATS,
    Configuration,
    Pointer,
    TritonLaunch,
    elements,
    of_input,
    of_output,
    parts,
    power_of_two,
    single,
    unwieldy,
)

MOST_IN_REGISTERS = 16384
"""Elements of a block of rows: 128 registers a thread at 512 threads take half of it."""
_WARPS = (4, 8, 16, 1, 2)
_NOTHING = {"Max": -math.inf, "Min": math.inf}


class Softmax:
    """Softmax and its logarithm, along any axis."""

    name = "softmax"
    types = frozenset(("Softmax", "LogSoftmax"))

    def missing(self, operator: Operator) -> str | None:
        return single(operator, self.types) or unwieldy(operator) or not_float(operator)

    def configurations(self, operator: Operator, target: Target, setting: Setting) -> Iterator[Configuration]:
        yield from row_blocks(*_along(operator))

    def launch(self, operator: Operator, setting: Setting, configuration: Configuration) -> TritonLaunch:
        outer, length, inner = _along(operator)
        numbers = {
            "ROWS": outer * inner,
            "LENGTH": length,
            "INNER": inner,
            "LOGARITHM": operator.nodes[0].op == "LogSoftmax",
        }
        pointers = (of_input("x", operator, 0), of_output("y", operator))
        return row_launch("softmax", pointers, numbers, configuration)


class Norm:
    """Layer norm and RMS norm over the last dimensions."""

    name = "norm"
    types = frozenset(("LayerNormalization", "RMSNormalization"))

    def missing(self, operator: Operator) -> str | None:
        if reason := single(operator, self.types) or unwieldy(operator) or not_float(operator):
            return reason
        node = operator.nodes[0]
        length = _behind(operator)[1]
        for number in node.inputs[1:]:
            if number >= 0 and elements(operator.value(number).shape) != length:
                return f"{node.op} whose scale or bias is not of the whole row has no Triton template"
        return None

    def configurations(self, operator: Operator, target: Target, setting: Setting) -> Iterator[Configuration]:
        yield from row_blocks(*_behind(operator))

    def launch(self, operator: Operator, setting: Setting, configuration: Configuration) -> TritonLaunch:
        node = operator.nodes[0]
        rows, length, _ = _behind(operator)
        biased = len(node.inputs) > 2 and node.inputs[2] >= 0
        numbers = {
            "ROWS": rows,
            "LENGTH": length,
            "EPSILON": float(node.attributes["epsilon"]),
            "CENTRED": node.op == "LayerNormalization",
            "BIASED": biased,
        }
        pointers = (
            of_input("x", operator, node.inputs[0]),
            of_input("scale", operator, node.inputs[1]),
            of_input("bias", operator, node.inputs[2 if biased else 1]),
            of_output("y", operator),
        )
        return row_launch("normalised", pointers, numbers, configuration)


class Reduction:
    """Reductions over axes that lie beside each other."""

    name = "reduction"
    kinds = ("Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare")
    types = frozenset(f"Reduce{kind}" for kind in kinds)

    def missing(self, operator: Operator) -> str | None:
        if reason := single(operator, self.types) or unwieldy(operator) or not_float(operator):
            return reason
        if not _axes(operator):
            return "a reduction over no axis has no Triton template"
        if _axes(operator) != tuple(range(_axes(operator)[0], _axes(operator)[-1] + 1)):
            return "reductions over axes that do not lie beside each other have no Triton template"
        return None

    def configurations(self, operator: Operator, target: Target, setting: Setting) -> Iterator[Configuration]:
        yield from (
            {**one, "looped": 1}
            for one in row_blocks(*_between(operator, _axes(operator)))
            if one["block"] > 1
        )

    def launch(self, operator: Operator, setting: Setting, configuration: Configuration) -> TritonLaunch:
        outer, length, inner = _between(operator, _axes(operator))
        kind = operator.nodes[0].op.removeprefix("Reduce")
        numbers = {
            "ROWS": outer * inner,
            "LENGTH": length,
            "INNER": inner,
            "KIND": kind,
            "NOTHING": _NOTHING.get(kind, 0.0),
        }
        pointers = (of_input("x", operator, 0), of_output("y", operator))
        return row_launch("reduced", pointers, numbers, configuration)


def row_blocks(outer: int, length: int, inner: int) -> Iterator[Configuration]:
    """Blocks of rows for a tensor [outer, length, inner]: whole rows where they fit, else in steps. Where a
    row's elements lie apart (``inner`` above 1), neighbouring rows are read together."""
    rows, whole = outer * inner, power_of_two(length, 2)
    least = min(32, power_of_two(inner)) if inner > 1 else 1
    spans: list[tuple[int, int, int]] = []
    if whole * least <= MOST_IN_REGISTERS:
        filling = [least * times for times in (1, 2, 4, 8, 16)]
        spans += [(many, whole, 0) for many in filling if many * whole <= MOST_IN_REGISTERS // 2]
        spans = spans or [(least, whole, 0)]
    steps = (1024, 2048, 4096, 512) if inner == 1 else (32, 16, 64, 8)
    spans += [(least, step, 1) for step in steps if step < whole]
    for block_rows, block, looped in spans:
        if block_rows > power_of_two(rows):
            continue
        for warps in _warps(block_rows * block):
            yield {"block_rows": block_rows, "block": block, "looped": looped, "warps": warps, "stages": 2}


def row_launch(
    kernel: str, pointers: tuple[Pointer, ...], numbers: dict[str, Any], configuration: Configuration
) -> TritonLaunch:
    """``kernel`` is the name without ``_whole`` or ``_looped``."""
    ending = "" if kernel == "reduced" else "_looped" if configuration["looped"] else "_whole"
    block_rows = configuration["block_rows"]
    return TritonLaunch(
        f"rows:{kernel}{ending}",
        pointers,
        {**numbers, "BLOCK_ROWS": block_rows, "BLOCK": configuration["block"]},
        (parts(numbers["ROWS"], block_rows), 1, 1),
        configuration["warps"],
        configuration["stages"],
    )


def not_float(operator: Operator) -> str | None:
    kinds = {operator.value(number).dtype for number in operator.tensor_inputs}
    if len(kinds) > 1 or not kinds <= set(FLOATS):
        return f"the Triton templates for rows are of one of {', '.join(FLOATS)}"
    return None


def _warps(span: int) -> Iterator[int]:
    """Between one and 32 elements a thread, the usual first."""
    fitting = [warps for warps in _WARPS if 32 * warps <= span <= 32 * 64 * warps]
    yield from fitting[:3] or [1]


def _along(operator: Operator) -> tuple[int, int, int]:
    return _between(operator, (int(operator.nodes[0].attributes["axis"]),))


def _behind(operator: Operator) -> tuple[int, int, int]:
    """Of a norm: all from its axis on."""
    rank = len(operator.inputs[0].shape)
    return _between(operator, range(int(operator.nodes[0].attributes["axis"]), rank))


def _between(operator: Operator, axes: Sequence[int]) -> tuple[int, int, int]:
    """The first input as [outer, length, inner] around these axes, which lie beside each other."""
    shape = operator.inputs[0].shape
    first, last = axes[0], axes[-1] + 1
    return elements(shape[:first]), elements(shape[first:last]), elements(shape[last:])


def _axes(operator: Operator) -> tuple[int, ...]:
    node = operator.nodes[0]
    if len(node.inputs) < 2 or node.inputs[1] < 0:
        return tuple(range(len(operator.inputs[0].shape)))
    return tuple(sorted(int(axis) for axis in operator.inputs[node.inputs[1]].data or ()))
