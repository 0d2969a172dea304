"""Which frameworks may run a model: those that compute every value that its nodes can meet as ONNX Runtime
does. PURE."""

from __future__ import annotations

from opatlas.graph.normal import GraphNode, ModelGraph
from opatlas.graph.walk import CONTROL
from opatlas.plan.plan import FRAMEWORKS
from opatlas.plan.semantics.intervals import NAN
from opatlas.plan.semantics.ranges import ValueRanges, element_in, of_body, of_model
from opatlas.plan.semantics.table import KnownDifference, SemanticsTable, element_of, known_table

OTHERS = FRAMEWORKS[1:]


class Admission:
    """The admission of frameworks to one model; its values are bounded once for all of them."""

    def __init__(self, graph: ModelGraph, table: SemanticsTable | None = None) -> None:
        self._graph, self._table = graph, table or known_table()
        self._bounded = of_model(graph)

    def why_not(self, framework: str) -> str:
        """Why the framework does not run the model or part of it, as a sentence without its end; empty if it
        may."""
        return self._why_not(framework, self._graph, self._bounded)

    def _why_not(self, framework: str, graph: ModelGraph, known: ValueRanges) -> str:
        for node, met in zip(graph.nodes, known.met, strict=True):
            if node.proto.op_type in CONTROL:
                if not node.bodies:
                    return f"nobody can say what the body of {node.proto.op_type} meets"
            elif rows := [row for row in self._rows(framework, graph, node) if row.aspect in met]:
                return _said(rows[0], node.proto.op_type)
            for body in node.bodies:
                if found := self._why_not(framework, body.graph, of_body(node, body, known)):
                    return found
        return ""

    def may_drop_nan(self, number: int) -> bool:
        """Whether a node can meet NaN and some framework loses NaN in such nodes. A kernel's author may not
        have thought of it either, and kernels are not tested with NaN."""
        node = self._graph.nodes[number]
        return NAN in self._bounded.met[number] and any(
            one.aspect == NAN for framework in OTHERS for one in self._rows(framework, self._graph, node)
        )

    def _rows(self, framework: str, graph: ModelGraph, node: GraphNode) -> list[KnownDifference]:
        proto = node.proto
        inputs = [element_in(graph, one) for one in node.inputs]
        element = element_of(
            proto.op_type, inputs, element_in(graph, node.outputs[0]) if node.outputs else ""
        )
        known = proto.op_type if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{proto.op_type}"
        return [one for one in self._table.of(framework, known, element) if one.holds_for(proto)]


def _said(difference: KnownDifference, op_type: str) -> str:
    kinds = difference.element.replace(">", " to ")
    shown = f" ({difference.shown})" if difference.shown else ""
    return f"it is known to differ from ONNX Runtime in {op_type} of {kinds}, which {difference.why}{shown}"
