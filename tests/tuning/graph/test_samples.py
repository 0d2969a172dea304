"""Sample models with random weights: the output must tell inputs and weights apart."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from opatlas.errors import InvalidModel
from opatlas.graph import extract
from tests.tuning.graph import making
from tuning.graph import sample_graph, sample_model
from tuning.graph.weights import randomise_weights


def _outputs(data: bytes, count: int = 2) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(5)
    name, shape = session.get_inputs()[0].name, session.get_inputs()[0].shape
    return [
        session.run(None, {name: random.standard_normal(shape).astype(np.float32)})[0] for _ in range(count)
    ]


@pytest.mark.parametrize("name", ["resnet50", "squeezenet"])
def test_random_weights_let_the_input_show_in_the_output(name: str) -> None:
    first, second = _outputs(sample_model(name))
    assert np.isfinite(first).all()
    assert np.abs(first - second).max() > 0.02 * np.abs(first).max()
    assert first.std() > 1e-4


def test_random_weights_change_no_operator() -> None:
    with_weights, as_shipped = extract(sample_model("squeezenet")), extract(sample_graph("squeezenet"))
    assert {(f.operator.key, f.calls) for f in with_weights.operators} == {
        (f.operator.key, f.calls) for f in as_shipped.operators
    }


def test_the_same_seed_gives_the_same_weights() -> None:
    assert sample_model("squeezenet", seed=3) == sample_model("squeezenet", seed=3)
    assert sample_model("squeezenet", seed=3) != sample_model("squeezenet", seed=4)


def test_an_unknown_sample_lists_those_there_are() -> None:
    with pytest.raises(InvalidModel, match="there are resnet50, vgg19"):
        sample_graph("../../etc/passwd")


def test_weights_are_drawn_by_what_they_are_used_for() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "s", "o", "m", "v"], ["n"]),
        helper.make_node("Pow", ["n", "two"], ["y"]),
    ]
    shapes = {"w": (64, 32, 3, 3), "b": (64,), "s": (64,), "o": (64,), "m": (64,), "v": (64,)}
    constants = {name: np.full(shape, 0.02, np.float32) for name, shape in shapes.items()}
    model = making.model(nodes, {"x": [1, 32, 8, 8]}, ["y"], {**constants, "two": np.float32(2)})
    drawn = {t.name: numpy_helper.to_array(t) for t in randomise_weights(model).graph.initializer}
    assert drawn["w"].std() == pytest.approx(np.sqrt(2 / (32 * 9)), rel=0.05)
    assert drawn["v"].min() > 0
    assert 0.5 < drawn["s"].mean() < 1
    assert drawn["two"] == 2


def test_weights_that_only_bodies_read_are_drawn_and_those_of_bodies_too() -> None:
    """A loop within a branch: one weight is the model's, one the loop's, and the count and the bound stay."""
    flat = {name: np.full((64, 64), 0.02, np.float32) for name in ("w", "inner")}
    given = [("turn", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("c", TensorProto.FLOAT, None)]
    loop = helper.make_graph(
        [
            helper.make_node("MatMul", ["c", "w"], ["p"]),
            helper.make_node("MatMul", ["p", "inner"], ["q"]),
            helper.make_node("Clip", ["q", "", "most"], ["d"]),
        ],
        "loop", [helper.make_tensor_value_info(*one) for one in given],
        [helper.make_empty_tensor_value_info(name) for name in ("go", "d")],
        [numpy_helper.from_array(flat["inner"], "inner")],
    )  # fmt: skip
    then, other = (
        helper.make_graph([node], "branch", [], [helper.make_empty_tensor_value_info(node.output[0])])
        for node in (
            helper.make_node("Loop", ["three", "", "x"], ["t"], body=loop),
            helper.make_node("Neg", ["x"], ["e"]),
        )
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "low"], ["taken"]),
        helper.make_node("If", ["taken"], ["y"], then_branch=then, else_branch=other),
    ]
    kept = {"three": np.array(3), "most": np.float32(9), "low": np.float32(-1e6)}
    made = making.model(nodes, {"x": [2, 64]}, ["y"], {"w": flat["w"], **kept})
    made.ir_version = 10
    drawn = randomise_weights(made)
    weights = {one.name: numpy_helper.to_array(one) for one in drawn.graph.initializer}
    assert weights.keys() == {"w", *kept} and all(weights[name] == value for name, value in kept.items())
    branch = next(one.g for one in drawn.graph.node[2].attribute if one.name == "then_branch")
    [own] = branch.node[0].attribute[0].g.initializer
    for weight in (weights["w"], numpy_helper.to_array(own)):
        assert weight.std() == pytest.approx(np.sqrt(2 / 64), rel=0.05)
    first, second = _outputs(drawn.SerializeToString())
    assert np.isfinite(first).all() and np.abs(first - second).max() > 0.02 * np.abs(first).max()
