"""A part of a model as one XLA program, with the XLA route's table of operators."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jaxlib
import numpy as np
from jax import export

from opatlas.conf import conf
from opatlas.errors import LoadError, OpatlasError, first_line
from opatlas.graph.normal import ModelGraph
from opatlas.graph.types import TensorType
from opatlas.graph.weights import serialisable
from opatlas.identity.dtypes import CODES
from opatlas.identity.operator import Value
from opatlas.identity.place.cpu import detect_target
from opatlas.load.buffers import empty
from opatlas.load.dtypes import EXTENSION_TYPES
from opatlas.load.kernel import KernelFailed
from opatlas.load.package_stablehlo import (
    ALIGNMENT,
    Argument,
    compile_program,
    device_of,
    read_executable,
    written,
)
from opatlas.load.xla.lower import lowered
from opatlas.load.xla.table import DTYPES, missing
from opatlas.own_folder import own_folder, read_own
from opatlas.plan.regions import ModelPart

_NAMES = {code: name for name, code in CODES.items() if name in DTYPES - EXTENSION_TYPES}
_DIGEST_BYTES = hashlib.sha256().digest_size


class XlaRegion:
    """One executable on a pool of so many threads. The weights are its first arguments, transferred once.
    Compiling takes seconds to minutes and is cached in the user's folder;
    :func:`opatlas.plan.compiling.compile_ahead` does it within a time limit."""

    def __init__(self, part: ModelPart, threads: int) -> None:
        self._inputs = [_value(kind) for kind in part.types(part.inputs)]
        self._device = device_of(threads)
        program = ModelProgram(part)
        self._execute = _executable(program, part, self._inputs, threads).execute_sharded
        self._weights = [
            self._argument(Value(str(array.dtype), array.shape), array)
            for array in program.constants.values()
        ]

        # Making an argument takes several times as long as a small model's run.
        self._places = [empty(value, ALIGNMENT) for value in self._inputs]
        self._given = [self._argument(*one) for one in zip(self._inputs, self._places, strict=True)]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for place, argument, array in zip(self._places, self._given, inputs, strict=True):
            place[...] = array
            argument.refresh()
        return [np.array(one) for one in self._run(self._given)]  # XLA's own memory is read-only

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        given = [Argument(*one, self._device) for one in zip(self._inputs, inputs, strict=True)]
        places = tuple(outputs)

        def call() -> None:
            for argument in given:
                argument.refresh()
            for place, made in zip(places, self._run(given), strict=True):
                place[...] = made

        return call

    def _run(self, given: Sequence[Argument]) -> list[np.ndarray]:
        try:
            done = self._execute([one.buffer for one in (*self._weights, *given)])
            return [np.asarray(one) for (one,) in done.disassemble_into_single_device_arrays()]
        except RuntimeError as error:  # JaxRuntimeError is one
            raise KernelFailed(f"XLA failed: {first_line(error)}") from error

    def _argument(self, value: Value, array: np.ndarray) -> Argument:
        argument = Argument(value, np.asarray(array, order="C"), self._device)
        argument.refresh()
        return argument


class ModelProgram:
    """Nodes of a model as one JAX function of ``constants`` (those that are read, by number) and inputs.
    Raises :class:`LoadError` naming the first node that the table lacks."""

    def __init__(self, part: ModelPart) -> None:
        self._inputs, self._outputs = part.inputs, part.outputs
        self._steps = [_step(part.graph, number) for number in part.nodes]
        read = {one for _, takes, _ in self._steps for one in takes} | set(part.outputs)
        self.constants = part.graph.evaluate(sorted(one for one in read if part.graph.is_constant(one)))
        for number, array in self.constants.items():
            if str(array.dtype) not in _NAMES.values():
                raise LoadError(f"XLA is given no {array.dtype} ('{part.graph.names[number]}')")

    def __call__(self, *arrays: jax.Array) -> list[jax.Array]:
        values = dict(zip((*self.constants, *self._inputs), arrays, strict=True))
        for function, takes, makes in self._steps:
            values.update(zip(makes, function(*[values[one] for one in takes]), strict=True))
        return [values[number] for number in self._outputs]

    def exported(self, inputs: Sequence[Value]) -> str:
        """Its StableHLO for inputs of these types."""
        known = [(one.shape, str(one.dtype)) for one in self.constants.values()]
        asked = [(one.shape, one.dtype) for one in inputs]
        shapes = [jax.ShapeDtypeStruct(*one) for one in (*known, *asked)]
        with jax.enable_x64(True):
            function = jax.jit(self, keep_unused=True)
            program: str = export.export(function, platforms=["cpu"])(*shapes).mlir_module()
        return program


def _step(graph: ModelGraph, number: int) -> tuple[Callable[..., list[jax.Array]], Sequence[int], list[int]]:
    """A node: its function, the values that it reads and those that it makes."""
    node, found = graph.nodes[number], graph.operator(number)
    if found is None:
        raise LoadError(f"node {number}: {node.reason or node.proto.op_type}")
    operator, takes = found[0].operator, found[1]
    if reason := missing(operator):
        raise LoadError(f"node {number}: {reason}")
    try:
        return lowered(operator, "plain"), takes, [one for one in node.outputs if one >= 0]
    except OpatlasError as error:
        raise LoadError(f"node {number}: {error}") from error


def _value(kind: TensorType) -> Value:
    if (name := _NAMES.get(kind.element)) is None:
        raise LoadError(f"XLA is given no tensors of ONNX's element type {kind.element}")
    return Value(name, kind.shape)


def _executable(program: ModelProgram, part: ModelPart, inputs: Sequence[Value], threads: int) -> Any:
    """The executable from the user's cache folder, or compiled and kept there."""
    path = _place(part, inputs, threads)
    with contextlib.suppress(OSError, RuntimeError):  # not there, or damaged
        code = read_own(path)
        if hashlib.sha256(code[_DIGEST_BYTES:]).digest() == code[:_DIGEST_BYTES]:
            return read_executable(code[_DIGEST_BYTES:], threads)
    try:
        text = program.exported(inputs)
    except Exception as error:  # whatever JAX raises while it traces
        raise LoadError(f"XLA cannot be told the model: {first_line(error)}") from error
    executable = compile_program(text, threads, {})
    code = written(executable, threads)
    with contextlib.suppress(OSError):  # a full disk: it is compiled again
        made = path.with_suffix(f".{os.getpid()}")
        made.write_bytes(hashlib.sha256(code).digest() + code)
        made.replace(path)
    return executable


def _place(part: ModelPart, inputs: Sequence[Value], threads: int) -> Path:
    """The folder of this model's executable, for this processor and jaxlib."""
    if serialisable(part.model) is not part.model:
        raise LoadError("XLA is given models as they are written in one piece, which is up to 2 GB")
    folder = conf().cache / "xla"
    try:
        own_folder(folder)
    except OSError as error:
        raise LoadError(f"what is compiled cannot be kept: {error}") from error
    about = f"{jaxlib.__version__} {detect_target().key} {threads} {[one.shape for one in inputs]}"
    model = part.model.SerializeToString(deterministic=True)
    return folder / hashlib.sha256(about.encode() + b"\n" + model).hexdigest()
