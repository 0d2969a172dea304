"""Kernels of several nodes in a plan: made, checked, run by compiled code, and left to the default where they
fail or are revoked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from opatlas.errors import LoadError
from opatlas.graph.fused import operator_of
from opatlas.graph.linked import LEFT_OUT, NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.plan.checking import check_plan
from opatlas.plan.executor import Executor
from opatlas.plan.making import NodeChoice, with_kernels
from opatlas.plan.plan import ByFramework, ByKernel, InvalidPlan, ModelPlan
from opatlas.session.given_plan import fused_operators
from tests.opatlas.plan.c_kernels import CKernels
from tests.opatlas.plan.making import ARTIFACT, PLACE, assert_same, wanted
from tests.opatlas.plan.test_executor import Failing
from tests.tuning.graph.making import model

FEED = {
    "x": np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4),
    "y": np.linspace(1, -3, 12, dtype=np.float32).reshape(3, 4),
}


def summing() -> bytes:
    """|−(tanh x + y)| · eᵗ, where the exponential stands among what can be fused."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Add", ["t", "y"], ["s"]),
        helper.make_node("Exp", ["t"], ["e"]),
        helper.make_node("Neg", ["s"], ["n"]),
        helper.make_node("Abs", ["n"], ["a"]),
        helper.make_node("Mul", ["a", "e"], ["z"]),
    ]
    made = model(nodes, {"x": (3, 4), "y": (3, 4)}, ["z"])
    made.ir_version = 10
    return made.SerializeToString()


class FusedKernels(CKernels):
    """Compiled kernels for these nodes together, and for none alone."""

    def __init__(self, graph: ModelGraph, *regions: Sequence[int]) -> None:
        super().__init__(graph, [])
        for nodes in regions:
            made = [value for value in graph.nodes[nodes[-1]].outputs if value != LEFT_OUT]
            found = operator_of(graph, nodes, made)
            self.operators[found.operator.key] = found.operator
            by = ByKernel(found.operator.key, ARTIFACT, found.tensors, "a fused kernel")
            self.candidates[nodes[-1]] = NodeChoice(by, 1.0, fused=tuple(nodes))


def planned(graph: ModelGraph, kernels: FusedKernels) -> ModelPlan:
    plan = ModelPlan.from_json(with_kernels(graph, kernels.candidates, *PLACE).to_json())
    check_plan(plan, graph, *PLACE)
    return plan


def test_it_computes_what_its_nodes_do_from_what_they_read() -> None:
    graph = ModelGraph(summing())
    kernels = FusedKernels(graph, (1, 3, 4))
    plan = planned(graph, kernels)
    assert [step.nodes for step in plan.steps] == [(0, 2), (1, 3, 4), (5,)]
    assert len(plan.steps[1].outputs) == 1 and len(plan.steps[0].outputs) == 2
    running = Executor(graph, plan, kernels.load, threads=1)
    for feed in (FEED, {"x": FEED["y"], "y": FEED["x"]}, FEED):
        assert_same(running.run(feed), wanted(summing(), feed))
    assert running.artifacts == {ARTIFACT} and not running.fallen_back
    running.close()


def test_one_that_fails_gives_way_to_its_nodes_in_that_very_run() -> None:
    graph = ModelGraph(summing())
    kernels, told = FusedKernels(graph, (1, 3, 4)), list[tuple[tuple[int, ...], str]]()

    def failed(step: Any, error: Exception) -> None:
        told.append((step.nodes, str(error)))

    running = Executor(
        graph, planned(graph, kernels), lambda by: Failing(kernels.load(by), 2), threads=1, failed=failed
    )
    for _ in range(5):
        assert_same(running.run(FEED), wanted(summing(), FEED))
    assert told == [((1, 3, 4), "the kernel failed: out of luck")] and not running.artifacts


def test_one_that_is_revoked_is_out_of_the_next_run() -> None:
    graph, gone, told = ModelGraph(summing()), set[str](), []
    kernels = FusedKernels(graph, (1, 3, 4))
    running = Executor(
        graph, planned(graph, kernels), kernels.load, threads=1, revoked=lambda: gone,
        failed=lambda step, error: told.append((step.nodes, str(error))),
    )  # fmt: skip
    assert_same(running.run(FEED), wanted(summing(), FEED))
    gone.add(ARTIFACT)
    assert_same(running.run(FEED), wanted(summing(), FEED))
    assert told == [((1, 3, 4), "it was revoked")] and not running.artifacts


def test_one_that_cannot_be_loaded_costs_the_model_nothing() -> None:
    graph = ModelGraph(summing())

    def load(by: ByKernel) -> Any:
        raise LoadError("a lookup does not give this implementation now")

    running = Executor(graph, planned(graph, FusedKernels(graph, (1, 3, 4))), load, threads=1)
    assert_same(running.run(FEED), wanted(summing(), FEED))
    assert not running.artifacts


