"""Products as cuBLAS is asked for them: by a stand-in of its C functions, with the parameters of its header,
that reads a simulated device's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity import Setting, parse_operator
from opatlas.load.cuda import cublas
from opatlas.load.cuda.cublas import WORKSPACE_BYTES, CublasKernel, CublasLibrary
from opatlas.load.cuda.driver import DeviceFailed
from opatlas.load.recipe import check_recipe
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
from tuning.routes.library.cublas import Cublas

INPUTS = {0: np.ones((4, 6), np.float32), 1: np.ones((6, 5), np.float32)}
HANDLE = 77
MODES = {16: "strict", 19: "tf32"}  # with sums in float32
COMPUTES = {68: "float32", 77: "tf32"}


class SimulatedCublas:
    """Its functions that take sizes of 64 bits. ``asked``: which, how strictly, into which stream."""

    def __init__(self, device: SimulatedDriver) -> None:
        self.device = device
        self.stream: int | None = None
        self.mode = self.workspace = 0
        self.told = 0
        self.asked: list[tuple[str, str, int | None]] = []
        self.status = 0

    def cublasCreate_v2(self, handle: Any) -> int:
        handle._obj.value = HANDLE
        return 0

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:
        self.told += 1
        self.stream, self.workspace = stream.value, 0  # the library's own again
        return 0

    def cublasSetWorkspace_v2(self, handle: Any, workspace: Any, nbytes: Any) -> int:
        assert workspace.value % 256 == 0
        assert self.device.bytes_at(workspace.value, nbytes.value).nbytes == WORKSPACE_BYTES
        self.workspace = workspace.value
        return 0

    def cublasSetMathMode(self, handle: Any, mode: int) -> int:
        self.mode = mode
        return 0

    def cublasSgemm_v2_64(
        self, handle: Any, turn_a: Any, turn_b: Any, m: Any, n: Any, k: Any,
        alpha: Any, a: Any, lda: Any, b: Any, ldb: Any, beta: Any, c: Any, ldc: Any,
    ) -> int:  # fmt: skip
        self._asked("sgemm", MODES[self.mode])
        return self._product(
            handle, (turn_a, turn_b), (m, n, k), (alpha, beta), (a, b, c), (lda, ldb, ldc)
        )  # fmt: skip

    def cublasSgemmStridedBatched_64(
        self, handle: Any, turn_a: Any, turn_b: Any, m: Any, n: Any, k: Any,
        alpha: Any, a: Any, lda: Any, next_a: Any, b: Any, ldb: Any, next_b: Any,
        beta: Any, c: Any, ldc: Any, next_c: Any, count: Any,
    ) -> int:  # fmt: skip
        self._asked("sgemm, batched", MODES[self.mode])
        return self._product(
            handle, (turn_a, turn_b), (m, n, k), (alpha, beta), (a, b, c), (lda, ldb, ldc),
            (next_a, next_b, next_c), count.value,
        )  # fmt: skip

    def cublasGemmEx_64(
        self, handle: Any, turn_a: Any, turn_b: Any, m: Any, n: Any, k: Any,
        alpha: Any, a: Any, type_a: int, lda: Any, b: Any, type_b: int, ldb: Any,
        beta: Any, c: Any, type_c: int, ldc: Any, compute: int, algorithm: int,
    ) -> int:  # fmt: skip
        assert (type_a, type_b, type_c, algorithm) == (0, 0, 0, -1)
        self._asked("gemm_ex", COMPUTES[compute])
        return self._product(
            handle, (turn_a, turn_b), (m, n, k), (alpha, beta), (a, b, c), (lda, ldb, ldc)
        )  # fmt: skip

    def cublasGemmStridedBatchedEx_64(
        self, handle: Any, turn_a: Any, turn_b: Any, m: Any, n: Any, k: Any,
        alpha: Any, a: Any, type_a: int, lda: Any, next_a: Any, b: Any, type_b: int, ldb: Any, next_b: Any,
        beta: Any, c: Any, type_c: int, ldc: Any, next_c: Any, count: Any, compute: int, algorithm: int,
    ) -> int:  # fmt: skip
        assert (type_a, type_b, type_c, algorithm) == (0, 0, 0, -1)
        self._asked("gemm_ex, batched", COMPUTES[compute])
        return self._product(
            handle, (turn_a, turn_b), (m, n, k), (alpha, beta), (a, b, c), (lda, ldb, ldc),
            (next_a, next_b, next_c), count.value,
        )  # fmt: skip

    def _asked(self, function: str, how: str) -> None:
        assert self.workspace, "a workspace of the kernel's"
        self.asked.append((function, how, self.stream))

    def _product(
        self, handle: Any, turned: tuple[int, int], sizes: Sequence[Any], scalars: Sequence[Any],
        at: Sequence[Any], steps: Sequence[Any], next_ones: Sequence[Any] = (), count: int = 1,
    ) -> int:  # fmt: skip
        assert handle.value == HANDLE
        m, n, k = (size.value for size in sizes)
        alpha, beta = (scalar._obj.value for scalar in scalars)
        assert beta == 0.0, "what lay in the output is not read"
        stored = [
            (k, m) if turned[0] else (m, k),
            (n, k) if turned[1] else (k, n),
            (m, n),
        ]
        further = [one.value for one in next_ones] or [0, 0, 0]

        def run() -> None:
            for batch in range(count):
                a, b, c = (
                    matrix(self.device, address.value + 4 * batch * more, *shape, step.value)
                    for address, more, shape, step in zip(at, further, stored, steps, strict=True)
                )
                c[...] = alpha * ((a.T if turned[0] else a) @ (b.T if turned[1] else b))

        self.device.waiting.append(run)
        return self.status


def recipe(call: str, **more: Any) -> dict[str, Any]:
    return check_recipe({"library": "cublas", "call": call, "device": "cuda", **more}, 1)


@pytest.mark.parametrize("call", ["gemm_ex", "sgemm"])
@pytest.mark.parametrize("document", DOCUMENTS, ids=shapes)
def test_what_it_is_asked_for_is_the_operators_product(document: dict[str, Any], call: str) -> None:
    operator, device = parse_operator(document), SimulatedDriver()
    library = SimulatedCublas(device)
    assert_computed(operator, lambda: CublasKernel(operator, recipe(call), device, CublasLibrary(library)))
    batched = len(operator.value(operator.nodes[0].inputs[1]).shape) > 2
    assert library.asked == [
        (f"{call}, batched" if batched else call, "float32" if call == "gemm_ex" else "strict", None)
    ]


def test_tf32_is_used_where_it_is_asked_for_alone() -> None:
    device = SimulatedDriver(memory_bytes=1 << 27)
    library = SimulatedCublas(device)
    ours = CublasLibrary(library)
    for call in ("gemm_ex", "sgemm"):
        for tf32 in (True, False):
            kernel = CublasKernel(PRODUCT, recipe(call, tf32=tf32), device, ours)
            bound = kernel.bind(INPUTS)
            bound()
            bound.synchronize()
    assert [how for _, how, _ in library.asked] == ["tf32", "float32", "tf32", "strict"]


def test_the_handle_is_told_again_only_what_has_changed() -> None:
    """Kernels share it, and each stream takes the library's own workspace again."""
    device = SimulatedDriver(memory_bytes=1 << 27)
    library = SimulatedCublas(device)
    ours = CublasLibrary(library)
    one, two = (CublasKernel(PRODUCT, recipe("gemm_ex"), device, ours) for _ in range(2))
    first, second = one.bind(INPUTS), two.bind(INPUTS)
    for bound in (first, first, first):
        bound()
    assert library.told == 1
    workspaces = []
    for bound in (second, first):
        bound()
        workspaces.append(library.workspace)
    assert library.told == 3
    assert len(set(workspaces)) == 2
    device.stream = 5
    first()
    assert (library.told, library.asked[-1][2]) == (4, 5)


