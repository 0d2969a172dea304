"""ONNX Runtime (MLAS): the operator as a one-operator model."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Node, Operator, Setting
from opatlas.identity.operator_types import types_with
from opatlas.load.storage import storage_of
from tuning.routes.base import Answer, No, Yes
from tuning.routes.library.recipes import Recipe, RecipeRoute

DTYPES = frozenset(
    (
        *("float16", "float32", "float64", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)
NO_FLOAT64 = types_with("ort-single")

LAYOUT_OPERATORS = frozenset(("Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
"""Where the highest optimisation level changes even a single node: it may choose the blocked NCHWc layout."""


_WINDOWS = frozenset(("BlackmanWindow", "HammingWindow", "HannWindow"))
_RECURRENT = frozenset(("GRU", "LSTM", "RNN"))


def _limit(operator: Operator, node: Node) -> str | None:
    """What ONNX Runtime is known to get wrong or not to have (tried with 1.31); None where nothing is."""
    if node.op in ("DFT", "STFT"):
        length = _transform_length(operator, node)
        if length & (length - 1):
            return (
                f"ONNX Runtime's {node.op} is exact only for lengths that are powers of two, not for {length}"
                f" (of other lengths its angles are rounded: 0.06 % are lost at 1,000)"
            )
    if node.op in _RECURRENT and "Softplus" in node.attributes.get("activations", ()):
        return f"ONNX Runtime's Softplus within {node.op} is infinite for arguments above 88"
    if node.op in (*_RECURRENT, "MaxUnpool", "MaxRoiPool", "GlobalLpPool"):
        dtype = operator.value(node.inputs[0]).dtype
        return None if dtype == "float32" else f"ONNX Runtime has no {dtype} {node.op}"
    if node.op in _WINDOWS and operator.value(node.outputs[0]).dtype == "float16":
        return f"ONNX Runtime has no float16 {node.op}"
    return None


def _transform_length(operator: Operator, node: Node) -> int:
    """The length of the transforms that a DFT or an STFT makes."""
    said = 1 if node.op == "DFT" else 3
    if len(node.inputs) > said and node.inputs[said] >= 0:
        return int((operator.value(node.inputs[said]).data or (1,))[0])
    if node.op == "STFT":
        windowed = len(node.inputs) > 2 and node.inputs[2] >= 0
        return (
            operator.value(node.inputs[2]).shape[0] if windowed else operator.value(node.inputs[0]).shape[1]
        )
    axis = int((operator.value(node.inputs[2]).data or (1,))[0])
    given = operator.value(node.inputs[0]).shape[axis]
    both = node.attributes.get("inverse") and node.attributes.get("onesided")
    return 2 * (given - 1) if both else given


class OnnxRuntime(RecipeRoute):
    """Sessions that differ in graph optimisation and in how constants reach them."""

    name = "onnxruntime"
    distributions: tuple[str, ...] = ("onnxruntime",)
    preload: tuple[str, ...] = ("onnxruntime", "onnx")

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        for value in (*operator.inputs, *operator.produced):
            if value.dtype not in DTYPES:
                return No(f"ONNX Runtime's CPU kernels have no {value.dtype}")
        for node in operator.nodes:
            if reason := _limit(operator, node):
                return No(reason)
            if node.op in NO_FLOAT64 and operator.value(node.outputs[0]).dtype == "float64":
                return No(f"ONNX Runtime has no float64 kernel for {node.op}")
        return Yes()

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        session: Recipe = {"library": "onnxruntime", "call": "session"}
        several, blocked = len(operator.nodes) > 1, bool(LAYOUT_OPERATORS & set(operator.op_types))
        if _turned(operator):
            turned: Recipe = {**session, "strided": "turned"}
            yield {**turned, "graph_optimization": "all"}, "strided inputs turned inside, optimised"
            yield {**turned, "graph_optimization": "disabled"}, "strided inputs turned inside"
        yield {**session, "graph_optimization": "all"}, "optimised"
        if several and blocked:
            yield {**session, "graph_optimization": "extended"}, "optimised, plain layout"
        if several or blocked:
            yield {**session, "graph_optimization": "disabled"}, "graph as it is"
        if several and operator.constant_inputs:
            yield (
                {**session, "graph_optimization": "all", "prepacking": False},
                "optimised, not prepacked",
            )
        if operator.constant_inputs:
            # Prepacking does not always pay.
            yield (
                {**session, "graph_optimization": "disabled", "constants": "inputs"},
                "constants passed as inputs",
            )
        if _branches(operator) and setting.threads > 1:
            yield {**session, "graph_optimization": "all", "execution": "parallel"}, "branches side by side"


def _turned(operator: Operator) -> bool:
    """Whether a runtime input lies transposed in memory."""
    return any(storage_of(operator.inputs[number]).form == "turned" for number in operator.runtime_inputs)


def _branches(operator: Operator) -> bool:
    """Whether two nodes need nothing of each other."""
    after: list[set[int]] = []
    for position, node in enumerate(operator.nodes):
        before: set[int] = set()
        for earlier in range(position):
            if set(operator.nodes[earlier].outputs) & set(node.inputs):
                before |= {earlier} | after[earlier]
        after.append(before)
    return any(len(before) < position for position, before in enumerate(after))
