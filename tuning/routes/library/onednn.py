"""oneDNN through PyTorch, called otherwise than eager does: channels-last, own operators, packed weights."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Node, Operator, Setting
from opatlas.load.torch.ops.endings import ending
from tuning.routes.library.recipes import PyTorchVariants, Recipe
from tuning.routes.library.shapes import constant

CHANNELS_LAST = frozenset(
    ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "BatchNormalization", "Resize")
)
DTYPES = frozenset(("float32", "bfloat16", "float16"))


class OneDnn(PyTorchVariants):
    """Layout and packing: what a user of eager PyTorch would have to do by hand.

    For matrix products alone the difference is the library: eager's float32 products are MKL's.
    """

    name = "onednn"
    library = "oneDNN"

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        if operator.inputs[0].dtype not in DTYPES:
            return
        own: Recipe = {"library": "torch", "call": "onednn"}
        turned = {"layout": "channels_last"}
        products = [node for node in operator.nodes if _own_call(operator, node)]
        packs = products and all(constant(operator, node.inputs[1]) for node in products)
        turns = any(
            node.op in CHANNELS_LAST and len(operator.value(node.inputs[0]).shape) in (4, 5)
            for node in operator.nodes
        )
        fuses = any(
            ending(operator, position) for position, node in enumerate(operator.nodes) if node in products
        )
        if fuses:
            fused = {**own, "epilogue": "fused"}
            if packs:
                yield {**fused, "weights": "packed"}, "packed weights, fused ending"
            if packs and turns:
                yield {**fused, **turned, "weights": "packed"}, "channels-last, packed weights, fused ending"
            yield fused, "fused ending"
        if packs:
            yield {**own, "weights": "packed"}, "packed weights"
        if packs and turns:
            yield {**own, **turned, "weights": "packed"}, "channels-last, packed weights"
        if turns:
            yield {"library": "torch", "call": "eager", **turned}, "channels-last"
        if products:
            yield {**own, "weights": "plain"}, "its own call"


def _own_call(operator: Operator, node: Node) -> bool:
    """Whether oneDNN's own operators can do the node: a convolution, or a product with a matrix."""
    if node.op == "Conv":
        return True
    if node.op not in ("MatMul", "Gemm"):
        return False
    first, second = (operator.value(number).shape for number in node.inputs[:2])
    return len(second) == 2 and len(first) >= 2