def test_a_capture_comes_after_a_run_whose_result_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library brings its code to the device with the first, which nothing that is captured may."""
    device = SimulatedDriver(memory_bytes=1 << 27)
    library = SimulatedCublas(device)
    before, replayed = [], []

    def capture(launch: Callable[[], None]) -> Callable[[], None]:
        before.append(len(library.asked))
        return lambda: replayed.append(True)

    monkeypatch.setattr(device, "capture", capture)
    bound = CublasKernel(PRODUCT, recipe("gemm_ex", graphs=True), device, CublasLibrary(library)).bind(INPUTS)
    assert before == [1]
    assert np.isnan(bound.outputs()[0]).all()
    bound()
    assert replayed == [True]


def test_what_the_library_refuses_is_told() -> None:
    device = SimulatedDriver()
    library = SimulatedCublas(device)
    kernel = CublasKernel(PRODUCT, recipe("gemm_ex"), device, CublasLibrary(library))
    bound = kernel.bind(INPUTS)
    library.status = 13
    with pytest.raises(DeviceFailed, match="cuBLAS answers 13 to cublasGemmEx_64"):
        bound()


def test_its_recipes_follow_the_setting_and_the_type() -> None:
    for tf32 in (False, True):
        found = list(Cublas().candidates(PRODUCT, GPU, Setting(tf32=tf32), Budget(1.0)))
        assert [check_recipe(one.parameters, 1)["call"] for one in found] == ["gemm_ex", "sgemm"]
        assert {one.parameters["tf32"] for one in found} == {tf32}
    halves = parse_operator(
        {"op": "MatMul", "inputs": [tensor(4, 6, dtype="float16"), tensor(6, 5, dtype="float16")]}
    )
    (only,) = Cublas().candidates(halves, GPU, Setting(graphs=True), Budget(1.0))
    assert (only.parameters["call"], only.parameters["graphs"]) == ("gemm_ex", True)
    device = SimulatedDriver()
    with pytest.raises(LoadError, match="sgemm multiplies float32, not float16"):
        CublasKernel(halves, recipe("sgemm"), device, CublasLibrary(SimulatedCublas(device)))
    refused = Cublas().supports(PRODUCT, Setting(accumulate="float64"))
    assert isinstance(refused, No)
    assert "cuBLAS keeps sums" in refused.reason


@pytest.mark.skipif(bool(Cublas().versions()), reason="nvidia-cublas is installed here")
def test_where_it_is_not_installed_it_says_so() -> None:
    refused = Cublas().available(GPU)
    assert isinstance(refused, No)
    assert refused.reason == "nvidia-cublas is not installed"
    cublas.open_library.cache_clear()
    with pytest.raises(LoadError, match="needs cuBLAS, which cannot be loaded"):
        cublas.open_library()


@pytest.mark.skipif(not Cublas().versions(), reason="nvidia-cublas is not installed")
def test_the_library_has_every_function_that_it_is_asked_for() -> None:
    from cuda.pathfinder import load_nvidia_dynamic_lib

    library = ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
    told = ("cublasCreate_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasSetMathMode")
    assert all(hasattr(library, name) for name in (*told, *cublas.FUNCTIONS.values()))
