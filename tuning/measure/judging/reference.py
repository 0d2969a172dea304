"""Reference outputs with the errors allowed in them, computed in a child of the trusted library zygote.

``torch64``: the operator's PyTorch graph in float64, with a running error analysis
(:mod:`tuning.measure.judging.rounding`), on the processor or on a device that PyTorch reaches. PyTorch eager
runs the same calls: an operator's first references are confirmed by somebody else
(:mod:`tuning.measure.judging.confirming`).
``onnx``: ONNX's own reference implementation in NumPy, in float64, with our definitions
(:mod:`tuning.measure.judging.definitions`) of what it leaves parts out of.
``onnxruntime``: for what neither expresses; float32, so it never judges ONNX Runtime's own results.
These two have no nodes to walk over: the whole operator is run again on inputs moved by their rounding
(``rounding.probing``), and their own rounding is allowed too. What is made of definitions is run again with
their roundings drawn at random instead.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from opatlas.identity import Operator, Setting
from tuning.measure.judging.check import Reference
from tuning.measure.judging.confirming import Confirmation
from tuning.measure.judging.definitions import DEFINED, is_defined
from tuning.measure.judging.definitions.loss import Loss
from tuning.measure.judging.tolerance import FUNCTION, SUM, Precision, is_float, reduction_length
from tuning.measure.shared_tensors import TensorSlot

METHODS = ("torch64", "onnx", "onnxruntime")
HOST = "cpu"
SMALLEST_ALLOWED = 2.0**-126
"""Where an output's elements may differ at all, each may by this much; 0 throughout: it must be exact."""

Bounds = tuple[np.ndarray, np.ndarray | None]
"""An output and what each of its elements may differ by (None: exact)."""


def methods(operator: Operator, default_route: str) -> tuple[str, ...]:
    """What to try, in order, without importing anything heavy. Where there is a definition, it alone: it is
    nobody's implementation, and knows the roundings."""
    from opatlas.load.torch import graph as torch_graph

    if not DEFINED.isdisjoint(operator.op_types):
        return ("onnx",)
    first = () if torch_graph.missing(operator) else ("torch64",)
    last = () if default_route == "onnxruntime" else ("onnxruntime",)
    return (*first, "onnx", *last)


def compute(request: Mapping[str, Any], constants_fd: int, outputs_fd: int, inputs_fd: int) -> str:
    """Fill the reference slots of every set asked for, in a process of its own, which ends then. Returns who
    else computes the same, where the request has that confirmed. Raises what the method raises, and
    :class:`~tuning.measure.judging.confirming.Unconfirmed`."""
    _reuse_memory()
    operator = Operator.from_json(request["operator"])
    setting = Setting.from_json(request.get("setting", {}))
    fixed = mmap.mmap(constants_fd, 0, prot=mmap.PROT_READ)
    memory = mmap.mmap(inputs_fd, 0, prot=mmap.PROT_READ)
    answers = mmap.mmap(outputs_fd, 0)
    device = _device(request)
    constants = _views(request["constants"], fixed)
    run = runner(request["method"], operator, setting, constants, device)
    confirmed: dict[str, None] = {}
    others = Confirmation(operator, constants, _onnxruntime, _onnx) if request.get("confirm") else None
    for inputs, outputs in zip(request["sets"], request["outputs"], strict=True):
        arrays = _views(inputs, memory)
        results = run(arrays)
        if others is not None:
            confirmed[others.confirm(arrays, [Reference(*one) for one in results])] = None
        for document, (value, allowed) in zip(outputs, results, strict=True):
            _fill(TensorSlot.from_json(document["value"]), value, answers)
            slot = TensorSlot.from_json(document["allowed"])
            _fill(slot, np.zeros(slot.shape) if allowed is None else allowed, answers)
    return ", ".join(confirmed)


def _device(request: Mapping[str, Any]) -> str:
    """Where the request has it computed, with the memory bounded that may be used there."""
    if "device" not in request:
        return HOST
    from opatlas.load.torch.on_device import allow_tf32
    from tuning.measure.transfers import OnDeviceInTorch

    OnDeviceInTorch().bound_memory(*request["device_bytes"])
    allow_tf32(False)  # the analysis takes some sums in float32
    return str(request["device"])


_NEVER_TRIMMED, _TOP_PAD_BYTES = 2**31 - 1, 64 << 20
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # malloc.h


