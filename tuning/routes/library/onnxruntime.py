"""ONNX Runtime (MLAS): the operator as a one-operator model."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Operator, Setting
from tuning.routes.base import Answer, No, Yes
from tuning.routes.library.recipes import Recipe, RecipeRoute

DTYPES = frozenset(
    (
        *("float16", "float32", "float64", "bfloat16", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)
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
        return Yes()

    def variants(self, operator: Operator, setting: Setting) -> Iterator[tuple[Recipe, str]]:
        session = {"library": "onnxruntime", "call": "session"}
        yield {**session, "graph_optimization": "all"}, "optimised"
        if len(operator.nodes) > 1 or LAYOUT_OPERATORS & set(operator.op_types):
            yield {**session, "graph_optimization": "disabled"}, "graph as it is"
        if operator.constant_inputs:
            # Prepacking does not always pay.
            yield (
                {**session, "graph_optimization": "disabled", "constants": "inputs"},
                "constants passed as inputs",
            )
