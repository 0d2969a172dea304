"""Products as cuBLASLt is asked for them: by a library of NumPy that reads memory as the real one would."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity import Setting, parse_operator
from opatlas.load.cuda import cublaslt
from opatlas.load.cuda.cublaslt import MOST_ALGORITHMS, Algorithm, CublasLtKernel, CublasLtLibrary
from opatlas.load.cuda.matrices import Matrix, MatrixProduct, product_of
from opatlas.load.cuda.products import Addresses
from opatlas.load.recipe import ALLOWED, check_recipe
from tests.catalog.making import GPU
from tests.opatlas.load.cuda.simulated import SimulatedDriver
from tests.opatlas.load.cuda.simulated_products import (
    DOCUMENTS,
    PRODUCT,
    assert_computed,
    matrix,
    shapes,
    tensor,
)
from tuning.routes.base import Budget, No
from tuning.routes.handed_out import AT_ONCE
from tuning.routes.library.cublaslt import CublasLt

RECIPE = {"library": "cublaslt", "call": "matmul", "device": "cuda", "algorithm": 2}


class SimulatedLibrary:
    """Column-major products over a simulated device's memory; two algorithms."""

    def __init__(self, device: SimulatedDriver) -> None:
        self.device = device
        self.asked: list[tuple[bool, int]] = []

    def algorithms(self, product: MatrixProduct, tf32: bool) -> Sequence[Algorithm]:
        return [Algorithm(workspace_bytes=size) for size in (0, 4096)]

    def multiplier(
        self, product: MatrixProduct, tf32: bool, algorithm: Algorithm, at: Addresses
    ) -> Callable[[int], None]:
        self.asked.append((tf32, algorithm.workspace_bytes))
        return lambda stream: self.device.waiting.append(lambda: self.run(product, at))

    def run(self, product: MatrixProduct, at: Addresses) -> None:
        for batch in range(product.batches):
            first = self.read(product.first, at.first, batch)
            second = self.read(product.second, at.second, batch)
            self.matrix(product.made, at.made, batch)[...] = product.alpha * (first @ second)

    def read(self, one: Matrix, address: int, batch: int) -> np.ndarray:
        found = self.matrix(one, address, batch)
        return found.T if one.turned else found

    def matrix(self, one: Matrix, address: int, batch: int) -> np.ndarray:
        start = address + 4 * batch * one.batch_step
        return matrix(self.device, start, one.rows, one.columns, one.step)


@pytest.mark.parametrize("document", DOCUMENTS, ids=shapes)
def test_what_it_is_asked_for_is_the_operators_product(document: dict[str, Any]) -> None:
    operator, device = parse_operator(document), SimulatedDriver()
    library = SimulatedLibrary(device)
    assert_computed(operator, lambda: CublasLtKernel(operator, check_recipe(RECIPE, 1), device, library))
    assert library.asked == [(False, 4096)], "the second algorithm, strictly"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"op": "MatMul", "inputs": [tensor(2, 1, 4, 6), tensor(2, 3, 6, 5)]}, "spread in part"),
        ({"op": "MatMul", "inputs": [tensor(4, 6, strides=[1, 4]), tensor(6, 5)]}, "strided"),
        ({"op": "Gemm", "inputs": [tensor(4, 6), tensor(6, 5), tensor(5)]}, "something added"),
        ({"op": "Relu", "inputs": [tensor(4, 6)]}, "not one matrix product"),
    ],
)
def test_other_products_are_left_to_other_routes(document: dict[str, Any], words: str) -> None:
    operator = parse_operator(document)
    with pytest.raises(LoadError, match=words):
        product_of(operator)
    refused = CublasLt().supports(operator, Setting())
    assert isinstance(refused, No)
    assert words in refused.reason


def test_an_algorithm_that_is_not_offered_is_told() -> None:
    device = SimulatedDriver()
    recipe = check_recipe({**RECIPE, "algorithm": 3}, 1)
    with pytest.raises(LoadError, match="offers 2 algorithms here; this recipe wants number 3"):
        CublasLtKernel(PRODUCT, recipe, device, SimulatedLibrary(device))
    for wrong in (0, 33, True, "2"):
        with pytest.raises(LoadError, match="parameter 'algorithm'"):
            check_recipe({**RECIPE, "algorithm": wrong}, 1)


def test_its_recipes_follow_the_setting_and_tuning_tries_the_rest(tmp_path: Path) -> None:
    found = list(CublasLt().candidates(PRODUCT, GPU, Setting(tf32=True), Budget(1.0)))
    assert [one.parameters["algorithm"] for one in found] == list(range(1, AT_ONCE + 1))
    assert all(check_recipe(one.parameters, 1)["tf32"] for one in found)
    assert not any(
        one.parameters["tf32"] for one in CublasLt().candidates(PRODUCT, GPU, Setting(), Budget(1.0))
    )
    rest = []
    while more := list(CublasLt().tune(PRODUCT, GPU, Setting(), tmp_path, 1.0)):
        rest += [one.parameters["algorithm"] for one in more]
    assert rest == list(range(AT_ONCE + 1, MOST_ALGORITHMS + 1))
    assert ALLOWED["cublaslt", "matmul"]["algorithm"] == tuple(range(1, MOST_ALGORITHMS + 1))


class Preferring:
    """Of the library's functions those that an offer is asked by. ``preferred``: attribute to its bytes."""

    def __init__(self) -> None:
        self.preferred: dict[int, bytes] = {}

    def cublasLtMatmulPreferenceSetAttribute(self, preference: Any, which: int, value: Any, size: Any) -> int:
        self.preferred[which] = bytes(value._obj)
        assert len(self.preferred[which]) == size.value
        return 0

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 0


def test_parts_of_a_sum_are_kept_in_float32() -> None:
    """Preference 3 is the mask of reductions, whose bit 2 is that in the type that is computed in."""
    library = Preferring()
    assert CublasLtLibrary(library).algorithms(product_of(PRODUCT), False) == []
    workspace = (32 << 20).to_bytes(8, "little")
    assert library.preferred == {1: workspace, 3: (2).to_bytes(4, "little")}


@pytest.mark.skipif(bool(CublasLt().versions()), reason="nvidia-cublas is installed here")
def test_where_it_is_not_installed_it_says_so() -> None:
    refused = CublasLt().available(GPU)
    assert isinstance(refused, No)
    assert refused.reason == "nvidia-cublas is not installed"
    cublaslt.open_library.cache_clear()
    with pytest.raises(LoadError, match="needs cuBLASLt, which cannot be loaded"):
        cublaslt.open_library()


def test_an_algorithms_structure_is_as_large_as_the_librarys() -> None:
    assert ctypes.sizeof(Algorithm) == 96
