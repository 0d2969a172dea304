"""Reference outputs, computed in a child of the trusted library zygote.

``torch64``: the operator's PyTorch graph in float64. ``onnx``: ONNX's own reference implementation in
NumPy. ``onnxruntime``: for what neither expresses; float32, so it never judges ONNX Runtime's own results
(then it is only run as the last resort, and says so).
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opatlas.identity import Operator
from tuning.measure.shared_tensors import TensorSlot

METHODS = ("torch64", "onnx", "onnxruntime")


def methods(operator: Operator, default_route: str) -> tuple[str, ...]:
    """What to try, in order, without importing anything heavy."""
    from opatlas.load.torch import graph as torch_graph

    first = () if torch_graph.missing(operator) else ("torch64",)
    last = () if default_route == "onnxruntime" else ("onnxruntime",)
    return (*first, "onnx", *last)


def compute(request: Mapping[str, Any], inputs_fd: int, outputs_fd: int) -> None:
    """Fill the reference slots of every set asked for. Raises what the method raises."""
    operator = Operator.from_json(request["operator"])
    memory = mmap.mmap(inputs_fd, 0, prot=mmap.PROT_READ)
    answers = mmap.mmap(outputs_fd, 0)
    constants = _views(request["constants"], memory)
    run = _RUNNERS[request["method"]](operator, constants)
    for inputs, outputs in zip(request["sets"], request["outputs"], strict=True):
        results = run(_views(inputs, memory))
        for document, result in zip(outputs, results, strict=True):
            slot = TensorSlot.from_json(document)
            if tuple(result.shape) != slot.shape:
                raise ValueError(f"the reference has shape {result.shape}, the operator says {slot.shape}")
            slot.view(slot.flat(answers))[...] = result


def _views(documents: Mapping[str, Any], memory: mmap.mmap) -> dict[int, np.ndarray]:
    slots = {int(number): TensorSlot.from_json(document) for number, document in documents.items()}
    return {number: slot.view(slot.flat(memory)) for number, slot in slots.items()}


Runner = Callable[[Mapping[int, np.ndarray]], list[np.ndarray]]


def _torch64(operator: Operator, constants: Mapping[int, np.ndarray]) -> Runner:
    import torch

    from opatlas.load.torch.graph import run_graph

    def tensor(array: np.ndarray) -> Any:
        wide = array.astype(np.float64) if _is_float(array) else np.array(array)
        return torch.from_numpy(wide)

    fixed = {number: tensor(array) for number, array in constants.items()}

    def run(inputs: Mapping[int, np.ndarray]) -> list[np.ndarray]:
        with torch.inference_mode():
            moving = {number: tensor(array) for number, array in inputs.items()}
            outputs = run_graph(operator, {**fixed, **moving})
            return [_numpy(output) for output in outputs]

    return run


def _onnx(operator: Operator, constants: Mapping[int, np.ndarray]) -> Runner:
    from onnx.reference import ReferenceEvaluator

    from opatlas.identity import to_onnx

    model = to_onnx(operator)
    session = ReferenceEvaluator(model)
    return _onnx_runner(model, constants, lambda feeds: session.run(None, feeds))


def _onnx_runner(model: Any, constants: Mapping[int, np.ndarray], ask: Callable[[Any], Any]) -> Runner:
    names = [value.name for value in model.graph.input]

    def run(inputs: Mapping[int, np.ndarray]) -> list[np.ndarray]:
        feeds = {
            f"in{number}": np.ascontiguousarray(array) for number, array in {**constants, **inputs}.items()
        }
        return [np.asarray(out) for out in ask({name: feeds[name] for name in names})]

    return run


def _onnxruntime(operator: Operator, constants: Mapping[int, np.ndarray]) -> Runner:
    import onnxruntime

    from opatlas.identity import to_onnx

    model = to_onnx(operator)
    options = onnxruntime.SessionOptions()
    # Unoptimised: fusions are what is under test.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return _onnx_runner(model, constants, lambda feeds: session.run(None, feeds))


_RUNNERS: dict[str, Callable[[Operator, Mapping[int, np.ndarray]], Runner]] = {
    "torch64": _torch64,
    "onnx": _onnx,
    "onnxruntime": _onnxruntime,
}


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))


def _numpy(tensor: Any) -> np.ndarray:
    import torch

    tensor = tensor.detach().cpu()
    return (tensor.to(torch.float32) if tensor.dtype == torch.bfloat16 else tensor).resolve_conj().numpy()
