"""OpenBLAS (the one that NumPy carries): matrix products."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Operator, Setting
from tuning.routes.base import Answer, answer
from tuning.routes.library.recipes import Recipe, RecipeRoute
from tuning.routes.library.shapes import constant


class OpenBlas(RecipeRoute):
    """``numpy.matmul`` into a kept output; a constant second operand also stored transposed."""

    name = "openblas"
    distributions: tuple[str, ...] = ("numpy",)
    preload: tuple[str, ...] = ("numpy",)

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        from opatlas.load.numpy_recipe import missing

        return answer(missing(operator))

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        call = {"library": "numpy", "call": "matmul"}
        yield call, "plain product"
        if constant(operator, operator.nodes[0].inputs[1]):
            yield {**call, "weights": "transposed"}, "second operand stored transposed"
