"""A plan that would not compute its model is refused, whatever is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opatlas.graph.normal import ModelGraph
from opatlas.plan.checking import check_plan
from opatlas.plan.plan import InvalidPlan, ModelPlan
from tests.opatlas.plan.making import PLACE, Kernels, planned
from tests.opatlas.plan.test_executor import chain

Change = Callable[[dict[str, Any]], Any]


def document() -> tuple[ModelGraph, dict[str, Any]]:
    graph = ModelGraph(chain())
    return graph, planned(graph, Kernels(graph, [0, 3])).to_json()


def test_a_plan_comes_back_from_json_as_it_was() -> None:
    graph, plan = document()
    assert ModelPlan.from_json(plan).to_json() == plan
    check_plan(ModelPlan.from_json(plan), graph, *PLACE)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda plan: plan.update(plan=2), "version 2; version 1 is read"),
        (lambda plan: plan.update(steps=[]), "1 to 100000 steps, not 0"),
        (lambda plan: plan.update(model=5), "'model' must be text"),
        (lambda plan: plan["steps"][1].pop("by"), "Step 1 of the plan is incomplete"),
        (lambda plan: plan["steps"][1].update(nodes=[-1]), "Step 1 .* whole numbers from 0"),
        (lambda plan: plan["steps"][1].update(nodes=[True]), "whole numbers from 0"),
        (lambda plan: plan["steps"][0].update(predicted_us=-1), "a time in microseconds"),
        (lambda plan: plan["steps"][0].update(predicted_us=float("nan")), "a time in microseconds"),
        (lambda plan: plan["steps"][0]["by"].pop("tensors"), "'tensors' must be a list"),
        (lambda plan: plan["steps"][0].update(over=[{"said": 1}]), "'said' must be text"),
    ],
)
def test_what_is_no_plan_is_refused(change: Change, sentence: str) -> None:
    _, plan = document()
    change(plan)
    with pytest.raises(InvalidPlan, match=sentence):
        ModelPlan.from_json(plan)


@pytest.mark.parametrize("document", [None, [], "plan", 1])
def test_so_is_what_is_no_object(document: Any) -> None:
    with pytest.raises(InvalidPlan, match="a JSON object"):
        ModelPlan.from_json(document)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda plan: plan.update(model="m1:other"), "for the model m1:other, not for m1:"),
        (lambda plan: plan.update(target="t1:there"), "for the target t1:there"),
        (lambda plan: plan.update(setting="s1:other"), "for the setting s1:other"),
        (lambda plan: plan["steps"].reverse(), "Step 0 of the plan reads 'v4' before it is made"),
        (lambda plan: plan["steps"].pop(), "never makes the model's output 'v6'"),
        (lambda plan: plan["steps"].append(plan["steps"][0]), "runs a node that has run before"),
        (lambda plan: plan["steps"][1].update(nodes=[1, 1, 2]), "runs a node that has run before"),
        (lambda plan: plan["steps"][1].update(nodes=[1, 99]), "nodes that the model does not have"),
        (lambda plan: plan["steps"][1].update(nodes=[]), "nodes that the model does not have"),
        (lambda plan: plan["steps"][1].update(outputs=[]), "values that its nodes do not make"),
        (lambda plan: plan["steps"][1].update(outputs=[0]), "values that its nodes do not make"),
        (lambda plan: plan["steps"][1].update(by={"framework": "tensorflow"}), "left to 'tensorflow'"),
        (lambda plan: plan["steps"][0]["by"].update(operator="o1:" + "0" * 64), "of another operator"),
        (lambda plan: plan["steps"][0]["by"].update(tensors=[3]), "of another operator"),
        (lambda plan: plan["steps"][1].update(by=plan["steps"][0]["by"]), "of another operator"),
    ],
)  # fmt: skip
def test_a_plan_that_computes_something_else_is_refused(change: Change, sentence: str) -> None:
    graph, plan = document()
    change(plan)
    with pytest.raises(InvalidPlan, match=sentence):
        check_plan(ModelPlan.from_json(plan), graph, *PLACE)
