"""A model made simpler by ONNX Runtime's own first optimisations, before anything is planned of it. PURE.

Constants are folded, a BatchNormalization goes into the convolution before it, paddings and transposes that
cancel and what nobody reads are gone. ONNX Runtime's *basic* level does exactly that and stays within ONNX's
own operators; as it is what every session of ONNX Runtime begins with, the result is no other model to it.
Weights change, so this is done where the weights are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import onnx

from opatlas.errors import OpatlasError, first_line
from opatlas.graph.read import reads_of
from opatlas.graph.weights import MOST_SERIALISED, weight_bytes

LEFT_TO_PLANS = ["MatMulAddFusion"]
"""Of ONNX Runtime's basic optimisations those that fuse and simplify nothing: a sum after a product becomes a
``Gemm`` between two ``Reshape``. What is fused is decided by measured times."""
M = TypeVar("M", onnx.NodeProto, onnx.TensorProto)
ONNX_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})


class NotSimplified(OpatlasError):
    """A model that stays as it is: one sentence why."""


def simplified(model: onnx.ModelProto, dims: Mapping[str, int] | None = None) -> onnx.ModelProto:
    """A simpler model of the same inputs and outputs; ``dims`` gives symbolic dimensions their sizes. What it
    computes differs by rounding alone, which whoever runs it has to see (weights are multiplied before).

    Raises :class:`NotSimplified`.
    """
    if weight_bytes(model) >= MOST_SERIALISED:
        raise NotSimplified("The model has more weights than one file of ONNX can hold.")
    with tempfile.TemporaryDirectory(prefix="opatlas-simplify-") as folder:
        path = Path(folder) / "model.onnx"
        _write(model, dims or {}, path)
        made = onnx.load(path)
    if foreign := sorted(_domains(model, made)):
        raise NotSimplified(f"ONNX Runtime would put operators of {', '.join(foreign)} into the model.")
    _drop_unread(made.graph)
    _drop_unused_opsets(made)
    return made


def _write(model: onnx.ModelProto, dims: Mapping[str, int], path: Path) -> None:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    for name, size in dims.items():
        options.add_free_dimension_override_by_name(name, size)
    try:
        ort.InferenceSession(
            model.SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=LEFT_TO_PLANS,
        )
    except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
        raise NotSimplified(f"ONNX Runtime cannot simplify the model: {first_line(error)}") from error


def _domains(before: onnx.ModelProto, after: onnx.ModelProto) -> set[str]:
    """Of operators that are new and no ONNX's."""
    return _used(after) - _used(before) - ONNX_DOMAINS


def _used(model: onnx.ModelProto) -> set[str]:
    found, waiting = set[str](), [model.graph]
    while waiting:
        for node in waiting.pop().node:
            found.add(node.domain)
            for attribute in node.attribute:
                waiting += [attribute.g] if attribute.HasField("g") else attribute.graphs
    return found


def _drop_unread(graph: onnx.GraphProto) -> None:
    """Nodes that make nothing which is read: ONNX Runtime skips them and writes them down all the same."""
    wanted, kept = {one.name for one in graph.output}, list[onnx.NodeProto]()
    for node in reversed(graph.node):
        if not wanted.isdisjoint(node.output):
            wanted |= reads_of(node)
            kept.append(node)
    if len(kept) == len(graph.node):
        return
    # Copies first: clearing a repeated field frees what it held.
    nodes = [_copy(node) for node in reversed(kept)]
    weights = [_copy(tensor) for tensor in graph.initializer if tensor.name in wanted]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(weights)


def _copy(message: M) -> M:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _drop_unused_opsets(model: onnx.ModelProto) -> None:
    """ONNX Runtime writes all that it knows, so a model's key would be another with its next version."""
    used = _used(model) | {one.domain for function in model.functions for one in function.opset_import} | {""}
    kept = [onnx.OperatorSetIdProto(domain=one.domain, version=one.version) for one in model.opset_import]
    del model.opset_import[:]
    model.opset_import.extend(one for one in kept if one.domain in used)
