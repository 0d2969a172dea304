"""ONNX Runtime (MLAS): the operator as a one-operator model."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Operator, Setting
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
