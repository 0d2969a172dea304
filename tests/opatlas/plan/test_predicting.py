"""What a plan is said to take: of what it is made, and where nothing is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import helper

from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import MIB
from opatlas.graph.structure import StructureNode
from opatlas.plan import predicting
from opatlas.plan.borders import Borders
from opatlas.plan.plan import ByBodies, ByFramework, ByKernel, ModelPlan, PlanStep
from opatlas.plan.predicting import CALL_US, Costs, costs, predicted
from opatlas.plan.profiling import node_times
from tests.opatlas.plan.test_executor import chain
from tests.tuning.graph.making import model

KERNEL = PlanStep((0,), (1,), ByKernel("o1:x", "0" * 64, (0,)), 12.0)
REGION = PlanStep((1, 2), (3,), ByFramework("openvino"))
LINKED = [StructureNode("Conv", "", (at,), (at + 1,)) for at in range(3)]
KNOWN = Costs(
    {1: 30.0, 2: 5.0}, region_us={"sleeping": 4.0, "resting": 3.0, "one": 1.0}, call_us=CALL_US, run_us=2.0,
    us_per_mib=100.0, borders=Borders(LINKED, {1: MIB // 2}),
)  # fmt: skip


def plan(*steps: PlanStep) -> ModelPlan:
    return ModelPlan("m1:x", "t1:x", "s1:x", steps)


def test_a_plan_takes_its_kernels_its_regions_and_what_lies_between() -> None:
    found = predicted(plan(KERNEL, REGION), KNOWN)
    assert [step.predicted_us for step in found.steps] == [12.0 + CALL_US + 2.0, 30.0 + 5.0 + 4.0 + 50.0]
    assert found.predicted_us == pytest.approx(103.0 + CALL_US)
    assert predicted(plan(REGION, KERNEL), KNOWN).predicted_us == pytest.approx(103.0 + CALL_US)


@pytest.mark.parametrize("at", [0, 1])
def test_of_a_loop_with_kernels_nothing_is_said(at: int) -> None:
    steps = [KERNEL, KERNEL]
    steps[at] = replace(KERNEL, by=ByBodies(()))
    assert predicted(plan(*steps), KNOWN).predicted_us is None


def test_a_profile_is_brought_to_what_the_model_takes_without_a_profiler(monkeypatch: Any) -> None:
    monkeypatch.setattr(predicting, "handoff_us", lambda threads, threading="", size=1: 10.0)
    graph = ModelGraph(chain(2))
    found = costs(graph, {0: 30.0, 1: 90.0}, whole_us=70.0, copied_bytes=8, threads=1)
    assert found.nodes == {0: 15.0, 1: 45.0} and set(found.region_us.values()) == {10.0} and found.run_us > 0
    assert costs(graph, {}, whole_us=70.0, copied_bytes=0, threads=1).nodes == {}


def test_a_convolutions_time_is_its_own_however_onnx_runtime_lays_it_out() -> None:
    """In blocks, with what follows fused into it, it is called by what that makes."""
    random = np.random.default_rng(0)
    weights = {f"w{at}": random.standard_normal((32, 32, 3, 3)).astype(np.float32) for at in range(3)}
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], **same),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], **same),
        helper.make_node("Add", ["c", "b"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("Conv", ["e", "w2"], ["y"], **same),
    ]
    made = model(nodes, {"x": (1, 32, 28, 28)}, ["y"], weights)
    made.ir_version = 10
    graph = ModelGraph(made.SerializeToString())
    times = node_times(graph, {"x": np.ones((1, 32, 28, 28), np.float32)}, 1)
    assert min(times.get(at, 0.0) for at in (0, 2, 5)) > 0
    assert sum(times[at] for at in (0, 2, 5)) > 0.5 * sum(times.values())
