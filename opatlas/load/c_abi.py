"""Kind ``c-abi``: a shared library with the entry of ``opatlas_abi.h``."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opatlas.errors import LoadError
from opatlas.identity.operator import Operator, Value
from opatlas.load.buffers import aligned, check_array, check_arrays, element_strides, empty, is_aligned
from opatlas.load.dtypes import ONNX_NUMBER, numpy_dtype
from opatlas.load.files import SharedLibrary
from opatlas.load.kernel import KeptOutputs, KernelFailed
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


@dataclass(frozen=True)
class KernelCode:
    """Addresses of a kernel's functions (0: absent), for callers that are code themselves. They are valid
    while the kernel is open. ``threads``: the argument that it expects; ``blocks``: the sum of the block
    sizes in which it can also read and write channels."""

    run: int
    prepare: int
    release: int
    error: int
    threads: int
    alignment: int
    blocks: int


class Tensors:
    """A C array of tensors over NumPy arrays; keeps everything alive that it points to."""

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
    """A loaded C kernel: its library, packed constants and at most ``threads`` threads."""

    binds_outputs = True

    def __init__(self, manifest: Manifest, files: Mapping[str, bytes], threads: int | None = None) -> None:
        names = [name for name in files if name.endswith(".so")]
        if len(names) != 1:
            raise LoadError(f"a c-abi artifact has exactly one .so file, this one has {len(names)}")
        self.operator = Operator.from_json(manifest.operator)
        self.alignment = manifest.alignment
        self._library = SharedLibrary(files[names[0]], names[0])
        self._entries: Entries | None = Entries(self._library.handle)
        self._threads = Threads(int(manifest.setting["threads"]), threads)
        self._state = ctypes.c_void_p(None)
        self._constants: dict[int, np.ndarray] | None = {} if not self.operator.constant_inputs else None
        self._bound: weakref.WeakSet[CBound | AddressedCall] = weakref.WeakSet()

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        """Give the kernel its constants. Misaligned ones are copied; do not change the others. With new
        constants, a kernel must be bound again."""
        numbers = self.operator.constant_inputs
        check_arrays(self.operator, numbers, constants)
        inputs = self.operator.inputs
        kept = {number: aligned(constants[number], inputs[number], self.alignment) for number in numbers}
        self._forget_state()
        entries = self._open()
        if entries.prepare is not None:
            tensors = Tensors([kept[number] for number in numbers], [inputs[number] for number in numbers])
            threads, state = ctypes.byref(self._threads.struct), ctypes.byref(self._state)
            if code := entries.prepare(tensors.structs, tensors.count, threads, state):
                raise LoadError(f"the kernel refuses its constants: {self.failure(code)}")
        self._constants = kept

    def bind(self, inputs: Mapping[int, np.ndarray], outputs: Sequence[np.ndarray] | None = None) -> CBound:
        """Bind the inputs. One that is not aligned to the manifest's ``alignment`` is copied into an aligned
        buffer in *every* call, so that new values count; that time is part of the run."""
        if self._constants is None:
            raise LoadError("the operator has constant inputs: call prepare before bind")
        self._open()
        check_arrays(self.operator, self.operator.runtime_inputs, inputs)
        bound = CBound(self, {**inputs, **self._constants}, outputs)
        self._bound.add(bound)
        return bound

    def by_address(self) -> AddressedCall:
        """A call by buffer addresses, for callers that know their buffers fit the operator. With new
        constants, ask again."""
        if self._constants is None:
            raise LoadError("the operator has constant inputs: call prepare before by_address")
        made = AddressedCall(self, self._constants)
        self._bound.add(made)
        return made

    def code(self) -> KernelCode:
        """The kernel's functions. Their caller prepares its own state."""
        one, count = self._open(), self._threads.struct.count
        functions = (one.run, one.prepare, one.release, one.error)
        run, prepare, release, error = (_address(function) for function in functions)
        blocks = one.blocks() if one.blocks is not None else 0
        return KernelCode(run, prepare, release, error, count, self.alignment, blocks)

    def run_alone(self, arrays: Sequence[np.ndarray]) -> None:
        """One run over aligned arrays, inputs and outputs in order, on the caller's thread: the tasks of each
        loop run one after the other."""
        operator = self.operator
        values = [*(operator.inputs[number] for number in operator.tensor_inputs), *operator.output_values]
        tensors, threads = Tensors(arrays, values), Threads(self._threads.struct.count, 1)
        try:
            code = self._open().run(
                ctypes.byref(tensors.structs), tensors.count, ctypes.byref(threads.struct), self._state
            )
        finally:
            threads.close()
        if code:
            raise KernelFailed(f"the kernel failed: {self.failure(code)}")

    def call(self, tensors: Tensors) -> tuple[Callable[..., int], tuple[Any, ...]]:
        """The C function and its arguments, made once."""
        structs, threads = ctypes.byref(tensors.structs), ctypes.byref(self._threads.struct)
        return self._open().run, (structs, tensors.count, threads, self._state)

    def failure(self, code: int) -> str:
        """The kernel's own sentence about its last error, else the bare code."""
        error = self._entries.error if self._entries is not None else None
        message = error() if error is not None else None
        return message.decode(errors="replace") if message else f"error code {code}"

    def close(self) -> None:
        """Free the packed constants and unload the library; its bound kernels can no longer be called."""
        if self._entries is None:
            return
        self._forget_state()
        self._entries = None
        self._threads.close()
        self._library.close()

    def _open(self) -> Entries:
        if self._entries is None:
            raise LoadError("the kernel was closed; load it again")
        return self._entries

    def _forget_state(self) -> None:
        for bound in self._bound:
            bound.unbind()
        self._bound.clear()
        if self._state.value is not None and (release := self._open().release) is not None:
            release(self._state)
        self._state = ctypes.c_void_p(None)


