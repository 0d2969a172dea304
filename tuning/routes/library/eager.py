"""PyTorch eager: called plainly, what a user has without us and so the default; and called with more care."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from opatlas.identity import Node, Operator, Setting, Target
from opatlas.load.torch.graph import missing
from opatlas.load.torch.ops.names import KEPT
from tuning.routes.base import Answer, Budget, Candidate, No, answer
from tuning.routes.library.recipes import Recipe, RecipeRoute
from tuning.routes.library.shapes import dense_inputs, plain_attention, side_by_side, turnable, with_vector

VIEWS = frozenset(("Transpose", "Expand", "Slice", "Split", "DepthToSpace", "SpaceToDepth", "Concat"))
"""Operators whose result PyTorch has to copy before it is dense: into a kept buffer as well."""

FORMS: tuple[tuple[str, str, frozenset[str], Callable[[Operator, Node], bool]], ...] = (
    ("product", "as a matrix product", frozenset(("Conv", "ConvTranspose")), side_by_side),
    ("vector", "as a product with a vector", frozenset(("MatMul",)), with_vector),
    ("turned", "second operand turned in every run", frozenset(("MatMul", "Gemm")), turnable),
    ("written_out", "softmax between two products", frozenset(("Attention",)), plain_attention),
)
"""The recipe's form, its label, the operators it is for, and whether a node of them can have it."""


class Eager(RecipeRoute):
    """One PyTorch call a node, weights as plain contiguous parameters, inputs as the key states.

    Beside the plain call: outputs in kept buffers, and other calls that come to the same.
    """

    name = "eager"
    kinds: tuple[str, ...] = ("cpu", "cuda")
    distributions: tuple[str, ...] = ("torch",)
    preload: tuple[str, ...] = ("torch",)

    def available(self, target: Target) -> Answer:
        installed = self.versions().get("torch", "")
        if target.kind == "cuda" and installed.endswith("+cpu"):
            return No(f"torch {installed} is built without CUDA")
        return super().available(target)

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        return answer(missing(operator))

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        """On a device the plain call alone: the other forms are for processors."""
        if target.kind == "cpu":
            yield from super().candidates(operator, target, setting, budget)
        elif self.supports(operator, setting):
            call = {"library": "torch", "call": "eager", "device": target.kind, "tf32": setting.tf32}
            if setting.graphs:
                yield Candidate(self.name, {**call, "graphs": True}, "plain call, in a graph")
            else:
                yield Candidate(self.name, call, "plain call")

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        call: Recipe = {"library": "torch", "call": "eager"}
        yield call, "plain call"
        if _keeps(operator):
            yield {**call, "buffers": "kept"}, "kept outputs"
        for form, label, ops, fits in FORMS:
            nodes = [node for node in operator.nodes if node.op in ops]
            if not nodes or not all(fits(operator, node) for node in nodes):
                continue
            yield {**call, "form": form}, label
            if form == "product" and "Conv" in operator.op_types:
                yield {**call, "form": form, "buffers": "kept"}, f"{label}, kept outputs"


def _keeps(operator: Operator) -> bool:
    """Whether any output can go into a kept buffer; a view of a strided tensor stays a view."""
    ops = set(operator.op_types)
    return bool(ops & KEPT) or (bool(ops & VIEWS) and dense_inputs(operator))
