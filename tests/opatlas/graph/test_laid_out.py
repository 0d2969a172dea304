"""Models with some of their nodes channels-last: the same values, nodes told alike by model and structure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from opatlas.graph.channels_last import ChannelsLast
from opatlas.graph.laid_model import LaidOutGraph
from opatlas.graph.laid_out import NotLaidOut, laid_out_form
from opatlas.graph.linked import BodyPath, NodePath
from opatlas.graph.normal import ModelGraph
from opatlas.graph.structure import structure_of
from opatlas.graph.typed_nodes import RANK, TypedNodes
from opatlas.plan.checking import check_plan
from opatlas.plan.executor import Executor
from opatlas.plan.making import whole
from opatlas.session import forms
from tests import by_day
from tests.opatlas.plan.making import PLACE, assert_same, wanted
from tests.opatlas.plan.pictures import SHAPE, RandomPictures
from tests.opatlas.plan.random_bodies import RandomBodies
from tests.tuning.graph.making import model


def some_layouts(model: TypedNodes, seed: int, body: BodyPath = ()) -> ChannelsLast:
    """Of what can lie channels-last, in bodies too, most: units of one or two nodes, what branches and loops
    hand on, and captured values that are brought into their other layout before them or in them."""
    random = np.random.default_rng([seed, *body])
    units: list[tuple[int, ...]] = []
    handed, brought = set[NodePath](), set[NodePath]()
    for node in range(len(model.nodes)):
        for unit in ((node - 1, node), (node,)):
            free = unit[0] >= 0 and not any(set(unit) & set(one) for one in units)
            if free and not model.misfit(unit) and random.random() < 0.7:
                units.append(unit)
        inner = model.bodies.get(node, ())
        for place in range(len(model.handed(node)) if inner else 0):
            if model.can_be_turned(node, place) and random.random() < 0.7:
                handed.add((*body, node, place))
        brought |= {(*body, one) for one in model.nodes[node].captured if is_picture(model, one)}
    found = ChannelsLast(
        tuple(tuple((*body, node) if body else node for node in unit) for unit in units),
        frozenset(handed),
        frozenset(one for one in sorted(brought) if random.random() < 0.5),
    )
    for node, inner in model.bodies.items():
        for which, one in enumerate(inner):
            more = some_layouts(one.graph, seed, (*body, node, which))
            found = ChannelsLast(
                found.units + more.units, found.handed | more.handed, found.brought | more.brought
            )
    return found


def is_picture(model: TypedNodes, value: int) -> bool:
    kind = model.type_of(value)
    return kind is not None and len(kind.shape) == RANK and not model.is_constant(value)


@pytest.mark.parametrize("seed", by_day.first(6, range(24)))
def test_random_models_give_what_they_did(seed: int) -> None:
    made = RandomPictures(seed)
    data = made.build()
    graph = ModelGraph(data)
    laid = LaidOutGraph(graph, some_layouts(TypedNodes.of_graph(graph), seed))
    assert laid.nhwc and laid.key == graph.key and laid.names != graph.names
    assert (laid.input_names, laid.output_names) == (graph.input_names, graph.output_names)
    feed = made.feed(seed)
    assert_same(wanted(laid.model.SerializeToString(), feed), wanted(data, feed))
    as_said = ChannelsLast.from_json(laid.nhwc.to_json())
    of_structure = laid_out_form(TypedNodes.of_structure(structure_of(graph)), as_said)
    assert of_structure == laid.form


class PicturesInBodies(RandomBodies):
    """Branches, loops and scans within each other, most of whose values are of four dimensions."""

    shapes = ((2, 3, 4, 5), (4,), (2, 3, 4, 5), (2, 3, 4))


@pytest.mark.parametrize("seed", by_day.first(6, range(30)))
def test_random_bodies_give_what_they_did(seed: int) -> None:
    made = PicturesInBodies(seed)
    data = made.build()
    graph = ModelGraph(data)
    laid = LaidOutGraph(graph, some_layouts(TypedNodes.of_graph(graph), seed))
    for at in range(2):
        feed = made.feed(at)
        both = zip(wanted(laid.model.SerializeToString(), feed), wanted(data, feed), strict=True)
        # What a loop of no iterations stacks has the shape that ONNX Runtime could infer: it may know more.
        some = [(one, other) for one, other in both if one.size or other.size]
        assert_same([one for one, _ in some], [other for _, other in some])
    assert laid_out_form(TypedNodes.of_structure(structure_of(graph)), laid.nhwc) == laid.form


def test_units_that_follow_one_another_hand_their_values_on_channels_last() -> None:
    """Conv → Relu → Conv: one Transpose in, one out, and between them none but the units' own."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["z"]),
    ]
    made = model(nodes, {"x": SHAPE}, ["z"], {"w": np.ones((4, 4, 1, 1), np.float32)})
    made.ir_version = 10
    graph = ModelGraph(made.SerializeToString())
    laid = LaidOutGraph(graph, ChannelsLast(((0,), (1,), (2,))))
    types = [node.proto.op_type for node in laid.nodes]
    assert types == ["Transpose", *("Transpose", "Conv", "Transpose"), "Relu",
                     *("Transpose", "Conv", "Transpose"), "Transpose"]  # fmt: skip
    assert laid.form.reorders == [0, 8] and laid.form.units == ((1, 2, 3), (4,), (5, 6, 7))
    relu = laid.nodes[4]
    kind = laid.type_of(relu.inputs[0])
    assert kind is not None and kind.shape == (2, 6, 5, 4)
    assert [laid.own_nodes(unit) for unit in laid.form.units] == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("units", "said"),
    [
        (((0, 0),), "in their order"),
        (((7,),), "in their order"),
        (((0,), (0,)), "in two units"),
        (((1, 2),), "what it makes within is read outside"),
        (((3,),), "no value of 4 dimensions"),
    ],
)
def test_units_that_cannot_be_are_refused(units: tuple[tuple[int, ...], ...], said: str) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Flatten", ["b"], ["d"]),
    ]
    made = model(nodes, {"x": SHAPE}, ["c", "d"])
    made.ir_version = 10
    with pytest.raises(NotLaidOut, match=said):
        LaidOutGraph(ModelGraph(made.SerializeToString()), ChannelsLast(units))


