"""A model without a plan: every node by itself, by what the catalogue knows of its operator."""

from __future__ import annotations

from collections.abc import Mapping

from opatlas.graph.linked import NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.plan.making import DEFAULT, NodeChoice, needed_nodes
from opatlas.plan.plan import InvalidPlan, ModelPlan, PlanStep


def one_by_one(graph: ModelGraph, kernels: Mapping[NodeAt, NodeChoice], place: tuple[str, str]) -> ModelPlan:
    """Each node as a step: by its kernel, or else by ONNX Runtime, alone. ``kernels``: those that take less
    than ONNX Runtime does. Raises :class:`InvalidPlan` where only a run knows what goes from one node to
    another."""
    steps = []
    for number in needed_nodes(graph):
        node = graph.nodes[number]
        if late := [one for one in node.reads if not graph.is_constant(one) and not graph.can_begin_at(one)]:
            raise InvalidPlan(f"The type of '{graph.names[late[0]]}' is not known before the model runs.")
        chosen = kernels.get(number)
        outputs = tuple(value for value in node.outputs if value >= 0)
        us = chosen.median_us if chosen else None
        steps.append(PlanStep((number,), outputs, chosen.by if chosen else DEFAULT, us))
    return ModelPlan(graph.key, *place, tuple(steps))
