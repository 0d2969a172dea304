"""A stand-in for NVIDIA's frontend to cuDNN: the methods of its graphs that are used, computed in NumPy over
a simulated device's memory, read by strides."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from opatlas.load.dtypes import numpy_dtype
from tests.opatlas.load.cuda.simulated import SimulatedDriver

ROUNDING = "TENSOR_CORE"
PLANS = (
    ("eng7_k2=1", {ROUNDING}),
    ("eng3", set()),
    ("eng7_k2=1", {ROUNDING}),  # another heuristic's, which is the first again
    ("eng3_k2=4", set()),
)
"""Name and notes: three in all, of which two are strict."""
DTYPES = {"FLOAT": "float32", "HALF": "float16", "BFLOAT16": "bfloat16"}

Value = Callable[[], np.ndarray]
Sizes = Sequence[int]
_erf = np.vectorize(math.erf)


def _named(*names: str) -> SimpleNamespace:
    return SimpleNamespace(**{name: name for name in names})


class SimulatedFrontend:
    """The module ``cudnn``. ``built``: numbers of plans; ``streams``: of what was launched."""

    data_type = _named(*DTYPES)
    heur_mode = _named("A", "B", "FALLBACK")
    numerical_note = _named(ROUNDING, "DOWN_CONVERT_INPUTS")
    norm_forward_phase = _named("INFERENCE")
    diagonal_alignment = _named("TOP_LEFT")

    def __init__(self, device: SimulatedDriver, workspace_bytes: int = 4096) -> None:
        self.device, self.workspace_bytes = device, workspace_bytes
        self.built: list[int] = []
        self.streams: list[int] = []
        self.stream = 0

    def create_handle(self) -> int:
        return 77

    def set_stream(self, handle: int, stream: int) -> None:
        assert handle == 77
        self.stream = stream

    def pygraph(self, **told: Any) -> SimulatedGraph:
        assert told.pop("handle") == 77
        assert set(told.values()) == {"FLOAT"}, "what is between is kept in float32"
        return SimulatedGraph(self)


class SimulatedTensor:
    """Given, or made by ``value``."""

    def __init__(self, uid: int, value: Value | None = None, **told: Any) -> None:
        self.uid, self.value, self.told, self.is_output = uid, value, told, False

    def set_dim(self, dim: Sizes) -> SimulatedTensor:
        self.told["dim"] = tuple(dim)
        return self

    def set_stride(self, stride: Sizes) -> SimulatedTensor:
        self.told["stride"] = tuple(stride)
        return self

    def set_data_type(self, data_type: str) -> SimulatedTensor:
        self.told["data_type"] = data_type
        return self

    def set_output(self, is_output: bool) -> SimulatedTensor:
        self.is_output = is_output
        return self

    def get_uid(self) -> int:
        return self.uid

    def at(self, device: SimulatedDriver, address: int) -> np.ndarray:
        if self.told.get("is_pass_by_value"):
            return np.full(self.told["dim"], ctypes.c_float.from_address(address).value)
        dtype, shape, steps = (
            numpy_dtype(DTYPES[self.told["data_type"]]),
            self.told["dim"],
            self.told["stride"],
        )
        last = sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
        flat = device.bytes_at(address, (last + 1) * dtype.itemsize).view(dtype)
        return np.lib.stride_tricks.as_strided(flat, shape, [step * dtype.itemsize for step in steps])


class SimulatedGraph:
    def __init__(self, frontend: SimulatedFrontend) -> None:
        self.frontend = frontend
        self.tensors: list[SimulatedTensor] = []
        self.deselected: set[str] = set()
        self.known: dict[int, np.ndarray] = {}
        self.steps: list[str] = []

    def tensor(self, **told: Any) -> SimulatedTensor:
        return self._kept(SimulatedTensor(100 + len(self.tensors), **told))

    def _kept(self, made: SimulatedTensor) -> SimulatedTensor:
        self.tensors.append(made)
        return made

    def _made(self, compute: Callable[..., np.ndarray], *of: SimulatedTensor) -> SimulatedTensor:
        made = SimulatedTensor(100 + len(self.tensors))
        made.value = lambda: compute(made.told["dim"], *(self.known[one.uid] for one in of))
        return self._kept(made)

    # Steps.

    def conv_fprop(self, image: Any, weight: Any, **window: Sizes) -> SimulatedTensor:
        return self._made(lambda dim, x, w: _convolution(window, x, w, dim), image, weight)

    def conv_dgrad(self, loss: Any, filter: Any, **window: Sizes) -> SimulatedTensor:
        return self._made(lambda dim, x, w: _transposed(window, x, w, dim), loss, filter)

    def matmul(self, a: Any, b: Any) -> SimulatedTensor:
        return self._made(lambda dim, a, b: a @ b, a, b)

    def layernorm(
        self, norm_forward_phase: str, input: Any, scale: Any, bias: Any, epsilon: Any
    ) -> list[Any]:
        def compute(dim: Sizes, x: Any, scale: Any, bias: Any, epsilon: Any) -> np.ndarray:
            x = x - x.mean(axis=(1, 2, 3), keepdims=True)
            return x / np.sqrt((x * x).mean(axis=(1, 2, 3), keepdims=True) + epsilon) * scale + bias

        assert norm_forward_phase == "INFERENCE"
        return [self._made(compute, input, scale, bias, epsilon), None, None]

    def rmsnorm(self, norm_forward_phase: str, input: Any, scale: Any, epsilon: Any) -> list[Any]:
        def compute(dim: Sizes, x: Any, scale: Any, epsilon: Any) -> np.ndarray:
            return x / np.sqrt((x * x).mean(axis=(1, 2, 3), keepdims=True) + epsilon) * scale

        assert norm_forward_phase == "INFERENCE"
        return [self._made(compute, input, scale, epsilon), None]

    def sdpa(self, q: Any, k: Any, v: Any, attn_scale: float, generate_stats: bool, **band: Any) -> list[Any]:
        def compute(dim: Sizes, q: Any, k: Any, v: Any) -> np.ndarray:
            k, v = (np.repeat(one, q.shape[1] // one.shape[1], axis=1) for one in (k, v))
            scores = q @ k.swapaxes(2, 3) * attn_scale
            if band:
                assert band == {"diagonal_alignment": "TOP_LEFT", "diagonal_band_right_bound": 0}
                rows, columns = np.indices(scores.shape[2:])
                scores = np.where(rows >= columns, scores, -np.inf)
            shares = np.exp(scores - scores.max(axis=3, keepdims=True))
            return shares / shares.sum(axis=3, keepdims=True) @ v

        assert not generate_stats
        return [self._made(compute, q, k, v), None]

    def relu(
        self, x: Any, negative_slope: float = 0.0, lower_clip: float = 0.0, upper_clip: float = np.inf
    ) -> SimulatedTensor:
        def compute(dim: Sizes, x: np.ndarray) -> np.ndarray:
            below = lower_clip + negative_slope * (x - lower_clip)
            return np.where(x < lower_clip, below, np.minimum(x, upper_clip))

        return self._made(compute, x)

    def __getattr__(self, name: str) -> Any:
        if name not in POINTWISE:
            raise AttributeError(name)
        return lambda *of: self._made(
            lambda dim, *values: np.broadcast_to(POINTWISE[name](*values), dim), *of
        )

    # Plans.

    def validate(self) -> None:
        self.steps.append("validate")

    def build_operation_graph(self) -> None:
        self.steps.append("build")

    def create_execution_plans(self, modes: Sequence[str]) -> None:
        assert (self.steps, modes) == (["validate", "build"], ["A", "B", "FALLBACK"])

    def deselect_numeric_notes(self, notes: Sequence[str]) -> None:
        self.deselected |= set(notes)

    def get_execution_plan_count(self) -> int:
        return len(PLANS)

    def get_plan_name_at_index(self, index: int) -> str:
        return PLANS[index][0]

    def build_plan_at_index(self, index: int) -> None:
        if PLANS[index][1] & self.deselected:
            raise ValueError("Deselecting execution plan")
        self.frontend.built.append(index)

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return self.frontend.workspace_bytes

    def execute_plan_at_index(
        self, addresses: Mapping[int, int], workspace: int, index: int, handle: int
    ) -> None:
        device = self.frontend.device
        assert handle == 77
        assert index in self.frontend.built
        told = {one.uid for one in self.tensors if one.value is None or one.is_output}
        assert set(addresses) == told, "what is not virtual has an address"
        if self.frontend.workspace_bytes:
            device.bytes_at(workspace, self.frontend.workspace_bytes)
            assert not device.broken
        self.frontend.streams.append(self.frontend.stream)
        device.waiting.append(lambda: self._run(device, addresses))

    def _run(self, device: SimulatedDriver, addresses: Mapping[int, int]) -> None:
        for one in self.tensors:
            if one.value is None:
                self.known[one.uid] = one.at(device, addresses[one.uid]).astype(np.float64)
                continue
            made = self.known[one.uid] = one.value()
            assert made.shape == one.told["dim"]
            if one.is_output:
                one.at(device, addresses[one.uid])[...] = made


def _places(window: Mapping[str, Sizes], kernel: Sizes, made: Sizes) -> Iterator[Any]:
    """For each place of a window: where it is in the window, and what of the padded input it meets."""
    for at in itertools.product(*map(range, kernel)):
        steps = zip(at, window["dilation"], window["stride"], made, strict=True)
        yield at, tuple(slice(a * d, a * d + (n - 1) * s + 1, s) for a, d, s, n in steps)


def _padded(window: Mapping[str, Sizes], x: np.ndarray) -> np.ndarray:
    return np.pad(x, [(0, 0), (0, 0), *zip(window["pre_padding"], window["post_padding"], strict=True)])


def _convolution(window: Mapping[str, Sizes], x: np.ndarray, w: np.ndarray, dim: Sizes) -> np.ndarray:
    groups, x = x.shape[1] // w.shape[1], _padded(window, x)
    made = np.zeros(dim)
    mine, theirs = w.shape[0] // groups, w.shape[1]
    for at, place in _places(window, w.shape[2:], dim[2:]):
        for group in range(groups):
            read = x[(slice(None), slice(group * theirs, (group + 1) * theirs), *place)]
            weights = w[(slice(group * mine, (group + 1) * mine), slice(None), *at)]
            made[:, group * mine : (group + 1) * mine] += np.einsum("nc...,kc->nk...", read, weights)
    return made


def _transposed(window: Mapping[str, Sizes], x: np.ndarray, w: np.ndarray, dim: Sizes) -> np.ndarray:
    whole = _padded(window, np.zeros(dim))
    groups = dim[1] // w.shape[1]
    mine, theirs = w.shape[1], x.shape[1] // groups
    for at, place in _places(window, w.shape[2:], x.shape[2:]):
        for group in range(groups):
            rows = slice(group * theirs, (group + 1) * theirs)
            weights = w[(rows, slice(None), *at)]
            to = (slice(None), slice(group * mine, (group + 1) * mine), *place)
            whole[to] += np.einsum("nc...,ck->nk...", x[:, rows], weights)
    edges = zip(window["pre_padding"], window["post_padding"], whole.shape[2:], strict=True)
    inner = [slice(before, size - after) for before, after, size in edges]
    return whole[(slice(None), slice(None), *inner)]


POINTWISE: Mapping[str, Callable[..., np.ndarray]] = {
    "abs": np.abs,
    "add": np.add,
    "div": np.divide,
    "elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "erf": _erf,
    "exp": np.exp,
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "gelu_approx_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "neg": np.negative,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "sqrt": np.sqrt,
    "sub": np.subtract,
    "tanh": np.tanh,
}
