"""cuBLAS: a product by each of its functions for one, which choose for themselves."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Operator, Setting
from opatlas.load.cuda.matrices import product_of
from tuning.routes.library.products import ProductRoute
from tuning.routes.library.recipes import Recipe


class Cublas(ProductRoute):
    name = "cublas"
    library = "cuBLAS"
    preload: tuple[str, ...] = ("opatlas.load.cuda.cublas",)

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        yield {"library": "cublas", "call": "gemm_ex"}, "gemmEx"
        if product_of(operator).dtype == "float32":
            yield {"library": "cublas", "call": "sgemm"}, "sgemm"
