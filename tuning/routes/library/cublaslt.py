"""cuBLASLt: each algorithm that its heuristic offers for a product, of which eager takes the first."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Operator, Setting
from opatlas.load.cuda.cublaslt import MOST_ALGORITHMS
from tuning.routes.library.products import ProductRoute
from tuning.routes.library.recipes import Recipe


class CublasLt(ProductRoute):
    """How many it offers is known on the device only; whoever asks for one more is told so when it is
    loaded."""

    name = "cublaslt"
    library = "cuBLASLt"
    preload: tuple[str, ...] = ("opatlas.load.cuda.cublaslt",)

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        for number in range(1, MOST_ALGORITHMS + 1):
            recipe = {"library": "cublaslt", "call": "matmul", "algorithm": number}
            yield recipe, f"algorithm {number} of its heuristic"
