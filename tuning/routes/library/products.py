"""What the routes to NVIDIA's libraries for products share: which operators, and TF32 as the setting says."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting, Target
from opatlas.load.cuda.matrices import product_of
from tuning.routes.base import Answer, Budget, Candidate, answer
from tuning.routes.library.recipes import RecipeRoute


class ProductRoute(RecipeRoute):
    """TF32 where the setting asks for it, and there alone. A library's file says its name, how people write
    it (``library``) and its variants, to which ``device``, ``tf32`` and ``graphs`` are added here."""

    library: str
    kinds: tuple[str, ...] = ("cuda",)
    distributions: tuple[str, ...] = ("nvidia-cublas",)

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        if setting.accumulate == "float64":
            return answer(f"{self.library} keeps sums of these types in float32, not float64")
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
        same = {"device": "cuda", "tf32": setting.tf32, "graphs": setting.graphs}
        for recipe, label in islice(self.variants(operator, setting), budget.candidates):
            yield Candidate(self.name, {**recipe, **same}, label)
