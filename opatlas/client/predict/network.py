"""A small network that predicts the next operators from descriptions of the last ones.

Each operator is a row of numbers (:func:`features`). The network maps it to a row that describes the
operators *after* it. A candidate has a row of its own; its score is the product of the two, summed over the
last few operators with nearer ones counting more. Candidates are operators that the service knows; their rows
are in its file. The file is an ONNX model of products and Relu only, run by ONNX Runtime if installed, else
by NumPy.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opatlas.errors import LoadError

FORMAT = 1
"""The format of the file and of features; any other is refused."""
MOST_BYTES = 16 << 20
MOST_OPERATORS, MOST_WIDTH, MOST_LAYERS = 20_000, 1024, 64
_KEY = re.compile(r"o1:[0-9a-f]{64}")

_TYPES, _DTYPES, _SIZES, _TENSORS = 64, 8, 96, 4  # buckets; inputs, the last of them an output
_ATTRS = ("kernel_shape", "strides", "pads", "dilations", "group", "axis", "transA", "transB", "keepdims")
_PER_TENSOR = 8
WIDTH = _TYPES + _DTYPES + _TENSORS * _PER_TENSOR + len(_ATTRS) + _SIZES

Embed = Callable[[np.ndarray], np.ndarray]
Layer = tuple[np.ndarray, np.ndarray] | None
"""Weights (from, to) and bias of a product; None: a Relu."""


def features(graph: Mapping[str, Any]) -> np.ndarray:
    """A canonical operator's JSON as ``WIDTH`` float32 numbers: op types, dtype, sizes (logarithms, and exact
    ones), constants, and relevant attributes."""
    row = np.zeros(WIDTH, np.float32)
    types, dtypes, rest, sizes = np.split(
        row, np.cumsum([_TYPES, _DTYPES, WIDTH - _TYPES - _DTYPES - _SIZES])
    )
    values = [*graph["inputs"], *graph["produced"]]
    read = [value for value in graph["inputs"] if value.get("data") is None][: _TENSORS - 1]
    made = values[graph["outputs"][0]]
    for node in graph["nodes"]:
        types[_bucket(node["op"], _TYPES)] += 1
        for number, name in enumerate(_ATTRS, _TENSORS * _PER_TENSOR):
            rest[number] += _size_of(node["attrs"].get(name, 0))
    dtypes[_bucket((read or [made])[0]["dtype"], _DTYPES)] = 1
    for number, value in [*enumerate(read), (_TENSORS - 1, made)]:
        shape = value["shape"]
        logs = [math.log2(max(1, size)) / 4 for size in shape]
        about = [1, value["role"] == "const", len(shape) / 4, sum(logs) / 2, *logs[: _PER_TENSOR - 4]]
        rest[number * _PER_TENSOR :][: len(about)] = about
        for size in shape:
            sizes[_bucket(str(size), _SIZES)] = 1
    return row


def _bucket(text: str, count: int) -> int:
    return zlib.crc32(text.encode()) % count


def _size_of(value: Any) -> float:
    numbers = value if isinstance(value, list | tuple) else [value]
    plain = [one for one in numbers if isinstance(one, int | float) and math.isfinite(one)]
    return sum(math.copysign(math.log2(1 + abs(one)), one) for one in plain) / 4


@dataclass(frozen=True)
class OperatorNetwork:
    """A loaded network: ``after`` and ``candidates`` have a row for each of ``keys``, ``decay`` a number for
    each of the last operators, ``position`` a row by the logarithm of how many were asked for. ``embed``
    gives rows of ``after`` for features of other operators."""

    keys: tuple[str, ...]
    after: np.ndarray
    candidates: np.ndarray
    decay: np.ndarray
    position: np.ndarray
    embed: Embed
    places: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, data: bytes, *, plain: bool = False) -> OperatorNetwork:
        """From a file's bytes; ``plain``: with NumPy although ONNX Runtime is installed. The file is not
        trusted: raises :class:`opatlas.errors.LoadError` for anything unexpected."""
        if len(data) > MOST_BYTES:
            raise LoadError(f"the network has more than {MOST_BYTES >> 20} MiB")
        try:
            layers, tables, keys = _parsed(data)
        except LoadError:
            raise
        except Exception as error:  # whatever a parser says of bytes that are none of ours
            raise LoadError(f"the network cannot be read: {error!r}") from error
        embed = None if plain else _by_onnxruntime(data)
        places = {key: number for number, key in enumerate(keys)}
        return cls(keys, **tables, embed=embed or _by_numpy(layers), places=places)

    def likeliest(self, last: Sequence[np.ndarray], asked: int, most: int) -> list[str]:
        """Keys of the likeliest next operators, the likeliest first. ``last``: rows of ``after``, the latest
        operator first; ``asked``: how many were asked for so far."""
        context = self.position[min(int(math.log2(1 + asked)), len(self.position) - 1)].copy()
        for weight, row in zip(self.decay, last, strict=False):
            context += weight * row
        scores = self.candidates @ context
        most = min(most, len(scores))
        best = np.argpartition(-scores, most - 1)[:most]
        return [self.keys[number] for number in best[np.argsort(-scores[best], kind="stable")]]


def _parsed(
    data: bytes,
) -> tuple[list[tuple[np.ndarray, np.ndarray] | None], dict[str, Any], tuple[str, ...]]:
    """(layers, None standing for a Relu; tables; keys)."""
    import onnx

    model = onnx.ModelProto.FromString(data)
    said = {item.key: item.value for item in model.metadata_props}
    if said.get("opatlas") != str(FORMAT):
        raise LoadError(f"the network is of the format {said.get('opatlas')!r}; this client reads {FORMAT}")
    graph = model.graph
    if len(graph.node) > MOST_LAYERS:
        raise LoadError(f"the network has more than {MOST_LAYERS} layers")
    arrays = {one.name: _array(one) for one in graph.initializer}
    layers: list[Layer] = []
    name, width = "features", WIDTH
    for node in graph.node:
        weights = [arrays.pop(one) for one in node.input[1:]]
        fits = node.input[0] == name and not node.attribute and not node.domain and len(node.output) == 1
        if fits and node.op_type == "Relu" and not weights:
            layers.append(None)
        elif fits and node.op_type == "Gemm" and [one.ndim for one in weights] == [2, 1]:
            left, width = weights[0].shape if weights[0].shape[0] == width else (0, 0)
            if not left or weights[1].shape != (width,) or width > MOST_WIDTH:
                raise LoadError("the network's layers do not fit each other")
            layers.append((weights[0], weights[1]))
        else:
            raise LoadError(f"the network has a node that none has: {node.op_type[:40]}")
        name = node.output[0]
    if [one.name for one in graph.input] != ["features"] or [one.name for one in graph.output] != [name]:
        raise LoadError("the network has other inputs and outputs than a network has")
    keys = tuple(json.loads(said["operators"]))
    shapes = {"after": (len(keys), width), "candidates": (len(keys), width)}
    fit = arrays.keys() == {*shapes, "decay", "position"} and all(
        arrays[one].shape == shape for one, shape in shapes.items()
    )
    if not (fit and 0 < len(keys) <= MOST_OPERATORS and len(set(keys)) == len(keys)):
        raise LoadError("the network's tables do not fit each other")
    if not all(isinstance(key, str) and _KEY.fullmatch(key) for key in keys):
        raise LoadError("the network names something that is no operator")
    if arrays["decay"].ndim != 1 or arrays["position"].ndim != 2 or arrays["position"].shape[1] != width:
        raise LoadError("the network's tables do not fit each other")
    return layers, arrays, keys


def _array(tensor: Any) -> np.ndarray:
    """An initializer in the file itself: float32, finite."""
    shape = tuple(tensor.dims)
    if tensor.data_location or tensor.external_data or tensor.data_type != 1:
        raise LoadError("the network has a table that is not float32 in the file itself")
    if any(size <= 0 for size in shape) or len(tensor.raw_data) != 4 * math.prod(shape):
        raise LoadError("the network has a table of another size than it says")
    array = np.frombuffer(tensor.raw_data, np.dtype("<f4")).reshape(shape)
    if not np.isfinite(array).all():
        raise LoadError("the network has a number that is none")
    return array


def _by_onnxruntime(data: bytes) -> Embed | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # beside the job, not in its place
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception:  # one that does not know the opset: NumPy does
        return None
    return lambda rows: session.run(None, {"features": rows})[0]


def _by_numpy(layers: Sequence[Layer]) -> Embed:
    def run(rows: np.ndarray) -> np.ndarray:
        for layer in layers:
            rows = np.maximum(rows, 0) if layer is None else rows @ layer[0] + layer[1]
        return rows

    return run
