"""NumPy's matrix products as recipes: the number of threads is the recipe's at each call."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from opatlas.identity import parse_operator
from opatlas.load.numpy_recipe import NumpyBound, NumpyKernel, openblas

X = np.ones((8, 8), np.float32)


def bound(threads: int) -> NumpyBound:
    value = {"shape": list(X.shape), "dtype": "float32"}
    operator = parse_operator({"op": "MatMul", "inputs": [value, value]})
    recipe = {"library": "numpy", "call": "matmul", "weights": "given", "threads": threads}
    return NumpyKernel(operator, recipe).bind({0: X, 1: X})


def blas_calls() -> tuple[Callable[[], int], Callable[[int], None]]:
    library, prefix, suffix = openblas()
    get, put = (getattr(library, f"{prefix}openblas_{verb}_num_threads{suffix}") for verb in ("get", "set"))
    return get, put


def test_a_product_has_its_recipes_threads_whoever_set_them_meanwhile() -> None:
    threads, set_threads = blas_calls()
    one, two = bound(1), bound(2)
    one()
    assert threads() == 1
    two()
    assert threads() == 2
    set_threads(1)  # as the process's owner may at any time
    two()
    assert threads() == 2
    np.testing.assert_array_equal(two.outputs()[0], X @ X)
