"""Recipes ``cublas gemm_ex`` and ``cublas sgemm``: a product as cuBLAS computes it for whoever leaves the
choice to it.

``sgemm`` is its oldest function and for float32 alone; ``gemm_ex`` names the types and how sums are kept.
Both choose for themselves, by rules that are not those of cuBLASLt's heuristic. Which kernel that is depends
on the library's version, which a recipe therefore needs exactly, and on the device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache, partial
from threading import Lock
from typing import Any

from opatlas.errors import LoadError
from opatlas.identity.operator import Operator
from opatlas.load.cuda.driver import CudaDriver
from opatlas.load.cuda.matrices import Matrix, MatrixProduct
from opatlas.load.cuda.nvidia_library import NvidiaLibrary, shared_library
from opatlas.load.cuda.products import TYPES, Addresses, ProductKernel, compute_type

WORKSPACE_BYTES = 32 << 20
"""What NVIDIA advises for its newest devices. Its own workspace the library would take from the device when
the handle is made, counted by nobody."""

# From cublas_api.h. Since sm_80 no other algorithm can be asked for.
STRICT, WITH_TF32 = 0, 3
SUMS_IN_FLOAT32 = 16
"""Parts of a sum in 16 bits would be further off than sums in float32 are allowed to be."""
ANY_ALGORITHM = -1

FUNCTIONS = {
    ("sgemm", False): "cublasSgemm_v2_64",
    ("sgemm", True): "cublasSgemmStridedBatched_64",
    ("gemm_ex", False): "cublasGemmEx_64",
    ("gemm_ex", True): "cublasGemmStridedBatchedEx_64",
}
"""(call, whether it is a batch) → the function that takes sizes of 64 bits, which is there since CUDA 12."""


class CublasLibrary(NvidiaLibrary):
    """The library itself, with one handle. Every call may raise
    :class:`~opatlas.load.cuda.driver.DeviceFailed`."""

    title = "cuBLAS"

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        self._handle = self.made("cublasCreate_v2")
        self._told: tuple[int, int, int] | None = None
        self._taken = Lock()

    def multiplier(
        self, call: str, product: MatrixProduct, tf32: bool, at: Addresses
    ) -> Callable[[int], None]:
        """A launch into the stream that it is given; returns at once."""
        function = FUNCTIONS[call, product.batches > 1]
        arguments = (self._handle, *_arguments(call, product, tf32, at))
        mode = SUMS_IN_FLOAT32 | (WITH_TF32 if tf32 and product.dtype == "float32" else STRICT)
        return partial(self._launch, function, arguments, mode, at.workspace)

    def _launch(
        self, function: str, arguments: tuple[Any, ...], mode: int, workspace: int, stream: int
    ) -> None:
        with self._taken:  # what the handle was told must hold until it has launched
            if self._told != (stream, workspace, mode):
                self._tell(stream, workspace, mode)
            self.ask(function, *arguments)

    def _tell(self, stream: int, workspace: int, mode: int) -> None:
        self._told = None
        self.ask("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream))
        # After the stream: another one puts the library's own workspace in its place again.
        self.ask(
            "cublasSetWorkspace_v2",
            self._handle,
            ctypes.c_void_p(workspace),
            ctypes.c_size_t(WORKSPACE_BYTES),
        )
        self.ask("cublasSetMathMode", self._handle, mode)
        self._told = (stream, workspace, mode)


def _arguments(call: str, product: MatrixProduct, tf32: bool, at: Addresses) -> tuple[Any, ...]:
    """All that follow the handle."""
    typed, many = call == "gemm_ex", product.batches > 1

    def matrix(one: Matrix, address: int) -> tuple[Any, ...]:
        kind = (TYPES[product.dtype],) if typed else ()
        next_one = (ctypes.c_longlong(one.batch_step),) if many else ()
        return ctypes.c_void_p(address), *kind, ctypes.c_int64(one.step), *next_one

    depth = product.first.rows if product.first.turned else product.first.columns
    return (
        *(int(product.first.turned), int(product.second.turned)),
        *(ctypes.c_int64(size) for size in (product.made.rows, product.made.columns, depth)),
        *(ctypes.byref(ctypes.c_float(product.alpha)), *matrix(product.first, at.first)),
        *matrix(product.second, at.second),
        *(ctypes.byref(ctypes.c_float(0.0)), *matrix(product.made, at.made)),
        *((ctypes.c_int64(product.batches),) if many else ()),
        *((compute_type(product, tf32), ANY_ALGORITHM) if typed else ()),
    )


@cache
def open_library() -> CublasLibrary:
    """Raises :class:`LoadError` where it is not installed. Initialises CUDA."""
    return CublasLibrary(shared_library("cublas", CublasLibrary.title))


class CublasKernel(ProductKernel):
    """One of its two functions on one product."""

    workspace_bytes = WORKSPACE_BYTES

    def __init__(
        self,
        operator: Operator,
        recipe: Mapping[str, Any],
        driver: CudaDriver | None = None,
        library: CublasLibrary | None = None,
    ) -> None:
        super().__init__(operator, recipe, driver)
        self._call = str(recipe["call"])
        if self._call == "sgemm" and self.product.dtype != "float32":
            raise LoadError(f"cuBLAS's sgemm multiplies float32, not {self.product.dtype}")
        self._library = library or open_library()

    def multiplier(self, at: Addresses) -> Callable[[int], None]:
        return self._library.multiplier(self._call, self.product, self.tf32, at)


def open_kernel(operator: Operator, recipe: Mapping[str, Any]) -> CublasKernel:
    """The kernel of an allowed recipe."""
    return CublasKernel(operator, recipe)
