"""What is proposed: each pattern on a model that has it, a search that misses nothing within its bounds, and
candidates that never wait in a circle."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from onnx import helper

from opatlas.graph.fused import PlacedOperator
from opatlas.graph.fusion import candidates
from opatlas.graph.fusion.candidates import (
    FusionProposal,
    TypedFlow,
    as_operators,
    attentions,
    cone,
    data_movements,
    elementwise_tails,
    ending_at,
    fed_reductions,
    normalisations,
    proposals,
    residual_sums,
)
from opatlas.graph.fusion.dataflow import DataFlow
from opatlas.graph.linked import LEFT_OUT
from opatlas.graph.normal import ModelGraph
from opatlas.identity.bounds import MAX_NODES
from tests import by_day
from tests.opatlas.graph.test_fused import graph_of, large, small
from tests.tuning.graph.fusion.making import hangs_together, leaves, random_flow, waits_in_a_circle


def typed(graph: ModelGraph) -> TypedFlow:
    eligible = frozenset(node for node in range(len(graph.nodes)) if graph.operator(node) is not None)
    return TypedFlow(DataFlow.of_graph(graph), [node.proto.op_type for node in graph.nodes], eligible)


def placed(graph: ModelGraph) -> dict[int, PlacedOperator]:
    found = {}
    for number, node in enumerate(graph.nodes):
        if (own := graph.operator(number)) is not None:
            made = tuple(value for value in node.outputs if value != LEFT_OUT)
            found[number] = PlacedOperator(own[0].operator, own[1], made)
    return found


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), output.split(), **attributes)


def names(graph: ModelGraph, found: Any) -> list[str]:
    """Each candidate by its nodes' types."""
    return [" ".join(graph.nodes[one].proto.op_type for one in sorted(nodes)) for nodes in found]


# ---- patterns -----------------------------------------------------------------------------------


def test_a_producer_and_its_elementwise_tail() -> None:
    nodes = [
        node("MatMul", "x w", "p"),
        node("Add", "p b", "a"),
        node("Relu", "a", "r"),
        node("MatMul", "r w", "y"),
    ]
    constants = {"w": np.ones((8, 8), np.float32), "b": np.ones(8, np.float32)}
    graph = graph_of(nodes, {"x": (4, 8)}, ["y"], constants)
    found = names(graph, elementwise_tails(typed(graph)))
    assert found == ["MatMul Add", "MatMul Add Relu", "Add Relu"]


def test_a_tail_ends_where_a_result_is_read_elsewhere() -> None:
    nodes = [
        node("MatMul", "x w", "p"),
        node("Relu", "p", "r"),
        node("Neg", "r", "n"),
        node("Add", "n r", "y"),
    ]
    graph = graph_of(nodes, {"x": (4, 8)}, ["y"], {"w": np.ones((8, 8), np.float32)})
    assert names(graph, elementwise_tails(typed(graph))) == ["MatMul Relu", "Neg Add"]


def layer_norm(x: str, y: str) -> list[Any]:
    return [
        node("ReduceMean", f"{x} last", f"{y}mean"),
        node("Sub", f"{x} {y}mean", f"{y}centred"),
        node("Mul", f"{y}centred {y}centred", f"{y}square"),
        node("ReduceMean", f"{y}square last", f"{y}variance"),
        node("Add", f"{y}variance least", f"{y}above"),
        node("Sqrt", f"{y}above", f"{y}deviation"),
        node("Div", f"{y}centred {y}deviation", f"{y}normal"),
        node("Mul", f"{y}normal scale", y),
    ]


LAYER = {"last": np.array([-1]), "least": np.float32(1e-5), "scale": np.ones(8, np.float32)}


def test_a_normalisation_in_pieces() -> None:
    graph = graph_of([node("Tanh", "x", "t"), *layer_norm("t", "y")], {"x": (4, 8)}, ["y"], LAYER)
    found = list(normalisations(typed(graph)))
    largest = max(found, key=len)
    assert names(graph, [largest]) == ["Tanh ReduceMean Sub Mul ReduceMean Add Sqrt Div Mul"]


def attention(x: str = "x") -> list[Any]:
    return [
        node("MatMul", f"{x} wq", "q"),
        node("MatMul", f"{x} wk", "k"),
        node("MatMul", f"{x} wv", "v"),
        node("Transpose", "k", "kt", perm=[1, 0]),
        node("MatMul", "q kt", "scores"),
        node("Mul", "scores by", "scaled"),
        node("Add", "scaled mask", "masked"),
        node("Softmax", "masked", "weights", axis=-1),
        node("MatMul", "weights v", "y"),
    ]


HEADS = {one: np.ones((8, 8), np.float32) for one in ("wq", "wk", "wv")} | {"by": np.float32(0.35)}


