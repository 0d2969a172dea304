"""Matrix products: MatMul, batched or not, and Gemm. PURE."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Operator, Setting, Target
from tuning.routes.compiler.triton.launch import (
    FLOATS,
    Configuration,
    TritonLaunch,
    elements,
    of_input,
    of_output,
    parts,
    power_of_two,
    single,
    steps,
    unwieldy,
)

_HALF = (
    # rows, columns, depth of a block, warps, stages
    *((128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 64, 4, 4)),
    *((128, 128, 32, 4, 4), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4)),
    *((64, 256, 32, 4, 4), (64, 32, 64, 4, 5), (32, 64, 64, 4, 5), (32, 128, 64, 4, 4)),
    *((16, 64, 128, 4, 4), (16, 128, 64, 4, 4), (32, 32, 128, 4, 4), (16, 32, 256, 4, 3)),
)
_SINGLE = (
    *((128, 128, 32, 8, 3), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4), (64, 64, 32, 4, 4)),
    *((128, 128, 16, 8, 3), (64, 64, 16, 4, 4), (32, 64, 32, 4, 4), (64, 32, 32, 4, 4)),
    *((32, 32, 64, 4, 4), (16, 64, 64, 4, 4), (16, 128, 32, 4, 4), (16, 32, 128, 4, 3)),
)
GROUPS = (8, 1)
NOT_FILLED = 2
"""A block at most this many times the power of two that holds its dimension: more of it would be idle."""


class Product:
    """``tl.dot`` over blocks, operands read wherever they lie."""

    name = "product"
    types = frozenset(("MatMul", "Gemm"))

    def missing(self, operator: Operator) -> str | None:
        if reason := single(operator, self.types) or unwieldy(operator, strided=True):
            return reason
        kinds = {operator.value(number).dtype for number in operator.nodes[0].inputs if number >= 0}
        if len(kinds) > 1 or not kinds <= set(FLOATS):
            return f"the Triton products are of one of {', '.join(FLOATS)}"
        if len(operator.inputs[0].shape) < 2 or len(operator.inputs[1].shape) < 2:
            return "products with vectors of one dimension have no Triton template"
        if len(operator.output_values[0].shape) > 4:
            return "the Triton products have at most two batch dimensions"
        return None

    def configurations(self, operator: Operator, target: Target, setting: Setting) -> Iterator[Configuration]:
        m, n, k, batches = _sizes(operator)
        half = operator.inputs[0].dtype != "float32"
        tiles = [
            tile
            for tile in (_HALF if half else _SINGLE)
            if all(
                block <= NOT_FILLED * power_of_two(size, 16)
                for block, size in zip(tile[:3], (m, n, k), strict=True)
            )
        ]
        tiles = sorted(tiles or [(16, 16, 16, 4, 3)], key=lambda tile: _work(tile, m, n, batches, target))
        for group in GROUPS:
            for rows, columns, depth, warps, stages in tiles:
                if group == 1 or parts(m, rows) > 1:
                    yield {
                        "block_m": rows,
                        "block_n": columns,
                        "block_k": depth,
                        "group": group,
                        "warps": warps,
                        "stages": stages,
                    }

    def launch(self, operator: Operator, setting: Setting, configuration: Configuration) -> TritonLaunch:
        node = operator.nodes[0]
        turned = [bool(node.attributes.get(name)) for name in ("transA", "transB")]
        m, n, k, batches = _sizes(operator)
        places = [
            _places(operator, number, turn) for number, turn in zip(node.inputs[:2], turned, strict=True)
        ]
        added = len(node.inputs) > 2 and node.inputs[2] >= 0
        third = of_input("c", operator, node.inputs[2]) if added else of_output("c", operator)
        c_steps = _broadcast(operator, node.inputs[2], 2) if added else (0, 0)
        block_m, block_n = configuration["block_m"], configuration["block_n"]
        numbers = {
            "M": m,
            "N": n,
            "K": k,
            "INNER": _batch(operator)[1],
            **dict(zip(("A_OUTER", "A_INNER", "A_ROW", "A_COLUMN"), places[0], strict=True)),
            **dict(zip(("B_OUTER", "B_INNER", "B_ROW", "B_COLUMN"), places[1], strict=True)),
            "C_ROW": c_steps[0],
            "C_COLUMN": c_steps[1],
            "ALPHA": float(node.attributes.get("alpha", 1.0)),
            "BETA": float(node.attributes.get("beta", 1.0)) if added else 0.0,
            "PRECISION": precision(operator, setting),
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "BLOCK_K": configuration["block_k"],
            "GROUP": configuration["group"],
        }
        pointers = (
            of_input("a", operator, node.inputs[0]),
            of_input("b", operator, node.inputs[1]),
            third,
            of_output("y", operator),
        )
        grid = (parts(m, block_m) * parts(n, block_n), batches, 1)
        return TritonLaunch(
            "product:product", pointers, numbers, grid, configuration["warps"], configuration["stages"]
        )


def precision(operator: Operator, setting: Setting) -> str:
    """How ``tl.dot`` may round float32 operands."""
    return "tf32" if setting.tf32 else "ieee"


def _sizes(operator: Operator) -> tuple[int, int, int, int]:
    """Rows, columns, depth, and how many products."""
    node, made = operator.nodes[0], operator.output_values[0].shape
    a = operator.value(node.inputs[0]).shape
    k = a[0 if node.attributes.get("transA") else -1] if node.op == "Gemm" else a[-1]
    return made[-2], made[-1], k, elements(made[:-2])


def _batch(operator: Operator) -> tuple[int, int]:
    outer, inner = (1, 1, *operator.output_values[0].shape[:-2])[-2:]
    return outer, inner


def _broadcast(operator: Operator, number: int, rank: int) -> tuple[int, ...]:
    """Strides in the last ``rank`` dimensions; 0 where there is one element or none of the dimension."""
    value = operator.value(number)
    found = [0 if size == 1 else step for size, step in zip(value.shape, steps(value), strict=True)]
    return (0,) * (rank - len(found)) + tuple(found)


def _places(operator: Operator, number: int, turned: bool) -> tuple[int, int, int, int]:
    """Strides of an operand: outer batch, inner batch, row, column."""
    value = operator.value(number)
    outer, inner = _broadcast(operator, number, 4)[:2]
    row, column = steps(value)[-2:]
    return (outer, inner, column, row) if turned else (outer, inner, row, column)


def _work(tile: tuple[int, ...], m: int, n: int, batches: int, target: Target) -> float:
    """Blocks one after another on a multiprocessor, times what each takes: its area, and its edges, which are
    read in each step of the depth (an element read is as much as 32 multiplied)."""
    rows, columns = tile[:2]
    waves = parts(parts(m, rows) * parts(n, columns) * batches, max(1, target.multiprocessors))
    return waves * (rows * columns + 32 * (rows + columns))
