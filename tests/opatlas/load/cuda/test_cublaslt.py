"""Products as cuBLASLt is asked for them: by a stand-in of its C functions, with the parameters of its
header, that reads a simulated device's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity import Setting, parse_operator
from opatlas.load.cuda import cublaslt
from opatlas.load.cuda.cublaslt import MOST_ALGORITHMS, Algorithm, CublasLtKernel, CublasLtLibrary
from opatlas.load.cuda.driver import DeviceFailed
from opatlas.load.cuda.matrices import product_of
from opatlas.load.cuda.nvidia_library import shared_library
from opatlas.load.recipe import ALLOWED, check_recipe
from tests.catalog.making import GPU
from tests.opatlas.load.cuda.simulated import SimulatedDriver
from tuning.routes.base import Budget, No
from tuning.routes.handed_out import AT_ONCE
from tuning.routes.library.cublaslt import CublasLt


def tensor(*shape: int, **more: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": "float32", **more}


DOCUMENTS: list[dict[str, Any]] = [
    {"op": "MatMul", "inputs": [tensor(4, 6), tensor(6, 5)]},
    {"op": "MatMul", "inputs": [tensor(2, 3, 4, 6), tensor(6, 5)]},
    {"op": "MatMul", "inputs": [tensor(2, 3, 4, 6), tensor(2, 3, 6, 5)]},
    {"op": "MatMul", "inputs": [tensor(4, 6), tensor(3, 6, 5)]},
    {"op": "Gemm", "attrs": {"transA": 1, "alpha": 0.5}, "inputs": [tensor(6, 4), tensor(6, 5)]},
    {"op": "Gemm", "attrs": {"transB": 1}, "inputs": [tensor(4, 6), tensor(5, 6, const=True)]},
    {"op": "Gemm", "attrs": {"transA": 1, "transB": 1}, "inputs": [tensor(6, 4), tensor(5, 6)]},
]
PRODUCT = parse_operator(DOCUMENTS[0])
INPUTS = {0: np.ones((4, 6), np.float32), 1: np.ones((6, 5), np.float32)}
HANDLE = 77
COMPUTES = {68: "float32", 77: "tf32"}
OFFERED = (0, 4096)
"""Bytes of workspace of the algorithms that the stand-in offers."""


class SimulatedCublasLt:
    """``asked``: how strictly, with how much workspace, into which stream. Objects are numbers, and what was
    said of them is kept by them."""

    def __init__(self, device: SimulatedDriver) -> None:
        self.device = device
        self.asked: list[tuple[str, int, int | None]] = []
        self.status = 0
        self.known: dict[int, SimpleNamespace] = {}

    def cublasLtCreate(self, handle: Any) -> int:
        handle._obj.value = HANDLE
        return 0

    def cublasLtMatmulDescCreate(self, made: Any, compute: int, scale: int) -> int:
        assert scale == 0, "factors of float32"
        return self._new(made, compute=COMPUTES[compute], said={})

    def cublasLtMatrixLayoutCreate(self, made: Any, kind: int, rows: Any, columns: Any, step: Any) -> int:
        assert kind == 0, "float32"
        return self._new(made, shape=(rows.value, columns.value), step=step.value, said={})

    def cublasLtMatmulPreferenceCreate(self, made: Any) -> int:
        return self._new(made, said={})

    def cublasLtMatmulDescSetAttribute(self, made: Any, which: int, value: Any, size: Any) -> int:
        return self._say(made, which, value, size, {3: 4, 4: 4})

    def cublasLtMatrixLayoutSetAttribute(self, made: Any, which: int, value: Any, size: Any) -> int:
        return self._say(made, which, value, size, {5: 4, 6: 8})

    def cublasLtMatmulPreferenceSetAttribute(self, made: Any, which: int, value: Any, size: Any) -> int:
        return self._say(made, which, value, size, {1: 8, 3: 4})

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle: Any, operation: Any, a: Any, b: Any, c: Any, d: Any, preference: Any,
        wanted: int, found: Any, count: Any,
    ) -> int:  # fmt: skip
        assert (handle.value, c.value) == (HANDLE, d.value)
        # The most workspace, and the mask of reductions, whose bit 2 is that in the type that is computed in.
        assert self.known[preference.value].said == {1: 32 << 20, 3: 2}
        assert len(OFFERED) <= wanted == len(found)
        for number, nbytes in enumerate(OFFERED):
            found[number].algorithm[0], found[number].workspace_bytes = number + 1, nbytes
        found[len(OFFERED)].status = 15  # one more, which cannot
        count._obj.value = len(OFFERED) + 1
        return 0

    def cublasLtMatmul(
        self, handle: Any, operation: Any, alpha: Any, a: Any, a_is: Any, b: Any, b_is: Any, beta: Any,
        c: Any, c_is: Any, d: Any, d_is: Any, algorithm: Any, workspace: Any, nbytes: Any, stream: Any,
    ) -> int:  # fmt: skip
        assert handle.value == HANDLE
        assert (c.value, c_is.value) == (d.value, d_is.value) and beta._obj.value == 0.0
        assert OFFERED[algorithm._obj.algorithm[0] - 1] == nbytes.value
        if nbytes.value:
            assert self.device.bytes_at(workspace.value, nbytes.value).nbytes == nbytes.value
        does, factor = self.known[operation.value], alpha._obj.value
        self.asked.append((does.compute, nbytes.value, stream.value))
        first, second, made = (self.known[one.value] for one in (a_is, b_is, d_is))

        def run() -> None:
            for batch in range(made.said[5]):
                x, y, z = (
                    self._matrix(at.value, one, batch) for at, one in ((a, first), (b, second), (d, made))
                )
                z[...] = factor * ((x.T if does.said[3] else x) @ (y.T if does.said[4] else y))

        self.device.waiting.append(run)
        return self.status

    def _new(self, made: Any, **about: Any) -> int:
        made._obj.value = len(self.known) + 1
        self.known[made._obj.value] = SimpleNamespace(**about)
        return 0

    def _say(self, made: Any, which: int, value: Any, size: Any, sizes: dict[int, int]) -> int:
        assert sizes[which] == size.value == ctypes.sizeof(value._obj)
        self.known[made.value].said[which] = value._obj.value
        return 0

    def _matrix(self, address: int, one: SimpleNamespace, batch: int) -> np.ndarray:
        """Column-major, a column ``step`` elements behind the last."""
        (rows, columns), step = one.shape, one.step
        flat = self.device.floats(address + 4 * batch * one.said[6], step * (columns - 1) + rows)
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), (4, 4 * step))


def kernel_of(
    document: Any, device: SimulatedDriver, library: SimulatedCublasLt, **more: Any
) -> CublasLtKernel:
    recipe = {"library": "cublaslt", "call": "matmul", "device": "cuda", "algorithm": 2, **more}
    return CublasLtKernel(document, check_recipe(recipe, 1), device, CublasLtLibrary(library))


@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda one: str([value["shape"] for value in one["inputs"]])
)
def test_what_it_is_asked_for_is_the_operators_product(document: dict[str, Any]) -> None:
    operator, device = parse_operator(document), SimulatedDriver()
    library = SimulatedCublasLt(device)
    random = np.random.default_rng(5)
    arrays = {
        number: random.standard_normal(operator.inputs[number].shape).astype(np.float32)
        for number in operator.tensor_inputs
    }
    kernel = kernel_of(operator, device, library)
    kernel.prepare({number: arrays[number] for number in operator.constant_inputs})
    bound = kernel.bind({number: arrays[number] for number in operator.runtime_inputs})
    bound()
    node = operator.nodes[0]
    a, b = (arrays[number] for number in node.inputs)
    a = a.T if node.attributes.get("transA") else a
    b = b.T if node.attributes.get("transB") else b
    wanted = node.attributes.get("alpha", 1.0) * (a @ b)
    np.testing.assert_allclose(bound.outputs()[0], wanted, rtol=1e-5, atol=1e-5)
    assert library.asked == [("float32", 4096, None)], "the second algorithm, strictly"
    device.stream = 5
    bound()
    assert library.asked[1:] == [("float32", 4096, 5)]


def test_tf32_is_used_where_it_is_asked_for_alone() -> None:
    device = SimulatedDriver()
    library = SimulatedCublasLt(device)
    for tf32 in (True, False):
        kernel = kernel_of(PRODUCT, device, library, tf32=tf32)
        bound = kernel.bind(INPUTS)
        bound()
        bound.synchronize()
    assert [how for how, _, _ in library.asked] == ["tf32", "float32"]


def test_a_capture_comes_after_a_run_whose_result_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library brings its code to the device with the first, which nothing that is captured may."""
    device = SimulatedDriver()
    library = SimulatedCublasLt(device)
    before, replayed = [], []

    def capture(launch: Callable[[], None]) -> Callable[[], None]:
        before.append(len(library.asked))
        return lambda: replayed.append(True)

    monkeypatch.setattr(device, "capture", capture)
    bound = kernel_of(PRODUCT, device, library, graphs=True).bind(INPUTS)
    assert before == [1]
    assert np.isnan(bound.outputs()[0]).all()
    bound()
    assert replayed == [True]


