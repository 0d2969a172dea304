"""Who may run a model, by what is known of the frameworks' semantics: a framework takes part if no node of
the model can meet what it is known to compute otherwise than ONNX Runtime. PURE."""

from __future__ import annotations

from collections.abc import Callable, Collection

from opatlas.graph.input_uses import input_uses
from opatlas.graph.normal import GraphNode, ModelGraph
from opatlas.identity.dtypes import NAMES
from opatlas.plan.semantics.ranges import met_by_nodes
from opatlas.plan.semantics.table import Difference, Table, element_of, known_table

Met = Callable[[int], Collection[str]]


class Admission:
    """Of one model: asked for several frameworks, its values are bounded once."""

    def __init__(self, graph: ModelGraph, table: Table | None = None) -> None:
        self._graph, self._table = graph, table or known_table()
        self._met = met_by_nodes(graph, input_uses(graph))

    def why_not(self, framework: str, nodes: Collection[int] | None = None) -> str:
        """Why the framework is not given these nodes (all), as a sentence without its end; empty where nothing is
        known against it."""
        for number, node in enumerate(self._graph.nodes):
            if nodes is not None and number not in nodes:
                continue
            if found := self._against(framework, self._graph, node, self._met[number]):
                return found
            for body in node.bodies:
                if found := self._against_body(framework, body.graph):
                    return found
        return ""

    def _against_body(self, framework: str, graph: ModelGraph) -> str:
        met = met_by_nodes(graph, None)
        for number, node in enumerate(graph.nodes):
            if found := self._against(framework, graph, node, met[number]):
                return found
            for body in node.bodies:
                if found := self._against_body(framework, body.graph):
                    return found
        return ""

    def _against(self, framework: str, graph: ModelGraph, node: GraphNode, met: Collection[str]) -> str:
        proto = node.proto
        inputs = [_name(graph, one) for one in node.inputs]
        element = element_of(proto.op_type, inputs, _name(graph, node.outputs[0]) if node.outputs else "")
        for one in self._table.of(framework, proto.op_type, element):
            if one.aspect in met and one.holds_for(proto):
                return _said(one, proto.op_type, element)
        return ""


def _said(difference: Difference, op_type: str, element: str) -> str:
    kinds = element.replace(">", " to ")
    shown = f" ({difference.shown})" if difference.shown else ""
    return f"it is known to differ from ONNX Runtime in {op_type} of {kinds}, which {difference.why}{shown}"


def _name(graph: ModelGraph, number: int) -> str:
    proto = graph.proto_of(graph.names[number]) if number >= 0 else None
    return NAMES.get(proto.tensor_type.elem_type, "") if proto is not None else ""