def test_an_attention_is_two_products_and_what_is_between_them() -> None:
    graph = graph_of(attention(), {"x": (4, 8), "mask": (4, 4)}, ["y"], HEADS)
    assert names(graph, attentions(typed(graph))) == ["Transpose MatMul Mul Add Softmax MatMul"]


def test_a_residual_sum_with_what_only_it_reads() -> None:
    nodes = [
        node("Tanh", "x", "t"),
        node("MatMul", "t w", "long"),
        node("MatMul", "t v", "short"),
        node("Add", "long short", "s"),
        node("Relu", "s", "y"),
    ]
    constants = {one: np.ones((8, 8), np.float32) for one in "wv"}
    graph = graph_of(nodes, {"x": (4, 8)}, ["y"], constants)
    assert names(graph, residual_sums(typed(graph))) == ["MatMul MatMul Add", "MatMul MatMul Add Relu"]


def test_a_reduction_with_what_feeds_it() -> None:
    nodes = [node("Exp", "x", "e"), node("Mul", "e e", "m"), node("ReduceSum", "m last", "y", keepdims=0)]
    graph = graph_of(nodes, {"x": (4, 8)}, ["y"], {"last": np.array([-1])})
    assert names(graph, fed_reductions(typed(graph))) == ["Exp Mul ReduceSum"]


def test_data_movement_that_follows_one_another_once_as_a_whole() -> None:
    nodes = [
        node("Reshape", "x shape", "r"),
        node("Transpose", "r", "t", perm=[1, 0]),
        node("Slice", "t begin end", "s"),
        node("Neg", "s", "y"),
    ]
    constants = {"shape": np.array([8, 4]), "begin": np.array([1]), "end": np.array([3])}
    graph = graph_of(nodes, {"x": (4, 8)}, ["y"], constants)
    assert names(graph, data_movements(typed(graph))) == ["Reshape Transpose Slice"]


def test_every_pattern_is_among_the_proposals_and_says_which_it_was() -> None:
    nodes = [*attention(), *layer_norm("y", "z")]
    graph = graph_of(nodes, {"x": (4, 8), "mask": (4, 4)}, ["z"], HEADS | LAYER)
    found = proposals(typed(graph), [range(len(graph.nodes))])
    by = {one.by for one in found.found}
    assert by >= {"target subgraph", "elementwise tail", "normalisation", "attention", "search"}
    assert found == proposals(typed(graph), [range(len(graph.nodes))])


# ---- any graph ----------------------------------------------------------------------------------


def _typed(seed: int, nodes: int) -> TypedFlow:
    random = np.random.default_rng(seed)
    kinds = ["Relu", "Add", "MatMul", "ReduceSum", "Reshape", "Softmax", "Transpose", "Conv"]
    types = [str(random.choice(kinds)) for _ in range(nodes)]
    eligible = frozenset(node for node in range(nodes) if random.random() < 0.8)
    return TypedFlow(random_flow(seed, nodes), types, eligible)


@pytest.mark.parametrize("seed", by_day.first(15, range(60)))
def test_the_search_finds_all_candidates_within_its_bounds_each_once(seed: int) -> None:
    one = _typed(seed, 9)
    expected = set()
    for size in (2, 3, 4):
        for nodes in combinations(sorted(one.eligible), size):
            if leaves(one.flow, nodes) == [nodes[-1]] and hangs_together(one.flow, nodes):
                expected.add(nodes)
    found = [nodes for output in one.eligible for nodes in ending_at(one, output, 4, 10_000)[0]]
    assert len(found) == len(set(found)) and set(found) == expected
    assert all(ending_at(one, output, 4, 10_000)[1] for output in one.eligible)


@pytest.mark.parametrize("seed", by_day.first(15, range(60)))
def test_whatever_is_proposed_has_one_output_operator_and_hangs_together(seed: int) -> None:
    one = _typed(seed, 16)
    for proposal in proposals(one).found:
        assert list(proposal.nodes) == sorted(set(proposal.nodes)) and one.eligible.issuperset(proposal.nodes)
        assert leaves(one.flow, proposal.nodes) == [proposal.nodes[-1]]
        assert hangs_together(one.flow, proposal.nodes)


@pytest.mark.parametrize("seed", by_day.first(15, range(60)))
def test_any_that_share_no_node_run_in_some_order(seed: int) -> None:
    """What the choice among them builds on (docs/plans.md has the proof)."""
    one, random = _typed(seed, 16), np.random.default_rng(seed)
    every = [proposal.nodes for proposal in proposals(one).found]
    for _ in range(20):
        taken, chosen = set[int](), []
        for at in random.permutation(len(every)):
            if taken.isdisjoint(every[at]):
                taken.update(every[at])
                chosen.append(every[at])
        assert not waits_in_a_circle(one.flow, chosen) and one.flow.runs_in_some_order(chosen)


