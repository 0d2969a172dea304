"""The partition of docs/plans.md: each rule and each case of pruning, by the claim that it is from, and
that nothing is lost whatever the graph."""

from __future__ import annotations

import functools
from itertools import combinations

import numpy as np
import pytest
from onnx import TensorProto, helper

from opatlas.graph.fusion.dataflow import DataFlow
from opatlas.graph.normal import ModelGraph
from opatlas.identity import Operator, parse_operator
from tests.opatlas.plan.graphs import RandomModel
from tests.opatlas.plan.random_bodies import RandomBodies
from tests.tuning.graph.fusion.making import enters, flow, leaves, random_flow, waits_in_a_circle
from tests.tuning.graph.making import model
from tuning.graph.fusion.device import ExecutionDevice, LibraryRules, RulesContradict
from tuning.graph.fusion.partition import (
    CONTROL_FLOW,
    PRUNED,
    partition,
    partitions,
    pruned,
    walked_backward,
    walked_forward,
)

NPU = ExecutionDevice(
    "the NPU", "npu", frozenset({"MatMul", "Relu", "Exp", "Neg", "Add"}), frozenset({"float32"})
)


def library(*refused: str) -> LibraryRules:
    """It has whatever is not refused by its type."""
    return LibraryRules("its library", ("npu",), lambda operator: not set(operator.op_types) & set(refused))


@functools.cache
def operator(op: str, dtype: str = "float32") -> Operator:
    count = 2 if op in ("Add", "MatMul") else 1
    return parse_operator({"op": op, "inputs": [{"dtype": dtype, "shape": [4, 4]}] * count})


def parts_of(graph: DataFlow) -> list[set[int]]:
    return [set(part) for part in pruned(graph, frozenset(range(len(graph.before))))]


# ---- claim 1 and 2: the first division, by the device that can run each operator --------------------


def test_what_the_device_can_run_and_hangs_together_is_an_original_subgraph() -> None:
    """Claim 2: the operators of the first kind, by their directed edges. Node 2 splits them in two; what
    enters and leaves each may be several operators."""
    graph = flow({0: [], 1: [0], 2: [1], 3: [2], 4: [2], 5: [3, 4]}, given=[0], leaving=[5])
    ops = ["Relu", "Neg", "Softmax", "Exp", "Neg", "Add"]
    found = partition(graph, [operator(op) for op in ops], NPU, library("Softmax"))
    assert found.originals == ((0, 1), (3, 4, 5))
    assert found.unfused[2] == "the NPU has no Softmax"
    assert enters(graph, (3, 4, 5)) == [3, 4]


def test_a_device_is_told_by_what_it_runs_and_in_which_element_types() -> None:
    graph = flow({0: [], 1: [0], 2: [1]}, given=[0], leaving=[2])
    ops = [operator("Relu"), operator("Neg", "float64"), None]
    found = partition(graph, ops, NPU, library("Neg"))
    assert found.unfused[1] == "the NPU has no float64"
    assert found.unfused[2] == "no canonical operator expresses it"
    assert found.originals == ((0,),) and found.targets == ()


def test_one_that_stands_alone_runs_unfused() -> None:
    graph = flow({0: []}, given=[0], leaving=[0])
    assert partition(graph, [operator("Relu")], NPU, library()).unfused == {0: PRUNED}


# ---- claim 3: the second division, by the library's rules --------------------------------------------


def test_what_the_librarys_rules_refuse_is_dropped_and_what_remains_is_pruned() -> None:
    graph = flow({0: [], 1: [0], 2: [1], 3: [2], 4: [3]}, given=[0], leaving=[4])
    ops = [operator(op) for op in ("Relu", "Neg", "Exp", "Neg", "Relu")]
    found = partition(graph, ops, NPU, library("Exp"))
    assert found.originals == ((0, 1, 2, 3, 4),)
    assert found.targets == ((0, 1), (3, 4))
    assert found.unfused == {2: "its library does not have it"}


