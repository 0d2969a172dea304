"""A product of row-major tensors in the terms of column-major libraries. PURE.

A row-major matrix is its transpose in column-major: ``y = a b`` is ``yᵀ = bᵀ aᵀ``. So the second operand
comes first, and a matrix stored the other way round is called turned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from opatlas.errors import LoadError
from opatlas.identity.operator import Operator, Value

DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Matrix:
    """Column-major: ``rows`` × ``columns``, columns ``step`` elements apart, batches ``batch_step`` elements
    apart (0: the same one). ``number``: the operator's input, -1 for its output."""

    number: int
    rows: int
    columns: int
    step: int
    batch_step: int
    turned: bool = False


@dataclass(frozen=True)
class MatrixProduct:
    """``made = alpha · first second``, ``batches`` times."""

    dtype: str
    first: Matrix
    second: Matrix
    made: Matrix
    batches: int
    alpha: float


def product_of(operator: Operator) -> MatrixProduct:
    """Raises :class:`LoadError` with the reason if the operator is no such product."""
    node = operator.nodes[0]
    if len(operator.nodes) != 1 or node.domain or node.op not in ("MatMul", "Gemm"):
        raise LoadError("it is not one matrix product")
    a, b = (operator.value(number) for number in node.inputs[:2])
    if len(node.inputs) > 2:
        raise LoadError("a product with something added is left to other routes")
    if a.dtype not in DTYPES or b.dtype != a.dtype:
        raise LoadError(f"products of {a.dtype} and {b.dtype} are left to other routes")
    if a.strides or b.strides or 0 in (*a.shape, *b.shape) or min(len(a.shape), len(b.shape)) < 2:
        raise LoadError("products of strided, empty or one-dimensional tensors are left to other routes")
    turned_a, turned_b = bool(node.attributes.get("transA")), bool(node.attributes.get("transB"))
    made = operator.output_values[0].shape
    rows, columns = made[-2:]
    depth = a.shape[0] if turned_a else a.shape[-1]
    batches = math.prod(made[:-2])
    if len(b.shape) == 2 and not turned_a:
        rows, batches = rows * batches, 1  # one tall product
    return MatrixProduct(
        dtype=a.dtype,
        first=_matrix(node.inputs[1], b, depth, columns, turned_b, batches),
        second=_matrix(node.inputs[0], a, rows, depth, turned_a, batches),
        made=Matrix(-1, columns, rows, columns, rows * columns),
        batches=batches,
        alpha=float(node.attributes.get("alpha", 1.0)),
    )


def _matrix(number: int, value: Value, rows: int, columns: int, turned: bool, batches: int) -> Matrix:
    """Of an operand that is ``rows`` × ``columns`` once it is turned the right way."""
    if turned:
        rows, columns = columns, rows
    many = math.prod(value.shape) // (rows * columns)
    if many not in (1, batches):
        raise LoadError("products whose batch is spread in part are left to other routes")
    return Matrix(number, columns, rows, columns, rows * columns if many > 1 else 0, turned)