def test_a_form_that_gives_other_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = RandomPictures(0)
    graph = ModelGraph(made.build())
    nhwc = some_layouts(TypedNodes.of_graph(graph), 0)
    assert forms.laid_out_graph(graph, nhwc, made.feed(), 1).nhwc == nhwc

    class Wrong(LaidOutGraph):
        def _laid_model(self, names: Sequence[str]) -> onnx.ModelProto:
            model = super()._laid_model(names)
            floats = (one for one in model.graph.initializer if one.data_type == onnx.TensorProto.FLOAT)
            bias = next(one for one in floats if len(one.dims) == 1)
            bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + 1, bias.name))
            return model

    monkeypatch.setattr(forms, "LaidOutGraph", Wrong)
    with pytest.raises(NotLaidOut, match="other values"):
        forms.laid_out_graph(graph, nhwc, made.feed(), 1)


def test_weights_that_are_inputs_too_may_be_given() -> None:
    """To the model as it was given: of the laid-out form they are constants, and may be folded."""
    nodes = [helper.make_node("Neg", ["w"], ["v"]), helper.make_node("Mul", ["x", "v"], ["z"])]
    made = model(nodes, {"x": SHAPE, "w": (1,)}, ["z"], {"w": np.array([2.0], np.float32)})
    made.ir_version = 10
    graph = ModelGraph(made.SerializeToString())
    laid = LaidOutGraph(graph, ChannelsLast(((0,),)))
    plan = whole(laid, *PLACE)
    check_plan(plan, laid, *PLACE)
    running = Executor(laid, plan, lambda by: None, threads=1)  # type: ignore[arg-type, return-value]
    x = np.linspace(-1, 1, 240, dtype=np.float32).reshape(SHAPE)
    assert_same(running.run({"x": x}), [-2 * x])
    assert_same(running.run({"x": x, "w": np.array([3.0], np.float32)}), [-3 * x])
    running.close()
