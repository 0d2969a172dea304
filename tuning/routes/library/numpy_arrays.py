"""NumPy's own array calls: where an operator is so small that what a call costs is most of its time."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Operator, Setting
from tuning.routes.base import Answer, No, Yes
from tuning.routes.library.recipes import Recipe, RecipeRoute, is_small


class NumPyArrays(RecipeRoute):
    """Calls into kept arrays on one thread; offered where one thread has a chance."""

    name = "numpy"
    distributions: tuple[str, ...] = ("numpy",)
    preload: tuple[str, ...] = ("numpy",)

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        from opatlas.load.numpy_arrays import missing

        if reason := missing(operator):
            return No(reason)
        if setting.threads > 1 and not is_small(operator):
            return No("NumPy's array calls run on one thread, which cannot beat several at this size")
        return Yes()

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        yield {"library": "numpy", "call": "arrays"}, "array calls into kept outputs"

    def serial(self, operator: Operator) -> bool:
        return True