def test_the_rules_are_those_of_a_routes_supports() -> None:
    from opatlas.identity import Setting
    from tuning.routes.registry import route

    rules = LibraryRules.of_route(route("tvm"), Setting(threads=1))
    assert rules.kinds == ("cpu",) and rules.refusal(operator("Relu")) == ""
    refused = rules.refusal(parse_operator({"op": "Det", "inputs": [{"dtype": "float32", "shape": [4, 4]}]}))
    assert "Det" in refused


def test_a_library_that_contradicts_its_device_is_refused_and_an_operator_of_it_left_out() -> None:
    graph = flow({0: [], 1: [0]}, given=[0], leaving=[1])
    ops = [operator("Relu"), operator("Softmax")]
    foreign = LibraryRules("cuDNN", ("cuda",), lambda operator: True)
    with pytest.raises(RulesContradict, match="cuDNN is for devices of kind cuda; the NPU is of kind npu"):
        partition(graph, ops, NPU, foreign)
    found = partition(graph, ops, NPU, library())
    assert found.unfused[1].endswith("though its library says that it has it: the device's word counts")


def test_a_rule_that_fails_leaves_its_operator_out_and_no_other() -> None:
    def accepts(operator: Operator) -> bool:
        if "Exp" in operator.op_types:
            raise ZeroDivisionError("of all things")
        return True

    graph = flow({0: [], 1: [0], 2: [1]}, given=[0], leaving=[2])
    ops = [operator(op) for op in ("Relu", "Neg", "Exp")]
    found = partition(graph, ops, NPU, LibraryRules("a library", ("npu",), accepts))
    assert found.targets == ((0, 1),)
    assert found.unfused == {2: "the rule of a library failed: of all things"}


# ---- claims 4 to 6, and the last case of the summary: pruning ------------------------------------------


def test_one_input_and_one_output_operator_are_a_target_subgraph_as_they_are() -> None:
    diamond = flow({0: [], 1: [0], 2: [0], 3: [1, 2]}, given=[0], leaving=[3])
    assert parts_of(diamond) == [{0, 1, 2, 3}]


def test_one_input_and_many_outputs_are_walked_back_until_another_output_is_met() -> None:
    """Claim 5. 2 leaves in the middle of 0 → 1 → 2 → 3 → 4: the walk back from 4 ends at it."""
    graph = flow({0: [], 1: [0], 2: [1], 3: [2], 4: [3]}, given=[0], leaving=[2, 4])
    whole = frozenset(range(5))
    assert (enters(graph, whole), leaves(graph, whole)) == ([0], [2, 4])
    assert walked_backward(graph, whole, [2, 4]) == [{4, 3}, {2, 1, 0}]
    assert parts_of(graph) == [{0, 1, 2}, {3, 4}]


def test_what_two_walks_back_reach_is_a_part_of_its_own() -> None:
    """0 → 1, then 1 → 2 and 1 → 3, which both leave: with either of them, 1 would be a second output."""
    graph = flow({0: [], 1: [0], 2: [1], 3: [1]}, given=[0], leaving=[2, 3])
    assert parts_of(graph) == [{0, 1}, {2}, {3}]


def test_many_inputs_and_one_output_are_walked_forward_until_another_input_is_met() -> None:
    """Claim 6. 2 reads from outside in the middle of 0 → 1 → 2 → 3: the walk from 0 ends at it."""
    graph = flow({0: [], 1: [0], 2: [1], 3: [2]}, given=[0, 2], leaving=[3])
    whole = frozenset(range(4))
    assert (enters(graph, whole), leaves(graph, whole)) == ([0, 2], [3])
    assert walked_forward(graph, whole, [0, 2]) == [{0, 1}, {2, 3}]
    assert parts_of(graph) == [{0, 1}, {2, 3}]


