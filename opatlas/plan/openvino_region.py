"""A part of a model in OpenVINO, on the processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import openvino as ov

from opatlas.errors import LoadError, first_line
from opatlas.graph.weights import serialisable
from opatlas.load.kernel import KernelFailed
from opatlas.plan.regions import ModelPart


class OpenVinoRegion:
    """One compiled model with one request of its own, computing in the model's own precision."""

    def __init__(self, part: ModelPart, threads: int) -> None:
        kinds = part.types(part.inputs)
        if serialisable(part.model) is not part.model:
            raise LoadError("OpenVINO is given models as they are written in one piece, which is up to 2 GB")
        try:
            core = ov.Core()
            model = core.read_model(part.model.SerializeToString())
            names = dict(zip(part.input_names, kinds, strict=True))
            model.reshape({name: list(kind.shape) for name, kind in names.items()})
            self._model: Any = core.compile_model(model, "CPU", _options(threads))
            self._request = self._model.create_infer_request()
            self._inputs = [self._model.input(name) for name in part.input_names]
        except Exception as error:  # its errors are RuntimeError, or those of the layer between
            raise LoadError(f"OpenVINO refuses the model: {first_line(error)}") from error
        if len(self._model.outputs) != len(part.outputs):
            raise LoadError(f"OpenVINO gives {len(self._model.outputs)} outputs, not {len(part.outputs)}")

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        try:
            for port, array in zip(self._inputs, inputs, strict=True):
                self._request.set_tensor(port, _tensor(array))
            self._request.infer()
            # The request writes into the same memory again: what is given out is a copy.
            return [np.array(self._request.get_tensor(port).data) for port in self._model.outputs]
        except Exception as error:
            raise KernelFailed(f"OpenVINO failed: {first_line(error)}") from error

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        request = self._model.create_infer_request()
        tensors = [_tensor(array) for array in (*inputs, *outputs)]
        try:
            for port, tensor in zip((*self._inputs, *self._model.outputs), tensors, strict=True):
                request.set_tensor(port, tensor)
        except Exception as error:
            raise LoadError(f"OpenVINO does not take these buffers: {first_line(error)}") from error

        def call(keep: Any = tensors) -> None:
            try:
                request.infer()
            except Exception as error:
                raise KernelFailed(f"OpenVINO failed: {first_line(error)}") from error

        return call


def _options(threads: int) -> dict[str, Any]:
    return {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "EXECUTION_MODE_HINT": "ACCURACY",  # else it computes float32 in half precision where that is faster
        "ENABLE_CPU_PINNING": False,  # other regions and the job itself have threads too
    }


def _tensor(array: np.ndarray) -> Any:
    """The array's own memory."""
    return ov.Tensor(
        np.ascontiguousarray(array) if not array.flags.c_contiguous else array, shared_memory=True
    )
