"""PyTorch eager, called plainly: what a user has without us, and so the default."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Operator, Setting
from opatlas.load.torch_graph import missing
from tuning.routes.base import Answer, No, Yes
from tuning.routes.library.recipes import Recipe, RecipeRoute


class Eager(RecipeRoute):
    """One PyTorch call a node, weights as plain contiguous parameters, inputs as the key states."""

    name = "eager"
    distributions: tuple[str, ...] = ("torch",)
    preload: tuple[str, ...] = ("torch",)

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        reason = missing(operator)
        return No(reason) if reason else Yes()

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        yield {"library": "torch", "call": "eager"}, "plain call"
