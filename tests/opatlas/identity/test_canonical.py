"""What an operator's canonical form says, and what it leaves out."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from opatlas.errors import InvalidOperator
from opatlas.identity import Operator, canonicalise, parse_operator, to_onnx
from opatlas.identity.operator import OPSET
from tests.opatlas.identity.examples import IMAGE, MATRIX, TOKENS, graph, known, node, step, tensor, weight

LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("light_*.onnx"))


def attributes(document: dict[str, Any]) -> dict[str, Any]:
    return parse_operator(document).nodes[0].attributes


def test_a_convolution_says_every_default() -> None:
    assert attributes(node("Conv", IMAGE, weight(4, 6, 3, 3))) == {
        "dilations": (1, 1),
        "group": 1,
        "kernel_shape": (3, 3),
        "pads": (0, 0, 0, 0),
        "strides": (1, 1),
    }


@pytest.mark.parametrize(
    ("auto_pad", "pads"),
    [("SAME_UPPER", (0, 1, 1, 1)), ("SAME_LOWER", (1, 1, 0, 1)), ("VALID", (0, 0, 0, 0))],
)
def test_auto_pad_becomes_pads(auto_pad: str, pads: tuple[int, ...]) -> None:
    image = tensor(1, 6, 8, 9)
    given = attributes(node("Conv", image, weight(4, 6, 3, 3), auto_pad=auto_pad, strides=[2, 2]))
    assert given == attributes(node("Conv", image, weight(4, 6, 3, 3), pads=list(pads), strides=[2, 2]))


def test_negative_axes_become_positive() -> None:
    assert parse_operator(node("Softmax", TOKENS)) == parse_operator(node("Softmax", TOKENS, axis=2))
    assert parse_operator(node("ReduceSum", TOKENS, known(-1, 0))) == parse_operator(
        node("ReduceSum", TOKENS, known(0, 2))
    )
    assert parse_operator(node("Concat", MATRIX, MATRIX, axis=-1)) == parse_operator(
        node("Concat", MATRIX, MATRIX, axis=1)
    )


def test_what_only_training_reads_is_dropped() -> None:
    norm = node("BatchNormalization", IMAGE, *[weight(6)] * 4, momentum=0.5)
    assert "momentum" not in attributes(norm)
    assert parse_operator(node("Dropout", IMAGE)).op_types == ("Identity",)


def test_a_batch_norm_in_training_mode_keeps_its_momentum_and_outputs() -> None:
    norm = node("BatchNormalization", IMAGE, *[weight(6)] * 4, training_mode=1, outputs=3)
    operator = parse_operator(norm)
    assert operator.nodes[0].attributes["momentum"] == 0.9
    assert len(operator.outputs) == 3


def test_einsum_subscripts_are_names() -> None:
    operands = (tensor(2, 3, 4), tensor(2, 4, 5))
    assert attributes(node("Einsum", *operands, equation="zij, zjk -> zik"))["equation"] == "abc,acd->abd"


def test_rounding_up_that_changes_nothing_is_dropped() -> None:
    even = node("MaxPool", tensor(1, 1, 8, 8), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    odd = node("MaxPool", tensor(1, 1, 9, 9), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    assert attributes(even)["ceil_mode"] == 0
    assert attributes(odd)["ceil_mode"] == 1


def test_optional_outputs_that_nobody_reads_are_dropped() -> None:
    with_mean = graph(step("LayerNormalization", [0, 1], [2, 3, 4]), inputs=[TOKENS, weight(12)], outputs=[2])
    assert parse_operator(with_mean) == parse_operator(node("LayerNormalization", TOKENS, weight(12)))


def test_parts_of_a_split_that_nobody_reads_still_count() -> None:
    """A part less would not go with the sizes any more."""
    first = parse_operator(
        graph(step("Split", [0, 1], [2, 3], axis=0), inputs=[MATRIX, known(2, 3)], outputs=[2])
    )
    assert first.output_values[0].shape == (2, 7)
    assert len(first.nodes[0].outputs) == 2
    both = parse_operator(node("Split", MATRIX, known(2, 3), axis=0))
    assert first.key != both.key


def test_an_output_that_is_read_keeps_those_before_it() -> None:
    deviation = graph(
        step("LayerNormalization", [0, 1], [2, 3, 4]), inputs=[TOKENS, weight(12)], outputs=[2, 4]
    )
    operator = parse_operator(deviation)
    assert len(operator.nodes[0].outputs) == 3
    assert [value.shape for value in operator.output_values] == [(2, 5, 12), (2, 5, 1)]


NOTHING = "The graph computes nothing; it needs at least one node and one output."


@pytest.mark.parametrize(
    ("document", "sentence", "where"),
    [
        (graph(inputs=[MATRIX], outputs=[0]), NOTHING, "nodes"),
        (graph(step("Relu", [0], [1]), inputs=[MATRIX], outputs=[]), NOTHING, "nodes"),
        (
            graph(step("Relu", [0], [0]), inputs=[MATRIX], outputs=[0]),
            "Two values are called 'inputs[0]'; names must be unique.",
            "",
        ),
        (
            graph(step("Relu", [0], [1]), step("Tanh", [0], [1]), inputs=[MATRIX], outputs=[1]),
            "Two values are called 'value 1'; names must be unique.",
            "",
        ),
        (
            graph(step("Relu", [2], [1]), inputs=[MATRIX], outputs=[1]),
            "Relu reads 'value 2', which nothing produces.",
            "",
        ),
        (
            graph(step("Relu", [2], [1]), step("Tanh", [1], [2]), inputs=[MATRIX], outputs=[1]),
            "The graph has a cycle; every value must be made before it is read.",
            "",
        ),
        (
            graph(step("Relu", [0], [1]), inputs=[MATRIX], outputs=[5]),
            "Output 'value 5' is no node's result; every output must be computed.",
            "outputs",
        ),
        (
            graph(step("Relu", [0], [1]), step("Softmax", [1], [2], axis=9), inputs=[MATRIX], outputs=[2]),
            "Softmax: axis 9 is outside the 2 dimensions of its input.",
            "nodes[1]",
        ),
    ],
)
def test_what_is_no_graph_is_told_in_one_sentence(document: Any, sentence: str, where: str) -> None:
    with pytest.raises(InvalidOperator) as caught:
        parse_operator(document)
    assert (str(caught.value), caught.value.where) == (sentence, where)


def test_an_empty_input_is_told_by_its_name_and_one_that_only_shapes_may_be_empty() -> None:
    nothing = {"data": [], "dtype": "float32", "shape": [0, 7]}
    with pytest.raises(InvalidOperator) as caught:
        parse_operator(node("Concat", MATRIX, nothing, axis=0))
    assert str(caught.value) == "'inputs[1]' is an empty tensor [0, 7]; there is nothing to compute."
    scalar = node("Reshape", tensor(1, 1), {"data": [], "dtype": "int64", "shape": [0]})
    assert parse_operator(scalar).output_values[0].shape == ()


def test_so_many_nodes_make_one_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    from opatlas.identity import canonical

    monkeypatch.setattr(canonical, "MAX_NODES", 2)
    chain = [step(op, [number], [number + 1]) for number, op in enumerate(("Relu", "Tanh", "Abs"))]
    parse_operator(graph(*chain[:2], inputs=[MATRIX], outputs=[2]))
    with pytest.raises(InvalidOperator) as caught:
        parse_operator(graph(*chain, inputs=[MATRIX], outputs=[3]))
    assert str(caught.value) == (f"The graph has 3 nodes at ONNX opset {OPSET}; at most 2 make one operator.")


def test_nodes_that_no_output_needs_are_dropped() -> None:
    idle = graph(step("Relu", [0], [2]), step("Tanh", [1], [3]), inputs=[MATRIX, MATRIX], outputs=[2])
    assert parse_operator(idle) == parse_operator(node("Relu", MATRIX))


def test_values_of_weights_stay_out_and_values_that_shape_stay_in() -> None:
    operator = parse_operator(node("Reshape", MATRIX, known(7, -1)))
    assert operator.inputs[1].data == (7, 5)
    added = parse_operator(node("Add", MATRIX, {"data": [1.0] * 7, "dtype": "float32"}))
    assert added.inputs[1].data is None
    assert added.inputs[1].role == "const"


def test_a_known_exponent_shapes_the_computation() -> None:
    square = node("Pow", MATRIX, {"value": 2.0, "dtype": "float32"})
    assert parse_operator(square).inputs[1].data == (2.0,)
    assert parse_operator(square).key != parse_operator(node("Pow", MATRIX, weight())).key
    assert parse_operator(node("Pow", MATRIX, tensor(7))).inputs[1].data is None


# ---- ONNX models ------------------------------------------------------------------------------------


def model(initializer: bool = True, **noise: Any) -> onnx.ModelProto:
    """Relu(x @ w + b) with its constants as initializers or Constant nodes, and with noise around it."""
    constants = {"w": np.ones((7, 4), "float32"), "b": np.zeros(4, "float32")}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h1"], name="m", doc_string="a product"),
        helper.make_node("Add", ["h1", "b"], ["h2"]),
        helper.make_node("Relu", ["h2"], ["y"]),
    ]
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    if not initializer:
        nodes = [
            helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))
            for name, value in constants.items()
        ] + nodes
        initializers = []
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 7])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 4])],
        initializers,
        doc_string=noise.get("doc", ""),
        value_info=noise.get("value_info", ()),
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", noise.get("opset", 23))])


def test_re_exporting_keeps_the_operator() -> None:
    operator = canonicalise(model()).operator
    noisy = model(doc="noise", value_info=[helper.make_tensor_value_info("h1", TensorProto.FLOAT, [5, 4])])
    assert canonicalise(noisy).operator == operator
    assert canonicalise(model(initializer=False)).operator == operator
    assert canonicalise(onnx.ModelProto.FromString(noisy.SerializeToString())).operator == operator
    for opset in (13, 17, 21, 25):
        assert canonicalise(model(opset=opset)).operator == operator


def test_names_tell_which_of_the_caller_s_values_is_which() -> None:
    canonical = canonicalise(model())
    by_name = dict(zip(canonical.inputs, canonical.operator.inputs, strict=True))
    assert by_name["x"].role == "runtime"
    assert by_name["w"].role == "const"
    assert by_name["w"].shape == (7, 4)
    assert canonical.outputs == ("y",)


def reduced(opset: int, **attrs: Any) -> onnx.ModelProto:
    """The sum of x over its last axis: by an initializer called ``axes``, or by the attribute."""
    made = helper.make_graph(
        [helper.make_node("ReduceSum", ["x"] if attrs else ["x", "axes"], ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_empty_tensor_value_info("y")],
        [] if attrs else [numpy_helper.from_array(np.array([1]), "axes")],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)])


def test_an_input_that_shapes_is_named_only_where_the_caller_had_it() -> None:
    by_value, by_attribute = canonicalise(reduced(23)), canonicalise(reduced(11, axes=[1]))
    assert by_value.operator == by_attribute.operator
    assert (by_value.inputs, by_attribute.inputs) == (("x", "axes"), ("x", None))


def test_operators_of_others_are_not_taken_for_onnxs() -> None:
    foreign = model()
    foreign.graph.node[2].domain = "a.b"
    with pytest.raises(InvalidOperator, match=r"domain 'a\.b' is not known"):
        canonicalise(foreign)


def test_marked_inputs_become_constants() -> None:
    declared = model()
    for tensor_proto in declared.graph.initializer:
        info = helper.make_tensor_value_info(tensor_proto.name, TensorProto.FLOAT, tensor_proto.dims)
        declared.graph.input.append(info)
    del declared.graph.initializer[:]
    assert canonicalise(declared, const=["w", "b"]).operator == canonicalise(model()).operator
    assert canonicalise(declared).operator != canonicalise(model()).operator


def test_strides_can_be_given_for_a_model() -> None:
    relu = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_empty_tensor_value_info("y")],
    )
    made = helper.make_model(relu, opset_imports=[helper.make_opsetid("", 23)])
    operator = canonicalise(made, strides={"x": [1, 2]}).operator
    assert operator.inputs[0].strides == (1, 2)
    assert operator == parse_operator(node("Relu", tensor(2, 3, strides=[1, 2])))


def single_nodes(path: Path) -> Any:
    """Every compute node of a model by itself, with its inputs' inferred shapes."""
    whole = shape_inference.infer_shapes(onnx.load(path), data_prop=True)
    parts = whole.graph
    infos = {info.name: info for info in (*parts.value_info, *parts.input, *parts.output)}
    constants = {tensor_proto.name: tensor_proto for tensor_proto in parts.initializer}
    for made in parts.node:
        if made.op_type in ("Constant", "ConstantOfShape"):
            continue
        reads = [name for name in dict.fromkeys(made.input) if name]
        alone = helper.make_graph(
            [made],
            "g",
            [infos[name] for name in reads if name not in constants],
            [helper.make_empty_tensor_value_info(made.output[0])],
            [constants[name] for name in reads if name in constants],
        )
        yield made.op_type, helper.make_model(alone, opset_imports=whole.opset_import)


