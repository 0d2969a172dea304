"""A model's structure: what of a model is kept, read back, and planned by; and what is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from opatlas.errors import InvalidModel
from opatlas.graph import structure
from opatlas.graph.normal import ModelGraph
from opatlas.graph.structure import ModelStructure, structure_of
from opatlas.plan.making import NodeChoice, with_kernels
from opatlas.plan.plan import ByKernel
from tests.opatlas.plan.graphs import RandomModel
from tests.tuning.graph.layout.test_model import AT, GRAPH
from tests.tuning.graph.making import model

PLACE = ("t1:here", "s1:here")
SECRET = 1234.5678


def _read(text: bytes) -> ModelStructure:
    return ModelStructure.from_json(json.loads(text))


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_of_the_structure_is_the_plan_of_the_model(seed: int) -> None:
    graph = ModelGraph(RandomModel(seed).build())
    kept = ModelStructure.unpacked(structure_of(graph).packed())
    assert kept == structure_of(graph) == _read(json.dumps(kept.to_json()).encode())
    chosen = {
        number: NodeChoice(ByKernel(node.operator, "0" * 64, node.tensors), 1.0)
        for number, node in enumerate(kept.nodes)
        if node.operator
    }
    assert chosen
    assert with_kernels(kept, chosen, *PLACE) == with_kernels(graph, chosen, *PLACE)
    for number, node in enumerate(kept.nodes):
        found = graph.operator(number)
        assert (node.operator, node.tensors) == ((found[0].operator.key, found[1]) if found else ("", ()))


def test_outputs_that_nobody_reads_are_left_out_of_the_key_too() -> None:
    def with_outputs(*names: str) -> ModelGraph:
        node = helper.make_node("Dropout", ["x"], list(names))
        return ModelGraph(model([node], {"x": (3,)}, ["y"]).SerializeToString())

    assert with_outputs("y", "mask").key == with_outputs("y").key


def test_no_weight_and_no_attribute_is_in_it() -> None:
    weight = np.full((64, 64), SECRET, np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="zanzibar/first"),
        helper.make_node("LeakyRelu", ["p"], ["q"], alpha=SECRET, name="n" * 1_000_000),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(weight)),
        helper.make_node("Add", ["q", "c"], ["s"]),
        helper.make_node("Own", ["s"], ["y"], domain="own", said="a secret"),
    ]
    made = model(nodes, {"x": (1, 64)}, ["y"], {"w": weight})
    made.opset_import.append(helper.make_opsetid("own", 1))
    kept = structure_of(ModelGraph(made.SerializeToString()))
    text = json.dumps(kept.to_json())
    assert "zanzibar/first" in text  # names of nodes are kept, as far as people read them
    assert str(SECRET) not in text and "secret" not in text and len(text) < 3000
    assert weight.tobytes()[:8] not in text.encode()
    assert max(len(node.name) for node in kept.nodes) == structure.MOST_NAME


def _document() -> dict[str, Any]:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="a"), helper.make_node("Exp", ["y"], ["z"])]
    return structure_of(ModelGraph(model(nodes, {"x": (3,)}, ["z"]).SerializeToString())).to_json()


def _set(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        at: Any = document
        for one in path[:-1]:
            at = at[one]
        at[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("structure", to=2), "of version 2; version 1 is read"),
        (_set("structure", to=True), "of version True"),
        (_set("model", to="m1:short"), "no key of a model"),
        (_set("operators", 0, to="o1:' OR 1=1"), "no key of an operator"),
        (_set("nodes", to={}), "'nodes' must be a list"),
        (_set("nodes", to=[{}] * 20_001), "'nodes' must be a list of at most 20000"),
        (_set("nodes", 0, to=7), "Node 0 of the structure is no JSON object"),
        (_set("nodes", 0, "name", to="x" * 1_000_000), "at most 100 printable characters"),
        (_set("nodes", 0, "op", to="a\nb"), "at most 100 printable characters"),
        (_set("nodes", 0, "operator", to=99), "an operator that is not listed"),
        (_set("nodes", 0, "operator", to=True), "an operator that is not listed"),
        (_set("nodes", 0, "inputs", to=[10**30]), "numbers of the structure's 3 values"),
        (_set("nodes", 0, "inputs", to=[False]), "numbers of the structure's 3 values"),
        (_set("nodes", 0, "tensors", to=[-1]), "numbers of the structure's 3 values"),
        (_set("nodes", 0, "inputs", to=[2]), "Node 0 of the structure reads value 2 before it is made"),
        (_set("nodes", 1, "outputs", to=[1]), "Node 1 of the structure makes value 1, which is there"),
        (_set("outputs", to=[]), "no nodes, or no outputs"),
        (_set("nodes", 1, "outputs", to=[-1]), "Nothing of the structure makes its output, value 2"),
        (_set("values", 0, to=[1, -5]), "ONNX's number of its element type and sizes"),
        (_set("values", 0, to=[1] * 40), "ONNX's number of its element type and sizes"),
        (_set("values", 0, to=["1"]), "ONNX's number of its element type and sizes"),
    ],
)
def test_a_hostile_structure_is_refused_in_one_sentence(
    change: Callable[[dict[str, Any]], None], said: str
) -> None:
    document = copy.deepcopy(_document())
    ModelStructure.from_json(document)
    change(document)
    with pytest.raises(InvalidModel) as refused:
        ModelStructure.from_json(document)
    assert said in str(refused.value) and len(str(refused.value)) < 200


def _with_bodies() -> dict[str, Any]:
    """A branch, and a loop that carries one value."""
    return structure_of(GRAPH).to_json()


_IF, _LOOP = AT["choice"][0], AT["refine"][0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("nodes", _IF, "bodies", to=7), "'bodies' must be a list of at most 2"),
        (_set("nodes", _IF, "bodies", to=[]), "has bodies that do not fit it"),
        (_set("nodes", _IF, "bodies", 0, to=None), "A body of node 3 of the structure is no JSON object"),
        (_set("nodes", _IF, "bodies", 0, "graph", "structure", to=9), "of version 9"),
        (_set("nodes", _IF, "bodies", 0, "graph", "outputs", to=[]), "has bodies that do not fit it"),
        (_set("nodes", _IF, "op", to="Conv"), "has bodies that do not fit it"),
        (_set("nodes", _IF, "carried", to=1), "has bodies that do not fit it"),
        (_set("nodes", _LOOP, "carried", to=None), "has bodies that do not fit it"),
        (_set("nodes", _LOOP, "carried", to=2), "has bodies that do not fit it"),
        (_set("nodes", _LOOP, "bodies", 0, "formal", to=[0]), "has bodies that do not fit it"),
        (_set("nodes", _LOOP, "bodies", 0, "captured", to=[[0]]), "captures what its node does not"),
        (_set("nodes", _LOOP, "bodies", 0, "captured", to=[[[], {}]]), "captures what its node does not"),
        (_set("nodes", _LOOP, "bodies", 0, "captured", to=[[0, 10**6]]), "captures what its node does not"),
        (_set("nodes", _LOOP, "bodies", 0, "captured", to=[]), "has bodies that do not fit it"),
    ],
)
def test_bodies_that_cannot_be_are_refused_in_one_sentence(
    change: Callable[[dict[str, Any]], None], said: str
) -> None:
    document = copy.deepcopy(_with_bodies())
    assert ModelStructure.from_json(document) == structure_of(GRAPH)
    change(document)
    with pytest.raises(InvalidModel) as refused:
        ModelStructure.from_json(document)
    assert said in str(refused.value) and len(str(refused.value)) < 200


def test_bodies_within_bodies_are_bounded() -> None:
    document = inner = copy.deepcopy(_with_bodies())
    for _ in range(structure.MOST_DEPTH + 1):
        inner = inner["nodes"][_IF]["bodies"][0]
        inner["graph"] = copy.deepcopy(_with_bodies())
        inner = inner["graph"]
    with pytest.raises(InvalidModel, match="nested deeper than 16 levels"):
        ModelStructure.from_json(document)


def test_a_structure_without_bodies_is_one_of_before() -> None:
    document = _with_bodies()
    for node in document["nodes"]:
        node.pop("bodies", None)
        node.pop("carried", None)
    kept = ModelStructure.from_json(document)
    assert not any(node.bodies for node in kept.nodes) and kept.key == GRAPH.key
    assert len(kept.operator_keys) < len(structure_of(GRAPH).operator_keys)


def test_what_is_stored_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ModelGraph(RandomModel(0).build())
    packed = structure_of(graph).packed()
    for broken in (packed[:-9], b"nothing", b""):
        with pytest.raises(InvalidModel):
            ModelStructure.unpacked(broken)
    monkeypatch.setattr(structure, "MOST_BYTES", 100)
    with pytest.raises(InvalidModel, match="more than 100 bytes"):
        ModelStructure.unpacked(packed)
    monkeypatch.setattr(structure, "MOST_LINKS", 3)
    with pytest.raises(InvalidModel, match="inputs and outputs of nodes; structures of up to 3 are kept"):
        structure_of(graph)


def test_types_that_only_a_run_knows_are_said() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"]),
        helper.make_node("Cast", ["found"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = ModelGraph(model(nodes, {"x": (3,)}, ["y"]).SerializeToString())
    kept = structure_of(graph)
    unknown = [number for number, kind in enumerate(kept.types) if kind is None]
    assert unknown and [kept.can_begin_at(one) for one in unknown] == [
        graph.can_begin_at(one) for one in unknown
    ]