def test_bounds_are_kept_and_said() -> None:
    one = _typed(1, 16)
    every = proposals(one, most_of_one=10_000)
    assert every.complete
    few = proposals(one, most=5)
    assert len(few.found) == 5 and not few.complete
    assert few.found == every.found[:5]
    narrow = proposals(one, most_of_one=1)
    assert not narrow.complete and {one.nodes for one in narrow.found} < {one.nodes for one in every.found}


def test_a_cone_has_no_more_nodes_than_an_operator_may_have() -> None:
    count = MAX_NODES + 50
    edges = tuple(frozenset({node - 1} if node else ()) for node in range(count))
    after = tuple(frozenset({node + 1} if node + 1 < count else ()) for node in range(count))
    graph = DataFlow(edges, after, frozenset({0}), frozenset({count - 1}))
    assert cone(graph, count - 1, range(count)) == set(range(50, count))


# ---- as operators -------------------------------------------------------------------------------


def test_found_once_it_is_the_same_operator_in_every_later_model() -> None:
    """Two models that share MatMul → Relu and nothing else."""
    keys = []
    for graph in (small(), large()):
        found, refused = as_operators(proposals(typed(graph)).found, placed(graph))
        assert not refused
        keys.append({one.placed.operator.key for one in found})
    assert len(keys[0] & keys[1]) == 1 and len(keys[1]) > 1


def test_a_second_model_of_the_same_blocks_asks_for_less_than_a_third() -> None:
    """Three residual blocks, then six of them and another head: what is looked up and asked for, by key."""
    asked = [everything_of(blocks(3, 8)), everything_of(blocks(6, 4))]
    assert len(asked[0]) > 20 and asked[1] - asked[0]
    assert len(asked[1] - asked[0]) <= 0.3 * len(asked[0])


def blocks(count: int, width: int) -> ModelGraph:
    shapes = {"w": (8, 16), "b": (16,), "u": (16, 8), "h": (8, width)}
    nodes, weights = list[Any](), {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    for at in range(count):
        nodes += [node("MatMul", f"v{at} w", f"p{at}"), node("Add", f"p{at} b", f"a{at}")]
        nodes += [node("Relu", f"a{at}", f"r{at}"), node("MatMul", f"r{at} u", f"q{at}")]
        nodes += [node("Add", f"q{at} v{at}", f"s{at}"), node("Tanh", f"s{at}", f"v{at + 1}")]
    nodes.append(node("MatMul", f"v{count} h", "y"))
    return graph_of(nodes, {"v0": (4, 8)}, ["y"], weights)


def everything_of(graph: ModelGraph) -> set[str]:
    """Its nodes' operators, and those that some of its nodes may be together."""
    found, _ = as_operators(proposals(typed(graph)).found, placed(graph))
    return {one.operator.key for one in placed(graph).values()} | {one.placed.operator.key for one in found}


def test_equal_places_are_made_once_and_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, made = list[Any](), list[Any]()
    for at in range(3):
        nodes += [node("MatMul", f"v{at} w{at}", f"p{at}"), node("Relu", f"p{at}", f"v{at + 1}")]
    weights = {f"w{at}": np.full((8, 8), at, np.float32) for at in range(3)}
    graph = graph_of(nodes, {"v0": (4, 8)}, ["v3"], weights)
    real = candidates.fused

    def counted(*given: Any) -> PlacedOperator:
        made.append(given)
        return real(*given)

    monkeypatch.setattr(candidates, "fused", counted)
    wanted = [FusionProposal((2 * at, 2 * at + 1), "search") for at in range(3)]
    found, _ = as_operators(wanted, placed(graph))
    assert len(made) == 1 and len({one.placed.operator.key for one in found}) == 1
    read = [[graph.names[value] for value in one.placed.tensors] for one in found]
    assert read == [["v0", "w0"], ["v1", "w1"], ["v2", "w2"]]
    assert [graph.names[one.placed.outputs[0]] for one in found] == ["v1", "v2", "v3"]


def test_what_is_no_operator_together_is_refused_with_its_reason() -> None:
    count = MAX_NODES + 1
    graph = graph_of(
        [node("Neg", f"v{at}", f"v{at + 1}") for at in range(count)], {"v0": (2,)}, [f"v{count}"]
    )
    whole = FusionProposal(tuple(range(count)), "target subgraph")
    found, refused = as_operators([whole], placed(graph))
    assert not found and str(MAX_NODES) in refused[whole.nodes]


def test_no_more_is_made_for_one_model_than_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "MOST_MADE", 5)
    graph = large()
    found, refused = as_operators(proposals(typed(graph)).found, placed(graph))
    assert len(found) == 2 and refused and all("5 nodes" in one for one in refused.values())
