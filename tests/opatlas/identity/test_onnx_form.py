"""A canonical operator as an ONNX model, and back."""

import numpy as np
import onnx
import pytest

from opatlas.identity import canonicalise, parse_operator, to_onnx
from tests.opatlas.identity.examples import EXAMPLES, GRAPHS, Document, known, node, tensor, weight


@pytest.mark.parametrize("document", [*EXAMPLES, *GRAPHS], ids=lambda document: document.get("op", "graph"))
def test_the_round_trip_keeps_everything(document: Document) -> None:
    operator = parse_operator(document)
    model = to_onnx(operator)
    assert canonicalise(model).operator == operator
    assert canonicalise(onnx.ModelProto.FromString(model.SerializeToString())).operator == operator
    onnx.checker.check_model(model)


def test_inputs_with_data_are_initializers_and_the_others_are_inputs() -> None:
    operator = parse_operator(node("Conv", tensor(1, 3, 8, 8), weight(4, 3, 3, 3)))
    model = to_onnx(operator)
    assert [info.name for info in model.graph.input] == ["in0", "in1"]
    reshaped = to_onnx(parse_operator(node("Reshape", tensor(5, 7), known(7, 5))))
    assert [item.name for item in reshaped.graph.initializer] == ["in1"]
    assert [info.name for info in reshaped.graph.output] == ["out0"]


def test_constants_that_are_given_become_initializers() -> None:
    operator = parse_operator(node("Conv", tensor(1, 3, 8, 8), weight(4, 3, 3, 3)))
    values = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32")
    model = to_onnx(operator, {1: values})
    assert [info.name for info in model.graph.input] == ["in0"]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(model.graph.initializer[0]), values)
    assert canonicalise(model).operator == operator
    with pytest.raises(ValueError, match="the operator says"):
        to_onnx(operator, {1: values[:2]})


def test_bfloat16_constants_can_be_given() -> None:
    import ml_dtypes

    operator = parse_operator(node("MatMul", tensor(5, 7, dtype="bfloat16"), weight(7, 4, dtype="bfloat16")))
    model = to_onnx(operator, {1: np.ones((7, 4), dtype=ml_dtypes.bfloat16)})
    assert canonicalise(model).operator == operator
