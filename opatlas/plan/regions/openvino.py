"""A part of a model in OpenVINO, on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import openvino as ov

from opatlas.errors import LoadError, first_line
from opatlas.graph.weights import serialisable
from opatlas.load.kernel import KernelFailed
from opatlas.plan.regions import ModelPart


class OpenVinoRegion:
    """One compiled model with one request, computing in the model's own precision."""

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
            request = self._model.create_infer_request()
            self._inputs = [self._model.input(name) for name in part.input_names]
        except Exception as error:  # its errors are RuntimeError, or those of the layer between
            raise LoadError(f"OpenVINO refuses the model: {first_line(error)}") from error
        if len(self._model.outputs) != len(part.outputs):
            raise LoadError(f"OpenVINO gives {len(self._model.outputs)} outputs, not {len(part.outputs)}")
        ports = list(self._model.inputs)
        self._numbers = [ports.index(port) for port in self._inputs]
        self._infer = _inferring(request)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        try:
            tensors = dict(zip(self._numbers, map(_tensor, inputs), strict=True))
            # The request writes into the same memory again: what it gives out is a copy.
            return list(self._infer(tensors, False, True).values())
        except Exception as error:
            raise KernelFailed(f"OpenVINO failed: {first_line(error)}") from error

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        if not all(map(_can_be_shared, (*inputs, *outputs))):
            raise LoadError("OpenVINO takes buffers that are dense and may be written")
        request = self._model.create_infer_request()
        tensors = [_tensor(array) for array in (*inputs, *outputs)]
        try:
            for port, tensor in zip((*self._inputs, *self._model.outputs), tensors, strict=True):
                request.set_tensor(port, tensor)
        except Exception as error:
            raise LoadError(f"OpenVINO does not take these buffers: {first_line(error)}") from error

        infer = _inferring(request)

        def call(keep: Any = tensors) -> None:
            try:
                infer({}, True, True)
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


def _inferring(request: Any) -> Callable[[dict[int, Any], bool, bool], Mapping[Any, np.ndarray]]:
    """OpenVINO's binding for a whole run: inputs by number, whether to share outputs, whether to decode text.
    It is below OpenVINO's Python, which checks each input again; a model may take 0.1 ms."""
    infer: Callable[..., Any] = super(ov.InferRequest, request).infer  # type: ignore[misc]
    return infer


def _tensor(array: np.ndarray) -> Any:
    """A tensor over the array's memory if OpenVINO accepts that, else over a copy."""
    own = array if _can_be_shared(array) else np.array(array, order="C")
    return ov.Tensor(own, shared_memory=True)


def _can_be_shared(array: np.ndarray) -> bool:
    return array.flags.c_contiguous and array.flags.writeable