def test_one_that_would_cut_what_cannot_be_cut_is_left_to_the_default() -> None:
    """What nobody knows the type of goes from node 1 to node 3, past a fused operator of nodes 0 and 2."""
    nodes = [
        helper.make_node("Add", ["x", "y"], ["s"]),
        helper.make_node("Mystery", ["x"], ["q"], domain="own"),
        helper.make_node("Neg", ["s"], ["n"]),
        helper.make_node("Mystery", ["q", "n"], ["z"], domain="own"),
    ]
    made = model(nodes, {"x": (3, 4), "y": (3, 4)}, ["z"])
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.ir_version = 10
    graph = ModelGraph(made.SerializeToString())
    assert not graph.can_begin_at(graph.nodes[1].outputs[0])
    plan = with_kernels(graph, FusedKernels(graph, (0, 2)).candidates, *PLACE)
    assert [step.by for step in plan.steps] == [ByFramework("onnxruntime")]


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda plan: plan["steps"][1].update(nodes=[1, 3]), "values that its nodes do not make"),
        (lambda plan: plan["steps"][1].update(nodes=[3, 4]), "reads 's' before it is made"),
        (lambda plan: plan["steps"][1]["by"].update(operator="o1:" + "0" * 64), "of another operator"),
        (lambda plan: plan["steps"][1]["by"]["tensors"].reverse(), "of another operator"),
        (lambda plan: plan["steps"].insert(0, plan["steps"].pop(1)), "Step 0 of the plan reads 't' before"),
        (
            lambda plan: plan["steps"][1].update(nodes=[1, 3, 4, 5], outputs=plan["steps"][2]["outputs"]),
            "of another operator",
        ),
    ],
)
def test_a_fused_step_that_computes_something_else_is_refused(change: Change, sentence: str) -> None:
    graph = ModelGraph(summing())
    document = planned(graph, FusedKernels(graph, (1, 3, 4))).to_json()
    change(document)
    with pytest.raises(InvalidPlan, match=sentence):
        check_plan(ModelPlan.from_json(document), graph, *PLACE)


def test_what_is_made_inside_cannot_be_read_outside() -> None:
    """Node 4 reads what node 1 makes: as one operator with node 2, it gives node 2's result alone."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Add", ["t", "y"], ["s"]),
        helper.make_node("Neg", ["s"], ["n"]),
        helper.make_node("Mul", ["n", "s"], ["z"]),
    ]
    made = model(nodes, {"x": (3, 4), "y": (3, 4)}, ["z"])
    made.ir_version = 10
    graph = ModelGraph(made.SerializeToString())
    plan = with_kernels(graph, FusedKernels(graph, (1, 2)).candidates, *PLACE)
    with pytest.raises(InvalidPlan, match="reads 's' before it is made"):
        check_plan(plan, graph, *PLACE)


def test_a_branch_in_it_is_no_operator() -> None:
    bodies = {}
    for which in ("then_branch", "else_branch"):
        out = helper.make_tensor_value_info(which, TensorProto.FLOAT, [3, 4])
        bodies[which] = helper.make_graph([helper.make_node("Neg", ["s"], [which])], which, [], [out])
    nodes = [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("If", ["c"], ["z"], **bodies)]
    made = model(nodes, {"x": (3, 4), "y": (3, 4)}, ["z"])
    made.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    made.ir_version = 10
    graph = ModelGraph(made.SerializeToString())
    document = with_kernels(graph, {}, *PLACE).to_json()
    by = {"operator": "o1:" + "0" * 64, "artifact": ARTIFACT, "tensors": [], "said": ""}
    document["steps"][0]["by"] = by
    with pytest.raises(InvalidPlan, match=r"for what is no operator: Node 1 \(If\)"):
        check_plan(ModelPlan.from_json(document), graph, *PLACE)


def test_in_a_body_as_well() -> None:
    """Add → Neg in each of five iterations, what is carried between them."""
    kind, number = TensorProto, helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["c", "x"], ["d"]), helper.make_node("Neg", ["d"], ["e"])],
        "body",
        [number("turn", kind.INT64, []), number("go", kind.BOOL, []), number("c", kind.FLOAT, None)],
        [helper.make_empty_tensor_value_info(name) for name in ("go", "e")],
    )
    nodes = [helper.make_node("Loop", ["five", "", "y"], ["z"], body=body)]
    made = model(nodes, {"x": (3, 4), "y": (3, 4)}, ["z"], {"five": np.array(5)})
    made.ir_version = 10
    graph = ModelGraph(made.SerializeToString())
    inner = FusedKernels(graph.nodes[0].bodies[0].graph, (0, 1))
    chosen: dict[NodeAt, NodeChoice] = {(0, 0, 1): inner.candidates[1]}
    plan = with_kernels(graph, chosen, *PLACE)
    check_plan(ModelPlan.from_json(plan.to_json()), graph, *PLACE)
    assert fused_operators(plan, graph) == inner.operators and len(inner.operators) == 1
    running = Executor(graph, plan, inner.load, threads=1)
    assert_same(running.run(FEED), wanted(made.SerializeToString(), FEED))
    assert running.artifacts == {ARTIFACT}
