"""Recipe ``cublaslt matmul``: one of the algorithms that cuBLASLt's heuristic offers for a product.

The meaning of an algorithm's number depends on the device and on the library's version, so a recipe needs
that exact version.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from opatlas.errors import LoadError
from opatlas.identity.operator import Operator
from opatlas.load.cuda.driver import CudaDriver, DeviceFailed
from opatlas.load.cuda.matrices import Matrix, MatrixProduct, product_of
from opatlas.load.cuda.module import DeviceKernel, LaunchTensors
from opatlas.load.cuda.nvidia_library import shared_library

MOST_ALGORITHMS = 32
MOST_WORKSPACE_BYTES = 32 << 20
ALIGNMENT = 256

# From cublasLt.h, cublas_api.h and library_types.h: part of the library's stable interface.
TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
COMPUTE_FLOAT32, COMPUTE_TF32 = 68, 77
TURN_FIRST, TURN_SECOND = 3, 4
BATCH_COUNT, BATCH_STEP = 5, 6
MOST_WORKSPACE, REDUCTIONS = 1, 3
IN_COMPUTE_TYPE = 2
"""Partial sums are kept in float32: in 16 bits errors would be larger than is allowed."""


class Algorithm(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace_bytes", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True)
class Addresses:
    """On the device."""

    first: int
    second: int
    made: int
    workspace: int


class CublasLtLibrary:
    """The library by its C interface. Every call may raise
    :class:`~opatlas.load.cuda.driver.DeviceFailed`."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._handle = self._made("cublasLtCreate")

    def algorithms(self, product: MatrixProduct, tf32: bool) -> Sequence[Algorithm]:
        """Those that can, the one that should be fastest first."""
        described = self._described(product, tf32)
        preference = self._made("cublasLtMatmulPreferenceCreate")
        for which, value in (
            (MOST_WORKSPACE, ctypes.c_uint64(MOST_WORKSPACE_BYTES)),
            (REDUCTIONS, ctypes.c_uint32(IN_COMPUTE_TYPE)),
        ):
            self._set("MatmulPreference", preference, which, value)
        found = (Algorithm * MOST_ALGORITHMS)()
        count = ctypes.c_int()
        self._ask(
            "cublasLtMatmulAlgoGetHeuristic",
            self._handle,
            *described,
            described[-1],
            preference,
            MOST_ALGORITHMS,
            found,
            ctypes.byref(count),
        )
        return [one for one in found[: count.value] if one.status == 0]

    def multiplier(
        self, product: MatrixProduct, tf32: bool, algorithm: Algorithm, at: Addresses
    ) -> Callable[[int], None]:
        """A launch into the stream that it is given; returns at once."""
        operation, first, second, made = self._described(product, tf32)
        given = (
            *(self._handle, operation, ctypes.byref(ctypes.c_float(product.alpha))),
            *(ctypes.c_void_p(at.first), first, ctypes.c_void_p(at.second), second),
            ctypes.byref(ctypes.c_float(0.0)),
            *(ctypes.c_void_p(at.made), made, ctypes.c_void_p(at.made), made),
            ctypes.byref(algorithm),  # its first field is what the call takes
            *(ctypes.c_void_p(at.workspace), ctypes.c_size_t(algorithm.workspace_bytes)),
        )
        return lambda stream: self._ask("cublasLtMatmul", *given, ctypes.c_void_p(stream))

    def _described(self, product: MatrixProduct, tf32: bool) -> tuple[ctypes.c_void_p, ...]:
        """The operation and the three matrices, in the library's words. They stay as long as the process.
        Operands of float32 may be rounded on their way where the setting asks for TF32."""
        rounds = tf32 and product.dtype == "float32"
        operation = self._made(
            "cublasLtMatmulDescCreate", COMPUTE_TF32 if rounds else COMPUTE_FLOAT32, TYPES["float32"]
        )
        for which, matrix in ((TURN_FIRST, product.first), (TURN_SECOND, product.second)):
            self._set("MatmulDesc", operation, which, ctypes.c_int32(matrix.turned))
        matrices = (product.first, product.second, product.made)
        return operation, *(self._layout(matrix, product) for matrix in matrices)

    def _layout(self, matrix: Matrix, product: MatrixProduct) -> ctypes.c_void_p:
        made = self._made(
            "cublasLtMatrixLayoutCreate",
            TYPES[product.dtype],
            ctypes.c_uint64(matrix.rows),
            ctypes.c_uint64(matrix.columns),
            ctypes.c_int64(matrix.step),
        )
        self._set("MatrixLayout", made, BATCH_COUNT, ctypes.c_int32(product.batches))
        self._set("MatrixLayout", made, BATCH_STEP, ctypes.c_int64(matrix.batch_step))
        return made

    def _set(self, kind: str, described: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._ask(f"cublasLt{kind}SetAttribute", described, attribute, ctypes.byref(value), size)

    def _made(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        """What a function writes to its first argument."""
        made = ctypes.c_void_p()
        self._ask(function, ctypes.byref(made), *arguments)
        return made

    def _ask(self, function: str, *arguments: Any) -> None:
        if status := getattr(self._library, function)(*arguments):
            raise DeviceFailed(f"cuBLASLt answers {status} to {function}")


@cache
def open_library() -> CublasLtLibrary:
    """Raises :class:`LoadError` where it is not installed. Initialises CUDA."""
    return CublasLtLibrary(shared_library("cublasLt", "cuBLASLt"))


class CublasLtKernel(DeviceKernel):
    """One algorithm of it on one product. Raises :class:`~opatlas.errors.LoadError` where the operator is
    none."""

    loads_late = True

    def __init__(
        self,
        operator: Operator,
        recipe: Mapping[str, Any],
        driver: CudaDriver | None = None,
        library: CublasLtLibrary | None = None,
    ) -> None:
        self.product = product_of(operator)
        super().__init__(operator, driver, graphs=bool(recipe["graphs"]), alignment=ALIGNMENT)
        self.tf32 = bool(recipe["tf32"])
        self._library = library or open_library()
        offered = self._library.algorithms(self.product, self.tf32)
        number = int(recipe["algorithm"])
        if number > len(offered):
            raise LoadError(
                f"cuBLASLt offers {len(offered)} algorithms here; this recipe wants number {number}"
            )
        self._algorithm = offered[number - 1]
        self.workspace_bytes = int(self._algorithm.workspace_bytes)

    def run_launches(self, tensors: LaunchTensors) -> list[Callable[[], None]]:
        self._must_be_open()
        at = Addresses(
            tensors.inputs[self.product.first.number].address,
            tensors.inputs[self.product.second.number].address,
            tensors.outputs[0].address,
            tensors.workspace.address,
        )
        multiply = self._library.multiplier(self.product, self.tf32, self._algorithm, at)
        return [lambda: multiply(self.driver.stream)]


def open_kernel(operator: Operator, recipe: Mapping[str, Any]) -> CublasLtKernel:
    """The kernel of an allowed recipe."""
    return CublasLtKernel(operator, recipe)