def _reuse_memory() -> None:
    """Have malloc keep what is freed: else each step of the analysis on a large tensor has its memory mapped
    anew, and the kernel's zeroing takes as long as the arithmetic. Where there is no ``mallopt`` it does."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIMMED)
        mallopt(_M_TOP_PAD, _TOP_PAD_BYTES)


def _fill(slot: TensorSlot, values: np.ndarray, memory: mmap.mmap) -> None:
    if tuple(values.shape) != slot.shape:
        raise ValueError(f"the reference has shape {values.shape}, the operator says {slot.shape}")
    with np.errstate(over="ignore"):
        slot.view(slot.flat(memory))[...] = values


def _views(documents: Mapping[str, Any], memory: mmap.mmap) -> dict[int, np.ndarray]:
    slots = {int(number): TensorSlot.from_json(document) for number, document in documents.items()}
    return {number: slot.view(slot.flat(memory)) for number, slot in slots.items()}


Runner = Callable[[Mapping[int, np.ndarray]], list[Bounds]]


def runner(
    method: str,
    operator: Operator,
    setting: Setting,
    constants: Mapping[int, np.ndarray],
    device: str = HOST,
) -> Runner:
    """Outputs and allowed errors for sets of runtime inputs, by one of METHODS. ``device``: where
    ``torch64`` is computed, as PyTorch calls it; arrays come from the host and go back there."""
    if method == "torch64":
        return _torch64(operator, setting, constants, device)
    precision = Precision(setting)
    if method == "onnx":
        loss = Loss(*_spacings(operator, precision))
        return _probing(operator, precision, constants, _onnx(operator, loss), loss)
    return _probing(operator, precision, constants, _onnxruntime(operator))


def _torch64(
    operator: Operator, setting: Setting, constants: Mapping[int, np.ndarray], device: str
) -> Runner:
    import torch

    from tuning.measure.judging.rounding.probing import holds_floats
    from tuning.measure.judging.rounding.walk import GraphWalk

    def tensor(array: np.ndarray) -> Any:
        wide = array.astype(np.float64) if holds_floats(array) else np.array(array)
        return torch.from_numpy(wide).to(device)

    with torch.device(device):  # what nodes make from nothing lies there too
        walk = GraphWalk(
            operator, {number: tensor(array) for number, array in constants.items()}, Precision(setting)
        )

    def run(inputs: Mapping[int, np.ndarray]) -> list[Bounds]:
        with torch.inference_mode(), torch.device(device):
            made = walk.run({number: tensor(array) for number, array in inputs.items()})
            return [(_numpy(value), None if error is None else _allowed(error)) for value, error in made]

    return run


def _allowed(error: Any) -> np.ndarray:
    found: np.ndarray = error.clamp(min=SMALLEST_ALLOWED).cpu().numpy()
    return found


Feeds = Mapping[int, np.ndarray]
_LOSSLESS = Loss(0.0, 0.0)


def _onnx(operator: Operator, loss: Loss = _LOSSLESS) -> Callable[[Feeds], list[np.ndarray]]:
    from onnx.reference import ReferenceEvaluator

    from opatlas.identity import to_onnx
    from tuning.measure.judging.definitions import implementations
    from tuning.measure.judging.rounding.probing import holds_floats

    model = to_onnx(operator)
    session = ReferenceEvaluator(model, new_ops=implementations(loss))

    def wide(array: np.ndarray) -> np.ndarray:
        return array.astype(np.float64) if holds_floats(array) else array

    def ask(feeds: Mapping[str, np.ndarray]) -> Any:
        return session.run(None, {name: wide(array) for name, array in feeds.items()})

    return _fed(model, ask)


def _fed(model: Any, ask: Callable[[Any], Any]) -> Callable[[Feeds], list[np.ndarray]]:
    names = [value.name for value in model.graph.input]

    def run(arrays: Feeds) -> list[np.ndarray]:
        feeds = {f"in{number}": np.asarray(array, order="C") for number, array in arrays.items()}
        return [np.asarray(out) for out in ask({name: feeds[name] for name in names})]

    return run


def _onnxruntime(operator: Operator) -> Callable[[Feeds], list[np.ndarray]]:
    import onnxruntime

    from opatlas.load.onnxruntime_recipe import model_of

    model = model_of(operator)
    options = onnxruntime.SessionOptions()
    # Unoptimised: fusions are what is under test.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return _fed(model, lambda feeds: session.run(None, feeds))


def _spacings(operator: Operator, precision: Precision) -> tuple[float, float]:
    """The coarsest of the operator's types: around one, and of what its sums are kept in."""
    dtypes = [value.dtype for value in (*operator.inputs, *operator.produced) if is_float(value.dtype)]
    return (
        max((precision.rounding(dtype) for dtype in dtypes), default=0.0),
        max((precision.summing(dtype) for dtype in dtypes), default=0.0),
    )


def _probing(
    operator: Operator,
    precision: Precision,
    constants: Mapping[int, np.ndarray],
    run: Callable[[Feeds], list[np.ndarray]],
    loss: Loss | None = None,
) -> Runner:
    """``loss``: what the definitions among the operator's nodes lose, where there may be some."""
    from tuning.measure.judging.rounding.probing import SAFETY, drawn, probed_graph

    relative, summing = _spacings(operator, precision)
    only_drawn = loss is not None and is_defined(operator)
    length = 1 if only_drawn else reduction_length(operator)

    def bounded(inputs: Mapping[int, np.ndarray]) -> list[Bounds]:
        arrays = {**constants, **inputs}
        numbers, made, random = list(arrays), run(arrays), np.random.default_rng(2)

        def again(moved: Sequence[np.ndarray]) -> list[np.ndarray]:
            with loss.drawn(random, length**-0.5 / SAFETY) if loss else nullcontext():
                return run(dict(zip(numbers, moved, strict=True)))

        if only_drawn:
            found = drawn(again, list(arrays.values()), made)
        else:
            found = probed_graph(again, list(arrays.values()), made, relative, length)
        units = 2 * FUNCTION * relative + SUM * summing * length**0.5
        return [(one, _both(one, error, units)) for one, error in zip(made, found, strict=True)]

    return bounded


def _both(made: np.ndarray, error: np.ndarray, units: float) -> np.ndarray | None:
    """What moving did, and the rounding of the reference and of what is judged."""
    if made.dtype.kind in "biu":
        return np.maximum(error, SMALLEST_ALLOWED) if error.any() else None
    sizes = np.nan_to_num(np.abs(made.astype(np.float64)), nan=0.0, posinf=0.0)
    total: np.ndarray = error + units * sizes + SMALLEST_ALLOWED
    return total


def _numpy(tensor: Any) -> np.ndarray:
    import torch

    tensor = tensor.detach().cpu()
    return (tensor.to(torch.float32) if tensor.dtype == torch.bfloat16 else tensor).resolve_conj().numpy()
