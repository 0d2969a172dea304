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
        said = f"Cast has a tensor of {dtype}, of which ONNX packs two elements into a byte"
        with pytest.raises(InvalidOperator, match=said):
            check_measurable(operator)
    assert (dtype in PACKED) is (dtype not in ONNX_NUMBER)


def test_a_model_with_int4_weights_leaves_those_nodes_unmapped_and_has_the_others() -> None:
    """As quantisers write them: DequantizeLinear over 4-bit weights, then a product."""
    weight = helper.make_tensor("w", TensorProto.INT4, [512, 64], bytes(512 * 32), raw=True)
    scale = helper.make_tensor("s", TensorProto.FLOAT, [64], [0.1] * 64)
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1),
            helper.make_node("MatMul", ["x", "d"], ["y"]),
            helper.make_node("Relu", ["y"], ["z"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 512])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 64])],
        [weight, scale],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    found = extract(model.SerializeToString())
    named = {op for one in found.operators for op in one.operator.op_types}
    assert {"MatMul", "Relu"} <= named and "DequantizeLinear" not in named
    assert [reason for reason in found.unmapped if "int4" in reason] or found.folded
