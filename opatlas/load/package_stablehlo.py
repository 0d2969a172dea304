"""Packages that end in ``.stablehlo``: serialised by ``jax.export``, compiled by XLA for this processor.

An optional ``options.json`` has compile options from :data:`OPTIONS`. The kernel has its own XLA clients, one
for each number of threads, without asynchronous dispatch: handing a call to another thread makes a small
operator four times as slow. A job's own use of JAX is not affected. Calls below JAX's public API are safe,
since the manifest must name exact versions.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import jax.export
import numpy as np
from jaxlib import xla_client
from jaxlib._jax import DeviceList, dlpack_managed_tensor_to_buffer

from opatlas.errors import LoadError, first_line
from opatlas.identity import Operator
from opatlas.identity.operator import Value
from opatlas.load.buffers import check_arrays, empty, is_aligned
from opatlas.load.dtypes import EXTENSION_TYPES, extreme, numpy_dtype
from opatlas.load.kernel import KernelFailed
from opatlas.load.manifest import Manifest
from opatlas.load.storage import Storage, storage_of, stored

ALIGNMENT = 64
OPTIONS_FILE = "options.json"
OPTIONS: Mapping[str, tuple[object, ...]] = {"xla_cpu_prefer_vector_width": ("128", "256", "512")}
"""Compile options that a package may ask for, with their values."""

_client_lock = threading.Lock()


def open_kernel(manifest: Manifest, files: Mapping[str, bytes]) -> StableHloKernel:
    """The kernel in a package; :class:`LoadError` where it is not what the manifest's operator needs."""
    (program,) = (content for name, content in files.items() if name.endswith(".stablehlo"))
    extra = sorted(set(files) - {OPTIONS_FILE} - {n for n in files if n.endswith(".stablehlo")})
    if extra:
        raise LoadError(f"a StableHLO package has no file {extra[0]!r}")
    for name in ("jax", "jaxlib"):
        if name not in manifest.needs:
            raise LoadError(f"a StableHLO package states the exact {name} that it needs; this one does not")
    operator = Operator.from_json(manifest.operator)
    exported = _exported(program, operator)
    options = _options(files.get(OPTIONS_FILE, b"{}"))
    return StableHloKernel(operator, exported.mlir_module(), int(manifest.setting["threads"]), options)


class StableHloKernel:
    """An operator as one XLA executable. Its arguments are the operator's tensor inputs in order, stored as
    :func:`opatlas.load.storage.storage_of` says."""

    def __init__(self, operator: Operator, program: str, threads: int, options: Mapping[str, str]) -> None:
        self.operator, self.program, self.threads, self.options = operator, program, threads, options
        self._device = device_of(threads)
        self._executable: Any = None
        self._constants: dict[int, Any] = {}

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        check_arrays(self.operator, self.operator.constant_inputs, constants)
        if self._executable is None:
            self._executable = compile_program(self.program, self.threads, self.options)
        for number, array in constants.items():
            argument = Argument(self.operator.inputs[number], array, self._device)
            argument.refresh()
            self._constants[number] = argument

    def bind(self, inputs: Mapping[int, np.ndarray]) -> StableHloBound:
        if self._executable is None:
            if self.operator.constant_inputs:
                raise LoadError("the operator has constant inputs: call prepare before bind")
            self.prepare({})
        check_arrays(self.operator, self.operator.runtime_inputs, inputs)
        arguments = {
            number: Argument(self.operator.inputs[number], array, self._device)
            for number, array in inputs.items()
        }
        return StableHloBound(self._executable, self.operator, {**self._constants, **arguments})

    def close(self) -> None:
        self._executable = None
        self._constants.clear()