class CBound(KeptOutputs):
    """A C kernel bound to its inputs and outputs. Outputs are its own unless given, and overwritten by every
    call. Misaligned arrays are copied in every call."""

    def __init__(
        self, kernel: CKernel, inputs: Mapping[int, np.ndarray], outputs: Sequence[np.ndarray] | None = None
    ) -> None:
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
        made = [empty(value, kernel.alignment) for value in operator.output_values]
        self._outputs = list(outputs) if outputs is not None else made
        for number, output in enumerate(self._outputs):
            check_array(output, operator.output_values[number], f"output {number}")
            if is_aligned(output, kernel.alignment):
                made[number] = output
        self._copied_out = [
            (out, one) for out, one in zip(self._outputs, made, strict=True) if out is not one
        ]
        values = [*(operator.inputs[number] for number in order), *operator.output_values]
        self._tensors = Tensors([*arrays, *made], values)
        self._kernel = kernel
        self._run, self._arguments = kernel.call(self._tensors)

    def __call__(self) -> None:
        for aligned_copy, source in self._copies:
            aligned_copy[...] = source
        if code := self._run(*self._arguments):
            raise KernelFailed(f"the kernel failed: {self._kernel.failure(code)}")
        for output, made in self._copied_out:
            output[...] = made

    def unbind(self) -> None:
        """From now on a call raises instead of jumping into unloaded code."""
        self._run = _closed


class AddressedCall:
    """A C kernel that gets the addresses of its buffers with each call: runtime inputs, then outputs, in
    order, each a multiple of ``alignment``. One call at a time. Types, shapes and strides are not checked."""

    def __init__(self, kernel: CKernel, constants: Mapping[int, np.ndarray]) -> None:
        operator = kernel.operator
        order = operator.tensor_inputs
        values = [*(operator.inputs[number] for number in order), *operator.output_values]
        kept = [constants.get(number) for number in order] + [None] * len(operator.output_values)
        arrays = [
            np.broadcast_to(np.empty((), numpy_dtype(value.dtype)), value.shape) if array is None else array
            for array, value in zip(kept, values, strict=True)
        ]
        self.alignment = kernel.alignment
        self._kernel, self._tensors = kernel, Tensors(arrays, values)
        structs = self._tensors.structs
        self._structs = [struct for struct, array in zip(structs, kept, strict=False) if array is None]
        self._run, self._arguments = kernel.call(self._tensors)

    def __call__(self, addresses: Sequence[int]) -> None:
        for struct, address in zip(self._structs, addresses, strict=True):
            struct.data = address
        if code := self._run(*self._arguments):
            raise KernelFailed(f"the kernel failed: {self._kernel.failure(code)}")

    def unbind(self) -> None:
        """See :meth:`CBound.unbind`."""
        self._run = _closed


def _closed(*_: object) -> int:
    raise KernelFailed("the kernel was closed or got new constants; bind it again")


class Entries:
    """The functions of opatlas_abi.h, typed; None for an optional one that is absent."""

    def __init__(self, library: ctypes.CDLL) -> None:
        run = _function(library, "opatlas_run", ctypes.c_int)
        if run is None:
            raise LoadError("the library does not export opatlas_run")
        self.run: Callable[..., int] = run
        self.prepare = _function(library, "opatlas_prepare", ctypes.c_int)
        self.release = _function(library, "opatlas_release", None)
        self.error = _function(library, "opatlas_error", ctypes.c_char_p)
        self.blocks = _function(library, "opatlas_blocks", ctypes.c_int32)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function is not None else 0


def _function(library: ctypes.CDLL, name: str, result: Any) -> Callable[..., Any] | None:
    function = getattr(library, name, None)
    if function is not None:
        function.restype = result
    return function
