"""Recipes of library ``onnxruntime``: the operator as an ONNX model in a session of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import helper

from opatlas.errors import LoadError, first_line
from opatlas.identity.operator import Operator
from opatlas.load.buffers import check_arrays, empty, same_strides
from opatlas.load.dtypes import ONNX_NUMBER
from opatlas.load.kernel import KeptOutputs, KernelFailed
from opatlas.load.storage import Storage, storage_of, stored

_ALIGNMENT = 64

EXACTNESS = "session.x64quantprecision"
"""The entry of options by which ONNX Runtime computes products of uint8 by int8 exactly: "1" or "0"."""

_LEVELS = {
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


def quiet_options(threads: int) -> ort.SessionOptions:
    """Options of a session that runs its nodes one by one on so many threads, and raises errors instead of
    printing them."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    return options


def resting_options(threads: int) -> ort.SessionOptions:
    """Like :func:`quiet_options`, for a session beside others in its process: its threads rest after a run.
    Otherwise they spin on for tens of milliseconds and take the next session's cores: the 66 nodes of
    SqueezeNet in a session each took 369 ms, and 12 with this."""
    options = quiet_options(threads)
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def sleeping_options(threads: int) -> ort.SessionOptions:
    """Like :func:`quiet_options`, for a region of a plan: its threads sleep as soon as they are idle, during
    a run too, since those of one region would still hold the cores of the next. A transformer encoder of two
    layers in 33 regions took 70 ms resting and 10 sleeping (once, on a busy host); ShuffleNet in 26 regions
    took 6.1 and 6.5, since sleeping threads must be woken."""
    options = quiet_options(threads)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def ask_exact(options: ort.SessionOptions) -> None:
    """Ask for exact products of uint8 by int8 with constant weights. Otherwise, on processors with AVX2 and
    no VNNI, sums of two products are cut off at 16 bits."""
    options.add_session_config_entry(EXACTNESS, "1")


def open_kernel(operator: Operator, recipe: Mapping[str, Any]) -> OrtKernel:
    """The kernel of an allowed onnxruntime recipe."""
    return OrtKernel(operator, recipe)


class OrtKernel:
    """An operator as one ONNX Runtime session; constants become initializers (prepacked) or stay inputs."""

    binds_outputs = True

    def __init__(self, operator: Operator, recipe: Mapping[str, Any]) -> None:
        self.operator, self.recipe = operator, recipe
        self._session: Any = None
        self._constants: dict[int, np.ndarray] = {}
        self._turned = turned_inputs(operator) if recipe["strided"] == "turned" else {}
        if not operator.constant_inputs:
            self.prepare({})

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        check_arrays(self.operator, self.operator.constant_inputs, constants)
        dense = {number: np.asarray(array, order="C") for number, array in constants.items()}
        packed = dense if self.recipe["constants"] == "initializers" else {}
        self._constants = {} if packed else dense
        options = resting_options(int(self.recipe["threads"]))
        if self.recipe["execution"] == "parallel":  # nodes side by side, each on as many threads
            options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
            options.inter_op_num_threads = int(self.recipe["threads"])
        if not self.recipe["prepacking"]:
            options.add_session_config_entry("session.disable_prepacking", "1")
        options.graph_optimization_level = _LEVELS[self.recipe["graph_optimization"]]
        try:
            model = model_of(self.operator, packed)
            for number, storage in self._turned.items():
                turn_inside(model, f"in{number}", storage)
            self._session = ort.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
            raise LoadError(f"ONNX Runtime refuses the operator: {first_line(error)}") from error

    def bind(self, inputs: Mapping[int, np.ndarray], outputs: Sequence[np.ndarray] | None = None) -> OrtBound:
        """``outputs``: where each run writes; its own buffers unless given."""
        if self._session is None:
            raise LoadError("the operator has constant inputs: call prepare before bind")
        check_arrays(self.operator, self.operator.runtime_inputs, inputs)
        return OrtBound(self._session, self.operator, {**inputs, **self._constants}, self._turned, outputs)

    def close(self) -> None:
        self._session = None