class Argument:
    """One input as XLA's buffer in the input's own memory; a copy where alignment or strides forbid that."""

    def __init__(self, value: Value, array: np.ndarray, device: Any) -> None:
        self.source, storage = array, storage_of(value)
        self.copy: np.ndarray | None = None
        if storage.form == "copied" or not is_aligned(array, ALIGNMENT):
            dense = empty(Value(value.dtype, storage.shape), ALIGNMENT)
            self.copy, array = dense, dense
            if storage.form != "copied":
                self.source = stored(self.source, storage)
        else:
            array = stored(array, storage)
        self.address = array.ctypes.data
        self.memory = _writable(array, value.dtype)
        self.buffer = dlpack_managed_tensor_to_buffer(self.memory.__dlpack__(), device, None)
        if self.buffer.unsafe_buffer_pointer() != self.address:
            raise LoadError("XLA does not take the input where it lies")

    def refresh(self) -> None:
        """Update the copy, if there is one."""
        if self.copy is not None:
            self.copy[...] = self.source


class StableHloBound:
    """An executable with its arguments; a call runs to the end in this thread and XLA's own pool."""

    def __init__(self, executable: Any, operator: Operator, arguments: Mapping[int, Argument]) -> None:
        ordered = [arguments[number] for number in operator.tensor_inputs]
        self._execute = executable.execute_sharded
        self._kept = ordered
        self._buffers = [argument.buffer for argument in ordered]
        moving = [arguments[number] for number in operator.runtime_inputs]
        self._copied = [argument for argument in moving if argument.copy is not None]
        self._values = operator.output_values
        self._storages = [storage_of(value) for value in self._values]
        self._strided = {
            index: empty(self._values[index], ALIGNMENT)
            for index, storage in enumerate(self._storages)
            if storage.form in ("span", "copied")
        }
        self._done: Any = None
        self._results: list[Any] | None = None

    def __call__(self) -> None:
        # The last outputs go first, so that the allocator can hand the same, warm memory out again.
        self._done = self._results = None
        for argument in self._copied:
            argument.refresh()
        try:
            self._done = self._execute(self._buffers)
        except RuntimeError as error:  # JaxRuntimeError is one
            raise KernelFailed(f"XLA failed: {first_line(error)}") from error
        for index, output in self._strided.items():
            output[...] = np.asarray(self._arrays()[index])

    def outputs(self) -> Sequence[np.ndarray]:
        return [
            self._strided[index] if index in self._strided else _logical(np.asarray(result), storage)
            for index, (result, storage) in enumerate(zip(self._arrays(), self._storages, strict=True))
        ]

    def _arrays(self) -> list[Any]:
        """The results as JAX arrays, made when first read, since that takes a third of a call."""
        if self._results is None:
            if self._done is None:
                raise KernelFailed("the kernel was not called yet")
            self._results = [one for (one,) in self._done.disassemble_into_single_device_arrays()]
        return self._results

    def poison(self) -> None:
        taken = {argument.address for argument in self._kept}
        for result, value in zip(
            self._arrays() if self._done is not None else (), self._values, strict=False
        ):
            # Fresh memory at every call, but the allocator may hand the same out again.
            if result.unsafe_buffer_pointer() not in taken:
                _fill(np.asarray(result), value.dtype)
        for output in self._strided.values():
            output[...] = extreme(output.dtype)
        self._done = self._results = None


def compile_program(program: str, threads: int, options: Mapping[str, str]) -> Any:
    """XLA's executable of a StableHLO module's text; :class:`LoadError` if XLA refuses it."""
    client = _client(threads)
    try:
        return client.compile_and_load(program, **_wishes(client, threads, options))
    except RuntimeError as error:
        raise LoadError(f"XLA cannot compile the package: {first_line(error)}") from error


def written(executable: Any, threads: int) -> bytes:
    """An executable for :func:`read_executable`: machine code for this processor and this jaxlib."""
    code: bytes = _client(threads).serialize_executable(executable)
    return code


def read_executable(code: bytes, threads: int) -> Any:
    """What :func:`written` wrote, by a process of the same user: its code is run unchecked. Raises
    RuntimeError if this jaxlib does not accept it."""
    client = _client(threads)
    return client.deserialize_executable(code, **_wishes(client, threads, {}))