def test_what_two_walks_forward_reach_is_a_part_of_its_own() -> None:
    """0 → 1 and 2 → 3 meet in 4 → 5."""
    graph = flow({0: [], 1: [0], 2: [], 3: [2], 4: [1, 3], 5: [4]}, given=[0, 2], leaving=[5])
    assert parts_of(graph) == [{0, 1}, {2, 3}, {4, 5}]


def test_many_and_many_are_walked_forward_first_and_what_has_several_outputs_backward() -> None:
    """The last case of the summary, which breaks off after its first half. Forward from 0 and 2; then
    backward in 2 → 3 → 4 → 5, of which 3 and 5 leave."""
    graph = flow({0: [], 1: [0], 2: [1], 3: [2], 4: [3], 5: [4]}, given=[0, 2], leaving=[3, 5])
    whole = frozenset(range(6))
    assert (enters(graph, whole), leaves(graph, whole)) == ([0, 2], [3, 5])
    assert walked_forward(graph, whole, [0, 2]) == [{0, 1}, {2, 3, 4, 5}]
    assert walked_backward(graph, frozenset({2, 3, 4, 5}), [3, 5]) == [{5, 4}, {3, 2}]
    assert parts_of(graph) == [{0, 1}, {2, 3}, {4, 5}]


def test_the_first_walks_differ_and_what_they_come_to_does_not() -> None:
    """0 → 2, 2 → 3, and 2 and 1 → 4; 3 and 4 leave. Backward first 1 would stand with 4 and 2 without 3."""
    graph = flow({0: [], 1: [], 2: [0], 3: [2], 4: [2, 1]}, given=[0, 1], leaving=[3, 4])
    whole = frozenset(range(5))
    assert walked_forward(graph, whole, [0, 1]) == [{0, 2, 3}, {1}, {4}]
    assert walked_backward(graph, whole, [3, 4]) == [{4, 1}, {3}, {2, 0}]
    assert parts_of(graph) == [{0, 2}, {1}, {3}, {4}]


def test_pruning_goes_on_until_every_part_is_a_target() -> None:
    """Claim 4: iterative. Each round makes new input and output operators."""
    graph = flow(
        {0: [], 1: [0], 2: [1], 3: [1], 4: [2, 3], 5: [4], 6: [4], 7: [5, 6]},
        given=[0, 3],
        leaving=[6, 7],
    )
    assert walked_forward(graph, frozenset(range(8)), [0, 3]) == [{0, 1, 2}, {3}, {4, 5, 6, 7}]
    assert walked_backward(graph, frozenset({4, 5, 6, 7}), [6, 7]) == [{7, 5}, {6}, {4}]
    assert enters(graph, {5, 7}) == [5, 7]  # which the round before has made of it
    assert parts_of(graph) == [{0, 1}, {2}, {3}, {4}, {5}, {6}, {7}]


# ---- what the source leaves open ----------------------------------------------------------------------


def test_a_way_through_the_general_processor_does_not_close_a_circle() -> None:
    """0 → 1 (not for the device) → 2, and 0 → 2: as one operator 0 and 2 would wait for 1, and 1 for them."""
    graph = flow({0: [], 1: [0], 2: [0, 1]}, given=[0], leaving=[2])
    found = partition(graph, [operator("Relu"), operator("Softmax"), operator("Add")], NPU, library())
    assert found.originals == ((0, 2),)
    assert found.targets == () and found.unfused == {0: PRUNED, 1: found.unfused[1], 2: PRUNED}
    assert waits_in_a_circle(graph, [(0, 2)]) and not graph.runs_in_some_order([(0, 2)])


