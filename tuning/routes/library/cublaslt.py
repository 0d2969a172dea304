"""cuBLASLt: each algorithm that its heuristic offers for a product, of which eager takes the first."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting, Target
from opatlas.load.cuda.matrices import product_of
from tuning.routes.base import Answer, Budget, Candidate, answer
from tuning.routes.library.recipes import RecipeRoute

TRIED = 8
"""How many it offers is known on the device only; whoever asks for one more is told so when it is loaded."""


class CublasLt(RecipeRoute):
    """TF32 where the setting asks for it, and there alone."""

    name = "cublaslt"
    kinds: tuple[str, ...] = ("cuda",)
    distributions: tuple[str, ...] = ("nvidia-cublas",)
    preload: tuple[str, ...] = ("opatlas.load.cuda.cublaslt",)

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        if setting.accumulate == "float64":
            return answer("cuBLASLt keeps sums of these types in float32, not float64")
        try:
            product_of(operator)
        except LoadError as error:
            return answer(str(error))
        return answer(None)

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        if not self.supports(operator, setting):
            return
        for number in range(1, min(TRIED, budget.candidates) + 1):
            recipe = {"library": "cublaslt", "call": "matmul", "device": "cuda", "algorithm": number}
            recipe |= {"tf32": setting.tf32, "graphs": setting.graphs}
            yield Candidate(self.name, recipe, f"algorithm {number} of its heuristic")