OLDER_KERNELS, OLDER_OPSET = frozenset({"MaxRoiPool", "RoiAlign"}), 21
"""ONNX opset 22 gave these types bfloat16 and nothing else; ONNX Runtime has them by older schemas only."""


def model_of(operator: Operator, constants: Mapping[int, np.ndarray] | None = None) -> Any:
    """The operator as a model at an opset at which ONNX Runtime has its types."""
    from opatlas.identity import to_onnx

    model = to_onnx(operator, constants)
    if not OLDER_KERNELS.isdisjoint(operator.op_types):
        model.opset_import[0].version = OLDER_OPSET
    return model


class OrtBound(KeptOutputs):
    """A session with its inputs and its own output buffers bound; a call is one run."""

    def __init__(
        self,
        session: Any,
        operator: Operator,
        inputs: Mapping[int, np.ndarray],
        turned: Mapping[int, Storage],
        outputs: Sequence[np.ndarray] | None = None,
    ) -> None:
        self._binding = session.io_binding()
        self._copies: list[tuple[np.ndarray, np.ndarray]] = []
        self._inputs = []
        for number, array in inputs.items():
            value = operator.inputs[number]
            if number in turned:  # the session turns it; the memory goes in as it lies
                array = stored(array, turned[number])
            dense = np.asarray(array, order="C")
            if dense is not array and number in operator.runtime_inputs:
                # ONNX Runtime takes row-major tensors only: the conversion is part of every run.
                self._copies.append((dense, array))
            self._inputs.append(dense)
            bind_memory(self._binding.bind_input, f"in{number}", dense, value.dtype)
        self._outputs = []
        self._strided: list[tuple[np.ndarray, np.ndarray]] = []
        for index, value in enumerate(operator.output_values):
            dense_value = replace(value, strides=None)
            output = outputs[index] if outputs is not None else empty(value, _ALIGNMENT)
            made = output
            if not same_strides(output.strides, output.itemsize, dense_value):
                made = empty(dense_value, _ALIGNMENT)
                self._strided.append((output, made))
            self._outputs.append(output)
            bind_memory(self._binding.bind_output, f"out{index}", made, value.dtype)
        self._run = session._sess.run_with_iobinding
        self._io = self._binding._iobinding

    def __call__(self) -> None:
        for dense, source in self._copies:
            dense[...] = source
        try:
            self._run(self._io, None)
        except Exception as error:
            raise KernelFailed(f"ONNX Runtime failed: {first_line(error)}") from error
        for output, made in self._strided:
            output[...] = made


def turned_inputs(operator: Operator) -> dict[int, Storage]:
    """Numbers of runtime inputs that are the transpose of dense memory."""
    found = {number: storage_of(operator.inputs[number]) for number in operator.runtime_inputs}
    return {number: storage for number, storage in found.items() if storage.form == "turned"}


def turn_inside(model: Any, name: str, storage: Storage) -> None:
    """Let the model take an input as it is in memory, and transpose it itself: ONNX Runtime does that faster
    than a copy before, and folds the transpose into a matrix product."""
    graph = model.graph
    place = next(index for index, value in enumerate(graph.input) if value.name == name)
    tensor = graph.input[place].type.tensor_type
    stated = helper.make_tensor_value_info(name, tensor.elem_type, storage.shape)
    graph.input[place].CopyFrom(stated)
    turned = f"{name}_turned"
    for node in graph.node:
        node.input[:] = [turned if used == name else used for used in node.input]
    graph.node.insert(0, helper.make_node("Transpose", [name], [turned], perm=list(storage.order)))


def bind_memory(bind: Any, name: str, array: np.ndarray, dtype: str) -> None:
    """Bind an array to an input or output by its address; ``bind`` is the binding's method."""
    bind(name, "cpu", 0, ONNX_NUMBER[dtype], array.shape, array.ctypes.data)