def _wishes(client: Any, threads: int, options: Mapping[str, str]) -> dict[str, Any]:
    wishes = xla_client.CompileOptions()
    alone = [("xla_cpu_multi_thread_eigen", "False")] if threads == 1 else []
    wishes.env_option_overrides = [*options.items(), *alone]
    return {"executable_devices": DeviceList((client.local_devices()[0],)), "compile_options": wishes}


def device_of(threads: int) -> Any:
    """The XLA device for executables on so many threads."""
    return _client(threads).local_devices()[0]


@functools.cache
def _client(threads: int) -> Any:
    """XLA on this processor with a pool of ``threads`` threads.

    XLA takes the number from ``NPROC`` when a client is made, and nowhere else.
    """
    with _client_lock:
        before = os.environ.get("NPROC")
        os.environ["NPROC"] = str(threads)
        try:
            return xla_client.make_cpu_client(asynchronous=False)
        finally:
            if before is None:
                del os.environ["NPROC"]
            else:
                os.environ["NPROC"] = before


def _exported(program: bytes, operator: Operator) -> Any:
    """The deserialised program, checked against the operator's inputs and outputs."""
    try:
        exported = jax.export.deserialize(bytearray(program))
    except Exception as error:  # flatbuffers and JAX raise whatever a wrong byte leads them to
        raise LoadError(f"the package is no exported JAX program: {first_line(error)}") from error
    if exported.platforms != ("cpu",) or exported.nr_devices != 1:
        raise LoadError("the package is not compiled for one CPU device")
    wanted = [
        (carrier(value.dtype), dense_shape(storage_of(value), value))
        for value in (operator.inputs[number] for number in operator.tensor_inputs)
    ]
    found = [(str(aval.dtype), tuple(aval.shape)) for aval in exported.in_avals]
    if found != wanted:
        raise LoadError(f"the package takes {found}, the operator's inputs are {wanted}"[:400])
    wanted = [(value.dtype, dense_shape(storage_of(value), value, False)) for value in operator.output_values]
    found = [(str(aval.dtype), tuple(aval.shape)) for aval in exported.out_avals]
    if found != wanted:
        raise LoadError(f"the package makes {found}, the operator's outputs are {wanted}"[:400])
    return exported


def dense_shape(storage: Storage, value: Value, reads: bool = True) -> tuple[int, ...]:
    """The shape of a program's argument (``reads``) or result for a value so stored."""
    return storage.shape if reads or storage.form == "turned" else value.shape


def carrier(dtype: str) -> str:
    """An argument's element type: what DLPack cannot name travels as whole numbers of the same width."""
    if dtype in EXTENSION_TYPES:
        return "uint16" if dtype == "bfloat16" else "uint8"
    return dtype


def _options(text: bytes) -> dict[str, str]:
    try:
        wishes = json.loads(text)
    except ValueError as error:
        raise LoadError(f"{OPTIONS_FILE} is not JSON") from error
    if not isinstance(wishes, dict):
        raise LoadError(f"{OPTIONS_FILE} is not an object")
    for name, value in wishes.items():
        if value not in OPTIONS.get(name, ()):
            raise LoadError(f"compile option {name}={value!r} is not on the list")
    return wishes


def _writable(array: np.ndarray, dtype: str) -> np.ndarray:
    """The same memory, writable (NumPy exports nothing else; XLA only reads) and of an exportable type."""
    memory = memoryview((ctypes.c_char * array.nbytes).from_address(array.ctypes.data))
    return np.frombuffer(memory, numpy_dtype(carrier(dtype))).reshape(array.shape)


def _logical(array: np.ndarray, storage: Storage) -> np.ndarray:
    return array.transpose(storage.order) if storage.form == "turned" else array


def _fill(array: np.ndarray, dtype: str) -> None:
    if array.size:
        _writable(array, dtype).view(numpy_dtype(dtype))[...] = extreme(array.dtype)
