"""Kind ``c-abi``: a shared library with the entry of ``opatlas_abi.h``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from opatlas.errors import LoadError
from opatlas.identity.operator import Operator, Value
from opatlas.load.buffers import aligned, check_arrays, element_strides, empty, is_aligned
from opatlas.load.dtypes import ONNX_NUMBER, extreme
from opatlas.load.files import Library
from opatlas.load.kernel import KernelFailed
from opatlas.load.manifest import Manifest
from opatlas.load.pool import Threads


class TensorStruct(ctypes.Structure):
    """``opatlas_tensor`` of opatlas_abi.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    ]


class Tensors:
    """A C array of tensors over NumPy arrays; keeps alive all that it points to."""

    def __init__(self, arrays: Sequence[np.ndarray], values: Sequence[Value]) -> None:
        self.count = len(arrays)
        self.structs = (TensorStruct * max(1, self.count))()
        self._keep = []
        for struct, array, value in zip(self.structs, arrays, values, strict=False):
            dims = ctypes.c_int64 * max(1, array.ndim)
            shape, strides = dims(*value.shape), dims(*element_strides(value))
            struct.data, struct.shape, struct.strides = array.ctypes.data, shape, strides
            struct.ndim, struct.dtype = array.ndim, ONNX_NUMBER[value.dtype]
            self._keep.append((array, shape, strides))


class CKernel:
    """A loaded C kernel: its library, packed constants and threads."""

    def __init__(self, manifest: Manifest, files: Mapping[str, bytes]) -> None:
        names = [name for name in files if name.endswith(".so")]
        if len(names) != 1:
            raise LoadError(f"a c-abi artifact has exactly one .so file, this one has {len(names)}")
        self.operator = Operator.from_json(manifest.operator)
        self.alignment = manifest.alignment
        self._library = Library(files[names[0]], names[0])
        self._run, self._prepare, self._release, self._error = _entries(self._library.handle)
        self._threads = Threads(int(manifest.setting["threads"]))
        self._state = ctypes.c_void_p(None)
        self._constants: dict[int, np.ndarray] | None = {} if not self.operator.constant_inputs else None
        self._bound: list[CBound] = []

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        """Hand the constants over; misaligned ones are copied, the others used in place: leave them be."""
        numbers = self.operator.constant_inputs
        check_arrays(self.operator, numbers, constants)
        inputs = self.operator.inputs
        kept = {number: aligned(constants[number], inputs[number], self.alignment) for number in numbers}
        self._forget_state()
        if self._prepare is not None:
            tensors = Tensors([kept[number] for number in numbers], [inputs[number] for number in numbers])
            threads, state = ctypes.byref(self._threads.struct), ctypes.byref(self._state)
            if code := self._prepare(tensors.structs, tensors.count, threads, state):
                raise LoadError(f"the kernel refuses its constants: {self.failure(code)}")
        self._constants = kept

    def bind(self, inputs: Mapping[int, np.ndarray]) -> CBound:
        """Tie the inputs. One that is not aligned to the manifest's ``alignment`` is copied into an aligned
        buffer in *every* call, so that new values are seen; that time is part of the run."""
        if self._constants is None:
            raise LoadError("the operator has constant inputs: call prepare before bind")
        check_arrays(self.operator, self.operator.runtime_inputs, inputs)
        bound = CBound(self, {**inputs, **self._constants})
        self._bound.append(bound)
        return bound

    def call(self, tensors: Tensors) -> Callable[[], int]:
        """The C call over ``tensors``, its arguments built once."""
        run, count, state = self._run, tensors.count, self._state
        structs, threads = ctypes.byref(tensors.structs), ctypes.byref(self._threads.struct)
        return lambda: run(structs, count, threads, state)

    def failure(self, code: int) -> str:
        """The kernel's own sentence about its last error, else the bare code."""
        message = self._error() if self._error is not None else None
        return message.decode(errors="replace") if message else f"error code {code}"

    def close(self) -> None:
        """Free the packed constants and unload the library; its bound kernels can no longer be called."""
        for bound in self._bound:
            bound.unbind()
        self._bound.clear()
        if self._library.handle is not None:
            self._forget_state()
            self._threads.close()
            self._run = self._prepare = self._release = self._error = None
            self._library.close()

    def _forget_state(self) -> None:
        if self._state.value is not None and self._release is not None:
            self._release(self._state)
        self._state = ctypes.c_void_p(None)


class CBound:
    """A C kernel tied to its inputs; its outputs are its own, aligned, and overwritten by every call."""

    def __init__(self, kernel: CKernel, inputs: Mapping[int, np.ndarray]) -> None:
        operator = kernel.operator
        order = operator.tensor_inputs
        self._copies: list[tuple[np.ndarray, np.ndarray]] = []
        arrays = []
        for number in order:
            array = inputs[number]
            if not is_aligned(array, kernel.alignment):
                source, array = array, empty(operator.inputs[number], kernel.alignment)
                self._copies.append((array, source))
            arrays.append(array)
        self._outputs = [empty(value, kernel.alignment) for value in operator.output_values]
        values = [*(operator.inputs[number] for number in order), *operator.output_values]
        self._tensors = Tensors([*arrays, *self._outputs], values)
        self._kernel = kernel
        self._call = kernel.call(self._tensors)

    def __call__(self) -> None:
        for aligned_copy, source in self._copies:
            aligned_copy[...] = source
        if code := self._call():
            raise KernelFailed(f"the kernel failed: {self._kernel.failure(code)}")

    def outputs(self) -> Sequence[np.ndarray]:
        return self._outputs

    def poison(self) -> None:
        for output in self._outputs:
            output[...] = extreme(output.dtype)

    def unbind(self) -> None:
        """From now on a call raises instead of jumping into unloaded code."""
        self._call = _closed


def _closed() -> int:
    raise KernelFailed("the kernel was closed; load it again")


def _entries(library: ctypes.CDLL) -> tuple[Callable | None, ...]:
    """The functions of opatlas_abi.h, typed; None for an optional one that is not there."""
    run = getattr(library, "opatlas_run", None)
    if run is None:
        raise LoadError("the library does not export opatlas_run")
    run.restype = ctypes.c_int
    prepare = getattr(library, "opatlas_prepare", None)
    if prepare is not None:
        prepare.restype = ctypes.c_int
    release = getattr(library, "opatlas_release", None)
    if release is not None:
        release.restype = None
    error = getattr(library, "opatlas_error", None)
    if error is not None:
        error.restype = ctypes.c_char_p
    return run, prepare, release, error