def test_what_the_library_refuses_is_told() -> None:
    device = SimulatedDriver()
    library = SimulatedCublasLt(device)
    bound = kernel_of(PRODUCT, device, library).bind(INPUTS)
    library.status = 13
    with pytest.raises(DeviceFailed, match="cuBLASLt answers 13 to cublasLtMatmul"):
        bound()


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
    with pytest.raises(LoadError, match="offers 2 algorithms here; this recipe wants number 3"):
        kernel_of(PRODUCT, device, SimulatedCublasLt(device), algorithm=3)
    for wrong in (0, 33, True, "2"):
        with pytest.raises(LoadError, match="parameter 'algorithm'"):
            kernel_of(PRODUCT, device, SimulatedCublasLt(device), algorithm=wrong)


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


@pytest.mark.skipif(bool(CublasLt().versions()), reason="nvidia-cublas is installed here")
def test_where_it_is_not_installed_it_says_so() -> None:
    refused = CublasLt().available(GPU)
    assert isinstance(refused, No)
    assert refused.reason == "nvidia-cublas is not installed"
    cublaslt.open_library.cache_clear()
    with pytest.raises(LoadError, match="needs cuBLASLt, which cannot be loaded"):
        cublaslt.open_library()


@pytest.mark.skipif(not CublasLt().versions(), reason="nvidia-cublas is not installed")
def test_the_library_has_every_function_that_it_is_asked_for() -> None:
    library = shared_library("cublasLt", "cuBLASLt")
    asked = [name for name in vars(SimulatedCublasLt) if name.startswith("cublasLt")]
    assert len(asked) == 9 and all(hasattr(library, name) for name in asked)


def test_an_algorithms_structure_is_as_large_as_the_librarys() -> None:
    assert ctypes.sizeof(Algorithm) == 96


def test_calls_of_a_route_that_is_gone_are_refused() -> None:
    """Whoever stored one has it still; nobody loads it."""
    for call in ("gemm_ex", "sgemm"):
        with pytest.raises(LoadError, match=f"call 'cublas {call}' is not on the list of allowed calls"):
            check_recipe({"library": "cublas", "call": call, "device": "cuda"}, 1)
