"""MKL and PyTorch's native kernels: the same calls with oneDNN switched off."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Node, Operator, Setting
from tuning.routes.library.recipes import PyTorchVariants, Recipe
from tuning.routes.library.shapes import constant

PRODUCTS = frozenset(("MatMul", "Gemm"))
CONVOLUTIONS = frozenset(("Conv", "ConvTranspose"))


class Mkl(PyTorchVariants):
    """Matrix products in MKL (weights transposed or packed), convolutions unfolded onto its products."""

    name = "mkl"
    library = "MKL"

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        if operator.inputs[0].dtype not in ("float32", "float64"):
            return
        if CONVOLUTIONS & set(operator.op_types):
            yield {"library": "torch", "call": "eager", "onednn": False}, "native kernel"
        # A plain float32 product of eager is MKL's already: only stored weights can make a difference.
        products = [node for node in operator.nodes if node.op in PRODUCTS]
        fixed = products and all(_fixed_matrix(operator, node) for node in products)
        if fixed and operator.inputs[0].dtype == "float32":
            yield {"library": "torch", "call": "mkl"}, "packed weights"
        if products and all(constant(operator, node.inputs[1]) for node in products):
            transposed: Recipe = {"library": "torch", "call": "eager", "weights": "transposed"}
            yield transposed, "second operand stored transposed"


def _fixed_matrix(operator: Operator, node: Node) -> bool:
    """Whether the second operand is a constant matrix, so that it can be packed."""
    first, second = (operator.value(number).shape for number in node.inputs[:2])
    return len(second) == 2 and len(first) >= 2 and constant(operator, node.inputs[1])
