"""oneDNN through PyTorch, called otherwise than eager does: channels-last, weights packed once."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Operator, Setting
from opatlas.load.torch_graph import missing
from tuning.routes.base import Answer, No, Yes
from tuning.routes.library.recipes import Recipe, RecipeRoute, constant

CHANNELS_LAST = frozenset(
    ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "BatchNormalization", "Resize")
)
PACKED = frozenset(("Conv", "MatMul", "Gemm"))


class OneDnn(RecipeRoute):
    """Layout and packing: what a user of eager PyTorch would have to do by hand."""

    name = "onednn"
    distributions = ("torch",)
    preload = ("torch",)

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        if reason := missing(operator):
            return No(reason)
        if not any(True for _ in self.variants(operator, setting)):
            return No("no call of oneDNN differs from PyTorch eager for this operator")
        return Yes()

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        call = {"library": "torch", "call": "eager"}
        if operator.inputs[0].dtype not in ("float32", "bfloat16", "float16"):
            return
        packs = any(
            node.op in PACKED and len(node.inputs) > 1 and constant(operator, node.inputs[1])
            for node in operator.nodes
        )
        turns = any(
            node.op in CHANNELS_LAST and len(operator.value(node.inputs[0]).shape) in (4, 5)
            for node in operator.nodes
        )
        if packs:
            yield {**call, "weights": "packed"}, "packed weights"
        if turns:
            yield {**call, "layout": "channels_last"}, "channels-last"
        if packs and turns:
            yield {**call, "layout": "channels_last", "weights": "packed"}, "channels-last, packed weights"
