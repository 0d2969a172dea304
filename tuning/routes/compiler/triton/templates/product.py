"""Matrix products: MatMul, batched or not, and Gemm. PURE."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Operator, Setting, Target
from tuning.routes.compiler.triton.launch import (
    FLOATS,
    Configuration,
    TritonLaunch,
    elements,
    has_tma,
    in_workspace,
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
    # NVIDIA's heuristics for CUTLASS on an H100 (nvMatmulHeuristics 0.1.0.27) advise these, too.
    *((128, 128, 128, 8, 3), (64, 64, 128, 4, 5)),
)
_SINGLE = (
    *((128, 128, 32, 8, 3), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4), (64, 64, 32, 4, 4)),
    *((128, 128, 16, 8, 3), (64, 64, 16, 4, 4), (32, 64, 32, 4, 4), (64, 32, 32, 4, 4)),
    *((32, 32, 64, 4, 4), (16, 64, 64, 4, 4), (16, 128, 32, 4, 4), (16, 32, 128, 4, 3)),
)
GROUPS = (8, 1)
MOST_SUMS_BYTES = 64 << 20
LEAST_DEPTH = 256
"""Of a part of the depth: less is not worth a launch more."""
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
        moved = half and has_tma(target) and _begins_evenly(operator)
        plain = [
            (*tile, split, tma)
            for tile in tiles or [(16, 16, 16, 4, 3)]
            for split in _splits(tile, m, n, k, batches, target)
            for tma in ((1, 0) if moved else (0,))
        ]
        plain.sort(key=lambda one: _work(one, m, n, k, batches, target))
        for group in GROUPS:
            for rows, columns, depth, warps, stages, split, tma in plain:
                if group == 1 or parts(m, rows) > 1:
                    yield {
                        "block_m": rows,
                        "block_n": columns,
                        "block_k": depth,
                        "group": group,
                        "warps": warps,
                        "stages": stages,
                        "split": split,
                        "tma": tma,
                        "programs": target.multiprocessors if tma else 0,
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
        blocks, split = parts(m, block_m) * parts(n, block_n), configuration["split"]
        work = blocks * batches * split
        programs = min(work, configuration["programs"] or work)
        numbers = {
            "M": m,
            "N": n,
            "K": k,
            "BATCHES": batches,
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
            "SPLIT": split,
            "PROGRAMS": programs,
            "TMA": bool(configuration["tma"]),
        }
        pointers = (
            of_input("a", operator, node.inputs[0]),
            of_input("b", operator, node.inputs[1]),
            third,
            of_output("y", operator),
            in_workspace("sums") if split > 1 else of_output("sums", operator),
        )
        return TritonLaunch(
            "product:product",
            pointers,
            numbers,
            (programs, 1, 1),
            configuration["warps"],
            configuration["stages"],
            then=(blocks, batches, 1) if split > 1 else None,
            workspace_bytes=4 * m * n * batches * split if split > 1 else 0,
        )


def precision(operator: Operator, setting: Setting) -> str:
    """How ``tl.dot`` may round float32 operands."""
    return "tf32" if setting.tf32 else "ieee"


def _sizes(operator: Operator) -> tuple[int, int, int, int]:
    """Rows, columns, depth, and how many products: those with one second matrix are one tall product."""
    node, made = operator.nodes[0], operator.output_values[0].shape
    a, b = (operator.value(number) for number in node.inputs[:2])
    k = a.shape[0 if node.attributes.get("transA") else -1]
    if len(b.shape) == 2 and a.strides is None:
        return elements(made[:-1]), made[-1], k, 1
    return made[-2], made[-1], k, elements(made[:-2])


def _batch(operator: Operator) -> tuple[int, int]:
    if _sizes(operator)[3] == 1:
        return 1, 1
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


def _begins_evenly(operator: Operator) -> bool:
    """Whether it is one product whose rows begin at multiples of 16 bytes, whichever way its operands lie."""
    ends = [steps(operator.value(number))[-2:] for number in operator.nodes[0].inputs[:2]]
    return _sizes(operator)[3] == 1 and all(min(end) == 1 and max(end) % 8 == 0 for end in ends)


def _splits(tile: tuple[int, ...], m: int, n: int, k: int, batches: int, target: Target) -> Iterator[int]:
    """In how many parts of its depth a product is worth being computed: one, and as many as give every
    multiprocessor a block."""
    yield 1
    blocks = parts(m, tile[0]) * parts(n, tile[1]) * batches
    most = min(target.multiprocessors // blocks, k // LEAST_DEPTH, 32)
    split = power_of_two(most + 1) // 2 if most > 1 else 1
    if split > 1 and 4 * m * n * batches * split <= MOST_SUMS_BYTES:
        yield split


def _work(one: tuple[int, ...], m: int, n: int, k: int, batches: int, target: Target) -> float:
    """Blocks one after another on a multiprocessor, times what each takes: its area, and its edges, which are
    read in each step of the depth (an element read is as much as 32 multiplied; half as much where an engine
    reads it); and the sums of parts, written and read once."""
    rows, columns, *_, split, tma = one
    waves = parts(parts(m, rows) * parts(n, columns) * batches * split, target.multiprocessors)
    summed = 64 * split * rows * columns if split > 1 else 0
    return waves * (rows * columns + (16 if tma else 32) * (rows + columns)) * (k / split) + summed
