"""Which operators the torch table has, and their limits, known without importing torch."""

from __future__ import annotations

from collections.abc import Callable

from opatlas.identity.operator import Node, Operator

_FAMILIES = {
    "convolution": "Conv ConvTranspose",
    "elementwise": """Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr
        BitwiseXor Cast CastLike Ceil Clip ConstantOfShape Cos Cosh Div Dropout Equal Erf Exp Floor Greater
        GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Log Max Mean Min Mod Mul Neg Not Or Pow
        Reciprocal
        Round Sign Sin Sinh Sqrt Sub Sum Tan Where Xor""",
    "linear": "Det Einsum Gemm MatMul Trilu",
}

FAMILY_OF: dict[str, str] = {name: family for family, names in _FAMILIES.items() for name in names.split()}
"""Operator type → module of this package that builds it."""


def limit(operator: Operator, node: Node) -> str | None:
    """Why this node cannot be built although its type is known; None where nothing is known against it."""
    check = _LIMITS.get(node.op)
    return check(operator, node) if check else None


def _conv(operator: Operator, node: Node) -> str | None:
    spatial = len(operator.value(node.inputs[0]).shape) - 2
    return None if 1 <= spatial <= 3 else f"PyTorch has no {node.op} over {spatial} dimensions"


_LIMITS: dict[str, Callable[[Operator, Node], str | None]] = {"Conv": _conv, "ConvTranspose": _conv}