@pytest.mark.parametrize("path", LIGHT, ids=[path.stem for path in LIGHT])
def test_every_node_of_the_open_models_is_an_operator(path: Path) -> None:
    seen: dict[str, Operator] = {}
    for op_type, alone in single_nodes(path):
        operator = canonicalise(alone).operator
        assert operator.op_types == ({"Dropout": "Identity"}.get(op_type, op_type),)
        seen[operator.key] = operator
    for operator in seen.values():
        assert canonicalise(to_onnx(operator)).operator == operator
        assert parse_operator(operator.to_json()) == operator


def test_a_whole_open_model_has_one_key_whatever_its_names() -> None:
    squeezenet = onnx.load(next(path for path in LIGHT if "squeezenet" in path.name))
    for tensor_proto in squeezenet.graph.initializer:  # shapes are enough
        if tensor_proto.data_type == TensorProto.FLOAT:
            tensor_proto.ClearField("float_data")
            tensor_proto.ClearField("raw_data")
    renamed = onnx.ModelProto.FromString(squeezenet.SerializeToString())
    names: dict[str, str] = {}
    for made in renamed.graph.node:
        made.name = ""
        for field in (made.input, made.output):
            field[:] = [names.setdefault(name, f"v{len(names)}") for name in field]
    for group in (renamed.graph.input, renamed.graph.output, renamed.graph.initializer):
        for item in group:
            item.name = names.setdefault(item.name, f"v{len(names)}")
    del renamed.graph.value_info[:]
    shuffled = list(renamed.graph.node)[::-1]
    del renamed.graph.node[:]
    renamed.graph.node.extend(shuffled)
    assert canonicalise(renamed).operator.key == canonicalise(squeezenet).operator.key


def test_a_shape_that_comes_at_run_time_is_refused() -> None:
    with pytest.raises(InvalidOperator, match=r"Expand.s input 1 \(shape\) shapes the computation"):
        parse_operator(node("Expand", MATRIX, tensor(2, dtype="int64")))
