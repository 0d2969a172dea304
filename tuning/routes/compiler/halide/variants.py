"""Which autoschedulers and layouts an operator gets. Imports no Halide."""

from __future__ import annotations

from opatlas.identity import Operator
from tuning.routes.compiler.halide.table import CONTRACTIONS

OWN = "own"
SCHEDULERS = ("Adams2019", "Mullapudi2016", "Li2018", OWN)
LAYOUTS = ("rows", "channels", "panels")


def variants(operator: Operator) -> list[tuple[str, str, str]]:
    """(scheduler, layout of products, label), the most promising first."""
    found = [
        ("Adams2019", "rows", "Adams2019"),
        ("Mullapudi2016", "rows", "Mullapudi2016"),
        ("Li2018", "rows", "Li2018"),
    ]
    if any(node.op == "Resize" for node in operator.nodes):
        del found[0]  # its code for cubic weights reads where nothing is mapped (Halide 21, AVX-512)
    if sum(node.op in CONTRACTIONS for node in operator.nodes) == 1:
        found.insert(0, (OWN, "rows", "register tiles"))
    if any(node.op == "Conv" and _wide(operator, node.inputs[1]) for node in operator.nodes):
        found.insert(0, (OWN, "channels", "register tiles, channels innermost, packed weights"))
        found.append(("Adams2019", "channels", "Adams2019, channels innermost, packed weights"))
    if len(operator.nodes) == 1 and operator.nodes[0].op in ("Gemm", "MatMul") and _large(operator):
        found.insert(0, (OWN, "panels", "register tiles over packed panels"))
    return found


def _large(operator: Operator) -> bool:
    """Whether a product's second factor is a constant matrix whose rows are far apart, used by many rows."""
    first, second = (operator.value(number) for number in operator.nodes[0].inputs[:2])
    columns = operator.output_values[0].shape[-1:]
    if second.role != "const" or len(second.shape) != 2 or len(first.shape) < 2 or not columns:
        return False
    return columns[0] % 64 == 0 and columns[0] >= 256 and first.shape[-2] > 1


def _wide(operator: Operator, number: int) -> bool:
    """Whether a convolution has output channels enough to fill a vector."""
    weights = operator.value(number)
    return weights.role == "const" and weights.shape[0] >= 8 and weights.shape[1] >= 2
