"""Recipes of library ``numpy``: matrix products through the OpenBLAS that NumPy carries, and array calls."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opatlas.errors import LoadError
from opatlas.identity.operator import Node, Operator
from opatlas.load.buffers import check_arrays, empty
from opatlas.load.kernel import KeptOutputs, KernelFailed, LoadedKernel

_ALIGNMENT = 64


def open_kernel(operator: Operator, recipe: Mapping[str, Any]) -> LoadedKernel:
    """The kernel of an allowed numpy recipe."""
    if recipe["call"] == "arrays":
        from opatlas.load.numpy_arrays import ArrayKernel

        return ArrayKernel(operator, recipe)
    if reason := missing(operator):
        raise LoadError(reason)
    return NumpyKernel(operator, recipe)


def missing(operator: Operator) -> str | None:
    """Why OpenBLAS cannot do the operator, or None if it can."""
    if operator.op_types not in (("MatMul",), ("Gemm",)):
        return "OpenBLAS does single matrix products (MatMul, Gemm) only"
    if operator.inputs[0].dtype not in ("float32", "float64"):
        return f"OpenBLAS has no {operator.inputs[0].dtype} product"
    if any(0 in value.shape for value in operator.inputs):
        return "OpenBLAS is not called for empty operands"
    return None


class NumpyKernel:
    """One matrix product written into a preallocated output."""

    def __init__(self, operator: Operator, recipe: Mapping[str, Any]) -> None:
        self.operator, self.recipe = operator, recipe
        self._constants: dict[int, np.ndarray] | None = {} if not operator.constant_inputs else None

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        """Take the constants; a constant second operand is stored transposed if the recipe says so."""
        check_arrays(self.operator, self.operator.constant_inputs, constants)
        kept = {number: np.array(array, order="C") for number, array in constants.items()}
        second = self.operator.nodes[0].inputs[1]
        if self.recipe["weights"] == "transposed" and second in kept and kept[second].ndim > 1:
            kept[second] = np.ascontiguousarray(kept[second].swapaxes(-1, -2)).swapaxes(-1, -2)
        self._constants = kept

    def bind(self, inputs: Mapping[int, np.ndarray]) -> NumpyBound:
        if self._constants is None:
            raise LoadError("the operator has constant inputs: call prepare before bind")
        check_arrays(self.operator, self.operator.runtime_inputs, inputs)
        output = empty(self.operator.output_values[0], _ALIGNMENT)
        arrays = {**inputs, **self._constants}
        node = self.operator.nodes[0]
        arguments = [arrays[number] if number >= 0 else None for number in node.inputs]
        product = functools.partial(np.matmul, *arguments, out=output)
        call = _gemm(node, arguments, output) if node.op == "Gemm" else product
        return NumpyBound(call, output, int(self.recipe["threads"]))

    def close(self) -> None:
        self._constants = None


def _gemm(node: Node, arguments: Sequence[Any], output: np.ndarray) -> Callable[[], Any]:
    """alpha · A' · B' + beta · C in as few passes as NumPy allows."""
    attributes = node.attributes
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    a, b, c = (*arguments, None)[:3]
    a = a.T if attributes.get("transA", 0) else a
    b = b.T if attributes.get("transB", 0) else b
    product = functools.partial(np.matmul, a, b, out=output)
    passes: list[Callable[[], Any]] = [product]
    if alpha != 1:
        passes.append(functools.partial(np.multiply, output, output.dtype.type(alpha), out=output))
    if c is not None and beta == 1:
        passes.append(functools.partial(np.add, output, c, out=output))
    elif c is not None and beta != 0:
        factor = output.dtype.type(beta)
        passes.append(lambda: np.add(output, c * factor, out=output))

    def run() -> None:
        for one in passes:
            one()

    return product if len(passes) == 1 else run


class NumpyBound(KeptOutputs):
    """A product of these arrays."""

    def __init__(self, call: Callable[[], Any], output: np.ndarray, threads: int) -> None:
        self._call, self._outputs, self._threads = call, [output], threads
        self._ask_threads, self._set_threads = _thread_calls()

    def __call__(self) -> None:
        # Asked each time (65 ns): kernels of other settings run in this process, and its owner may set it.
        if self._ask_threads() != self._threads:
            self._set_threads(self._threads)
        try:
            self._call()
        except (ValueError, MemoryError) as error:
            raise KernelFailed(f"NumPy failed: {error}") from error


@functools.cache
def _thread_calls() -> tuple[Callable[[], int], Callable[[int], Any]]:
    """OpenBLAS's functions to read and set its number of threads."""
    library, prefix, suffix = openblas()
    # Asking keeps the interpreter's lock, which takes half of the time.
    asking = ctypes.PyDLL(library._name)
    return (
        getattr(asking, f"{prefix}openblas_get_num_threads{suffix}"),
        getattr(library, f"{prefix}openblas_set_num_threads{suffix}"),
    )


@functools.cache
def openblas() -> tuple[ctypes.CDLL, str, str]:
    """NumPy's own OpenBLAS with the prefix and suffix of its symbols; :class:`LoadError` if NumPy has another
    BLAS."""
    import numpy.linalg  # noqa: F401  loads the library

    mapped = {
        line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "openblas" in line
    }
    for path in sorted(mapped):
        library = ctypes.CDLL(path)
        for prefix in ("scipy_", ""):
            for suffix in ("64_", ""):
                if hasattr(library, f"{prefix}openblas_set_num_threads{suffix}"):
                    return library, prefix, suffix
    raise LoadError("this NumPy carries no OpenBLAS")
