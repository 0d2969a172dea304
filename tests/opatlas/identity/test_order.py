"""Numbers never depend on the caller's names or order."""

import json
import random
from itertools import permutations
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opatlas.errors import InvalidOperator
from opatlas.identity import Operator, canonicalise, parse_operator, to_onnx
from tests import by_day
from tests.opatlas.identity.examples import EXAMPLES, GRAPHS, Document, graph, step, tensor

UNARY = ("Relu", "Tanh", "Exp")
BINARY = ("Add", "Sub", "Mul", "Div", "Max")


@st.composite
def graphs(draw: st.DrawFn) -> Document:
    """Random graphs, rich in symmetry: one shape, few operator types, values read many times."""
    count = draw(st.integers(1, 4))
    inputs = [tensor(3, 3, role=draw(st.sampled_from(["runtime", "const"]))) for _ in range(count)]
    nodes = []
    for i in range(draw(st.integers(1, 9))):
        known = count + i
        if draw(st.booleans()):
            nodes.append(step(draw(st.sampled_from(UNARY)), [draw(st.integers(0, known - 1))], [known]))
        else:
            reads = [draw(st.integers(0, known - 1)) for _ in range(2)]
            nodes.append(step(draw(st.sampled_from(BINARY)), reads, [known]))
    made = [node["outputs"][0] for node in nodes]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    return graph(*nodes, inputs=inputs, outputs=outputs)


def renumbered(document: Document, seed: int) -> Document:
    """The same graph with inputs, values, nodes and outputs in another order, and other numbers."""
    shuffle = random.Random(seed)
    order = list(range(len(document["inputs"])))
    shuffle.shuffle(order)
    fresh = {old: new for new, old in enumerate(order)}
    others = [number for node in document["nodes"] for number in node["outputs"]]
    numbers = [len(order) + 7 + i for i in range(len(others))]
    shuffle.shuffle(numbers)
    fresh |= dict(zip(others, numbers, strict=True)) | {-1: -1}
    nodes = [
        {
            **node,
            "inputs": [fresh[number] for number in node["inputs"]],
            "outputs": [fresh[number] for number in node["outputs"]],
        }
        for node in document["nodes"]
    ]
    outputs = [fresh[number] for number in document["outputs"]]
    shuffle.shuffle(nodes)
    shuffle.shuffle(outputs)
    return {"inputs": [document["inputs"][old] for old in order], "nodes": nodes, "outputs": outputs}


@given(graphs(), st.integers(0, 10**6))
@settings(max_examples=by_day.draws(300))
def test_renaming_and_reordering_keep_the_key(document: Document, seed: int) -> None:
    assert parse_operator(renumbered(document, seed)) == parse_operator(document)


@given(graphs())
@settings(max_examples=by_day.draws(100))
def test_a_canonical_graph_is_its_own_canonical_form(document: Document) -> None:
    operator = parse_operator(document)
    assert parse_operator(operator.to_json()) == operator
    assert canonicalise(to_onnx(operator)).operator == operator


@given(graphs(), graphs())
@settings(max_examples=by_day.draws(200))
def test_equal_keys_mean_equal_values(one: Document, other: Document) -> None:
    """Keys agree exactly where formulas do (graphs that compute one thing twice aside: formulas cannot say
    which of the two is read)."""
    first, second = parse_operator(one), parse_operator(other)
    for operator in (first, second):
        values = json.loads(formulas(operator))[0]
        assume(len(set(values)) == len(values))
    assert (first.key == second.key) == (formulas(first) == formulas(second))


def formulas(operator: Operator) -> str:
    """The graph as nested formulas, however the constants and inputs are numbered: the smallest over
    all orders of the inputs, operands of commutative types sorted."""
    best = ""
    for order in permutations(range(len(operator.inputs))):
        terms: dict[int, Any] = {
            i: [f"{operator.inputs[i].role}{order[i]}"] for i in range(len(operator.inputs))
        }
        for node in operator.nodes:
            operands = [terms[i] for i in node.inputs]
            if node.op in ("Add", "Mul", "Max"):
                operands.sort(key=json.dumps)
            terms[node.outputs[0]] = [node.op, *operands]
        values = sorted(json.dumps(terms[node.outputs[0]]) for node in operator.nodes)
        text = json.dumps([values, sorted(json.dumps(terms[i]) for i in operator.outputs)])
        best = min(best, text) if best else text
    return best


@pytest.mark.parametrize("seed", range(3))
def test_every_example_survives_reordering(seed: int) -> None:
    for document in (*EXAMPLES, *GRAPHS):
        operator = parse_operator(document)
        assert parse_operator(renumbered(operator.to_json(), seed)) == operator


def test_operands_of_commutative_types_may_change_places() -> None:
    big, small = tensor(4, 5), tensor(5)
    assert parse_operator({"op": "Add", "inputs": [big, small]}) == parse_operator(
        {"op": "Add", "inputs": [small, big]}
    )
    assert parse_operator({"op": "Sub", "inputs": [big, small]}) != parse_operator(
        {"op": "Sub", "inputs": [small, big]}
    )


def test_many_interchangeable_branches_are_numbered() -> None:
    branches = [step("Relu", [0], [1 + i]) for i in range(12)]
    operator = parse_operator(graph(*branches, inputs=[tensor(4)], outputs=list(range(1, 13))))
    assert operator.op_types == ("Relu",) * 12


def test_what_is_too_symmetric_is_refused_in_time() -> None:
    branches = [step("Relu", [0], [1 + i]) for i in range(200)]
    with pytest.raises(InvalidOperator, match="interchangeable"):
        parse_operator(graph(*branches, inputs=[tensor(4)], outputs=list(range(1, 201))))


def test_long_chains_are_numbered_quickly() -> None:
    chain = [step("Relu", [i], [i + 1]) for i in range(256)]
    assert len(parse_operator(graph(*chain, inputs=[tensor(4)], outputs=[256])).nodes) == 256


def test_symmetric_wirings_that_colours_cannot_tell_apart_differ() -> None:
    """Two triangles of pairwise sums against one hexagon: equal to any colour refinement."""

    def rings(edges: list[tuple[int, int]]) -> Document:
        nodes = [step("Add", [a, b], [6 + i]) for i, (a, b) in enumerate(edges)]
        return graph(*nodes, inputs=[tensor(4)] * 6, outputs=[6 + i for i in range(6)])

    triangles = rings([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])
    hexagon = rings([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)])
    assert parse_operator(triangles).key != parse_operator(hexagon).key
    for seed in range(20):
        assert parse_operator(renumbered(triangles, seed)).key == parse_operator(triangles).key
        assert parse_operator(renumbered(hexagon, seed)).key == parse_operator(hexagon).key