def test_a_branch_is_never_fused_and_its_bodies_are_partitioned_for_themselves() -> None:
    def body(which: str, ops: list[str]) -> object:
        names = ["x", *(f"{which}{at}" for at in range(len(ops)))]
        nodes = [helper.make_node(op, [names[at]], [names[at + 1]]) for at, op in enumerate(ops)]
        out = helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, [4])
        return helper.make_graph(nodes, which, [], [out])

    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node(
            "If", ["c"], ["d"], then_branch=body("t", ["Exp", "Neg"]), else_branch=body("e", ["Relu"])
        ),
        helper.make_node("Add", ["b", "d"], ["e"]),
        helper.make_node("Relu", ["e"], ["y"]),
    ]
    made = model(nodes, {"x": (4,)}, ["y"])
    made.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    made.ir_version = 10
    found = partitions(ModelGraph(made.SerializeToString()), NPU, library())
    assert found.keys() == {(), (2, 0), (2, 1)}
    assert found[()].unfused[2] == CONTROL_FLOW
    assert found[()].targets == ((0, 1), (3, 4))
    assert found[2, 0].targets == ((0, 1),) and found[2, 1].targets == ()


@pytest.mark.parametrize("seed", range(100))
def test_no_target_subgraph_is_divided_so_the_parts_are_the_largest_there_are(seed: int) -> None:
    """Of all sets of operators with one input and one output operator. So neither the order of the walks nor
    how they are divided among parts makes a difference."""
    graph = random_flow(seed, nodes=9)
    parts = parts_of(graph)
    for size in range(2, 10):
        for some in combinations(range(9), size):
            if len(enters(graph, some)) == len(leaves(graph, some)) == 1:
                assert any(part.issuperset(some) for part in parts)


# ---- any graph -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(300))
def test_every_part_has_one_input_and_one_output_operator_and_no_operator_is_lost(seed: int) -> None:
    graph = random_flow(seed, nodes=3 + seed % 20)
    count = len(graph.before)
    random = np.random.default_rng(seed)
    ops = [operator("Neg") if random.random() < 0.85 else None for _ in range(count)]
    found = partition(graph, ops, NPU, library())
    every = [node for target in found.targets for node in target] + list(found.unfused)
    assert sorted(every) == list(range(count))
    for target in found.targets:
        assert len(enters(graph, target)) == len(leaves(graph, target)) == 1 and len(target) > 1
        assert any(set(target) <= set(original) for original in found.originals)
    assert not waits_in_a_circle(graph, found.targets)
    assert graph.runs_in_some_order(found.targets)


@pytest.mark.parametrize("seed", range(30))
def test_so_it_is_in_models_with_branches_and_loops_and_in_their_bodies(seed: int) -> None:
    made = RandomModel(seed).build(3) if seed % 2 else RandomBodies(seed).build()
    graph = ModelGraph(made)
    every = frozenset(op for node in graph.operators().values() for op in node[0].operator.op_types)
    device = ExecutionDevice("all", "npu", every, frozenset({"float32", "float64", "int32", "int64", "bool"}))
    found = partitions(graph, device, library("Softmax", "Max"))
    graphs: dict[tuple[int, ...], ModelGraph] = {(): graph}
    for where in found:
        inner = graph
        for node, which in zip(where[::2], where[1::2], strict=True):
            inner = inner.nodes[node].bodies[which].graph
        graphs[where] = inner
    for where, one in found.items():
        inner, here = graphs[where], DataFlow.of_graph(graphs[where])
        together = [node for target in one.targets for node in target]
        assert sorted([*together, *one.unfused]) == list(range(len(inner.nodes)))
        assert here.control.isdisjoint(together) and not waits_in_a_circle(here, one.targets)
        for target in one.targets:
            assert len(enters(here, target)) == len(leaves(here, target)) == 1
    bodies = sum(len(node.bodies) for one in graphs.values() for node in one.nodes)
    assert len(found) == 1 + bodies


@pytest.mark.parametrize("seed", range(100))
def test_orders_are_told_from_circles(seed: int) -> None:
    """Any parts, not only those of a partition."""
    graph = random_flow(seed, nodes=9)
    random = np.random.default_rng(seed)
    owner = random.integers(0, 4, 9)
    parts = [[node for node in range(9) if owner[node] == one] for one in range(3)]
    parts = [part for part in parts if part]
    assert graph.runs_in_some_order(parts) is not waits_in_a_circle(graph, parts)
