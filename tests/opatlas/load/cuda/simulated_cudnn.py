"""A stand-in for cuDNN: its graphs computed in NumPy over a simulated device's memory, read by strides."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from opatlas.load.cuda.cudnn import OfferedPlan
from opatlas.load.cuda.dnn_graph import DnnGraph, DnnStep, DnnTensor
from opatlas.load.dtypes import numpy_dtype
from tests.opatlas.load.cuda.simulated import SimulatedDriver

Arrays = Mapping[str, np.ndarray]

PLANS = (
    OfferedPlan(7, ((2, 1),), frozenset({"tensor core"})),
    OfferedPlan(3, ()),
    OfferedPlan(7, ((2, 1),), frozenset({"tensor core"})),  # another heuristic's, which is the first again
    OfferedPlan(3, ((2, 4),)),
)
"""Three in all, of which two are strict."""


class SimulatedGraphs:
    def __init__(self, device: SimulatedDriver, workspace_bytes: int = 4096) -> None:
        self.device = device
        self.workspace_bytes = workspace_bytes
        self.graph: DnnGraph | None = None
        self.built_plans: list[OfferedPlan] = []
        self.streams: list[int] = []

    def plans(self, graph: DnnGraph) -> Iterator[OfferedPlan]:
        self.graph = graph
        yield from PLANS

    def built(self, plan: OfferedPlan) -> SimulatedPlan:
        self.built_plans.append(plan)
        assert self.graph is not None
        return SimulatedPlan(self, self.graph)


class SimulatedPlan:
    def __init__(self, library: SimulatedGraphs, graph: DnnGraph) -> None:
        self.library, self.graph = library, graph
        self.workspace_bytes = library.workspace_bytes

    def runner(self, addresses: Mapping[int, int], workspace: int) -> Callable[[int], None]:
        told = {n for n, tensor in enumerate(self.graph.tensors) if not tensor.virtual}
        assert set(addresses) == told, "what is not virtual has an address"
        if self.workspace_bytes:
            self.library.device.bytes_at(workspace, self.workspace_bytes)
            assert not self.library.device.broken

        def launch(stream: int) -> None:
            self.library.streams.append(stream)
            self.library.device.waiting.append(lambda: self.run(addresses))

        return launch

    def run(self, addresses: Mapping[int, int]) -> None:
        known = {
            number: _read(self.library.device, tensor, addresses[number])
            for number, tensor in enumerate(self.graph.tensors)
            if tensor.input is not None or tensor.constant is not None
        }
        for step in self.graph.steps:
            operands = {name: known[n] for name, n in step.tensors.items() if name != "y" and n in known}
            to = step.tensors["y"]
            tensor = self.graph.tensors[to]
            known[to] = STEPS[step.kind](step, operands, tensor)
            assert known[to].shape == tensor.shape, (step, known[to].shape)
            if tensor.output is not None:
                _memory(self.library.device, tensor, addresses[to])[...] = known[to]


def _memory(device: SimulatedDriver, tensor: DnnTensor, address: int) -> np.ndarray:
    dtype = numpy_dtype(tensor.dtype)
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True))
    flat = device.bytes_at(address, (last + 1) * dtype.itemsize).view(dtype)
    strides = [step * dtype.itemsize for step in tensor.strides]
    return np.lib.stride_tricks.as_strided(flat, tensor.shape, strides)


def _read(device: SimulatedDriver, tensor: DnnTensor, address: int) -> np.ndarray:
    if tensor.constant is not None:
        return np.full(tensor.shape, ctypes.c_float.from_address(address).value)
    return _memory(device, tensor, address).astype(np.float64)


def _places(step: DnnStep, kernel: tuple[int, ...], made: tuple[int, ...]) -> Iterator[Any]:
    """For each place of a window: where it is in the window, and what of the padded input it meets."""
    strides = step.numbers["strides"]
    dilations = step.numbers.get("dilations", (1,) * len(strides))
    for at in itertools.product(*map(range, kernel)):
        yield (
            at,
            tuple(
                slice(a * d, a * d + (n - 1) * s + 1, s)
                for a, d, s, n in zip(at, dilations, strides, made, strict=True)
            ),
        )


def _padded(step: DnnStep, x: np.ndarray, value: float) -> np.ndarray:
    edges = [(0, 0), (0, 0), *zip(step.numbers["before"], step.numbers["after"], strict=True)]
    return np.pad(x, edges, constant_values=value)


def _convolution(step: DnnStep, of: Arrays, tensor: DnnTensor) -> np.ndarray:
    x, w = _padded(step, of["x"], 0), of["w"]
    made, groups = np.zeros(tensor.shape), of["x"].shape[1] // w.shape[1]
    mine, theirs = w.shape[0] // groups, w.shape[1]
    for at, place in _places(step, w.shape[2:], tensor.shape[2:]):
        for group in range(groups):
            read = x[(slice(None), slice(group * theirs, (group + 1) * theirs), *place)]
            weights = w[(slice(group * mine, (group + 1) * mine), slice(None), *at)]
            made[:, group * mine : (group + 1) * mine] += np.einsum("nc...,kc->nk...", read, weights)
    return made


def _transposed(step: DnnStep, of: Arrays, tensor: DnnTensor) -> np.ndarray:
    x, w = of["x"], of["w"]
    whole = _padded(step, np.zeros(tensor.shape), 0)
    groups = tensor.shape[1] // w.shape[1]
    mine, theirs = w.shape[1], x.shape[1] // groups
    for at, place in _places(step, w.shape[2:], x.shape[2:]):
        for group in range(groups):
            rows = slice(group * theirs, (group + 1) * theirs)
            weights = w[(rows, slice(None), *at)]
            to = (slice(None), slice(group * mine, (group + 1) * mine), *place)
            whole[to] += np.einsum("nc...,ck->nk...", x[:, rows], weights)
    inner = [
        slice(before, size - after)
        for before, after, size in zip(
            step.numbers["before"], step.numbers["after"], whole.shape[2:], strict=True
        )
    ]
    return whole[(slice(None), slice(None), *inner)]


def _pooling(step: DnnStep, of: Arrays, tensor: DnnTensor) -> np.ndarray:
    mode, window = step.numbers["mode"], step.numbers["window"]
    x = _padded(step, of["x"], -np.inf if mode == "maximum" else 0)
    there = _padded(step, np.ones(of["x"].shape), 0)
    taken, counts = [], []
    for _, place in _places(step, window, tensor.shape[2:]):
        taken.append(x[(slice(None), slice(None), *place)])
        counts.append(there[(slice(None), slice(None), *place)])
    if mode == "maximum":
        return np.max(taken, axis=0)
    return np.sum(taken, axis=0) / (np.sum(counts, axis=0) if "there" in mode else math.prod(window))


def _norm(step: DnnStep, of: Arrays, tensor: DnnTensor) -> np.ndarray:
    x = of["x"]
    if step.numbers["of"] == "layer":
        x = x - x.mean(axis=(1, 2, 3), keepdims=True)
    made = x / np.sqrt((x * x).mean(axis=(1, 2, 3), keepdims=True) + of["epsilon"]) * of["scale"]
    return made + of["bias"] if "bias" in of else made


def _product(step: DnnStep, of: Arrays, tensor: DnnTensor) -> np.ndarray:
    return of["a"] @ of["b"]


def _attention(step: DnnStep, of: Arrays, tensor: DnnTensor) -> np.ndarray:
    repeats = of["q"].shape[1] // of["k"].shape[1]
    k, v = (np.repeat(of[name], repeats, axis=1) for name in "kv")
    scores = of["q"] @ k.swapaxes(2, 3) * of["scale"]
    if "scores" in step.tensors:
        rows, columns = np.indices(scores.shape[2:])
        scores = np.where(rows >= columns, scores, of["hidden"])
    shares = np.exp(scores - scores.max(axis=3, keepdims=True))
    return shares / shares.sum(axis=3, keepdims=True) @ v


def _pointwise(step: DnnStep, of: Arrays, tensor: DnnTensor) -> np.ndarray:
    numbers: Mapping[str, Any] = step.numbers
    x, b = of["x"], of.get("b", np.zeros(()))
    erf = np.vectorize(math.erf)
    mode = numbers["mode"]
    if mode == "RELU_FWD":
        lower, upper = numbers.get("lower", 0.0), numbers.get("upper", np.inf)
        made = np.where(x < lower, lower + numbers.get("slope", 0.0) * (x - lower), np.minimum(x, upper))
    else:
        made = {
            "ABS": lambda: np.abs(x),
            "ADD": lambda: x + b,
            "DIV": lambda: x / b,
            "ELU_FWD": lambda: np.where(x < 0, numbers["elu"] * np.expm1(x), x),
            "ERF": lambda: erf(x),
            "EXP": lambda: np.exp(x),
            "GELU_FWD": lambda: 0.5 * x * (1 + erf(x / math.sqrt(2))),
            "GELU_APPROX_TANH_FWD": lambda: (
                0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
            ),
            "MAX": lambda: np.maximum(x, b),
            "MIN": lambda: np.minimum(x, b),
            "MUL": lambda: x * b,
            "NEG": lambda: -x,
            "SIGMOID_FWD": lambda: 1 / (1 + np.exp(-x)),
            "SOFTPLUS_FWD": lambda: np.log1p(np.exp(x)),
            "SQRT": lambda: np.sqrt(x),
            "SUB": lambda: x - b,
            "TANH_FWD": lambda: np.tanh(x),
        }[mode]()
    return np.broadcast_to(made, tensor.shape)


STEPS: Mapping[str, Callable[[DnnStep, Arrays, DnnTensor], np.ndarray]] = {
    "attention": _attention,
    "convolution": _convolution,
    "norm": _norm,
    "pointwise": _pointwise,
    "pooling": _pooling,
    "product": _product,
    "transposed": _transposed,
}
