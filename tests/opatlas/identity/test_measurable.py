"""Element types that no kernel can be given are refused where operators are taken from models or callers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from opatlas.errors import InvalidOperator
from opatlas.graph.onnx_model import extract
from opatlas.identity import check_measurable, parse_operator
from opatlas.identity.dtypes import CODES, PACKED
from opatlas.load.dtypes import ONNX_NUMBER, numpy_dtype


def cast(dtype: str) -> dict[str, object]:
    return {
        "op": "Cast",
        "attrs": {"to": CODES[dtype]},
        "inputs": [{"dtype": "float32", "shape": [4]}],
    }


@pytest.mark.parametrize("dtype", sorted(set(CODES) - {"complex64", "complex128"}))
def test_what_has_an_array_can_be_measured_and_nothing_else(dtype: str) -> None:
    operator = parse_operator(cast(dtype))
    if dtype in ONNX_NUMBER:
        check_measurable(operator)
        assert np.zeros(3, numpy_dtype(dtype)).nbytes >= 3
    else:
        said = f"ONNX packs two {dtype} elements into a byte"
        with pytest.raises(InvalidOperator, match=said):
            check_measurable(operator)
    assert (dtype in PACKED) is (dtype not in ONNX_NUMBER)


def test_a_model_with_4_bit_values_leaves_those_nodes_unmapped_and_has_the_others() -> None:
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [0.1])
    zero = helper.make_tensor("zero", TensorProto.UINT4, [], [8])
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "zero"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "zero"], ["d"]),
            helper.make_node("Relu", ["d"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 512])],
        [scale, zero],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    found = extract(model.SerializeToString())
    assert [one.operator.op_types for one in found.operators] == [("Relu",)]
    assert sorted(reason.split(" into")[0] for reason in found.unmapped) == [
        "DequantizeLinear: ONNX packs two uint4 elements",
        "QuantizeLinear: ONNX packs two uint4 elements",
    ]
