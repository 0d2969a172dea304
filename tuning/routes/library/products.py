"""What the routes to NVIDIA's libraries share: which operators, and TF32 as the setting says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting, Target
from opatlas.load.cuda.matrices import product_of
from tuning.routes.base import Answer, Candidate, answer
from tuning.routes.handed_out import HandsOut
from tuning.routes.library.recipes import RecipeRoute


class ProductRoute(HandsOut, RecipeRoute):
    """TF32 where the setting asks for it, and there alone. A library's file says its name, how people write
    it (``library``), how it is told of an operator (``described``) and its variants, to which ``device``,
    ``tf32`` and ``graphs`` are added here."""

    library: str
    kinds: tuple[str, ...] = ("cuda",)
    distributions: tuple[str, ...] = ("nvidia-cublas",)
    described: Callable[[Operator], Any] = staticmethod(product_of)

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        if setting.accumulate == "float64":
            return answer(f"{self.library} keeps sums of these types in float32, not float64")
        try:
            self.described(operator)
        except LoadError as error:
            return answer(str(error))
        return answer(None)

    def space(self, operator: Operator, target: Target, setting: Setting) -> Iterator[Candidate]:
        same = {"device": "cuda", "tf32": setting.tf32, "graphs": setting.graphs}
        for recipe, label in self.variants(operator, setting):
            yield Candidate(self.name, {**recipe, **same}, label)
