"""A loop that only its own condition ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

EVEN, ODD = {"n": np.array(10)}, {"n": np.array(9)}
"""With the one it ends after five turns, with the other never."""
_KNOWN = {"two": np.int64(2), "zero": np.int64(0), "true": np.bool_(True), "most": np.int64(2**63 - 1)}


def halving(
    turns: str = "",
    ends: str = "c_out",
    before: Sequence[onnx.NodeProto] = (),
    more: Mapping[str, np.ndarray] | None = None,
) -> bytes:
    """Down by two until it is 0; ``s`` is the sum. ``turns``: the name of the most; ``ends``: of the body's
    condition; ``before``: nodes before the loop, with ``more`` constants."""
    number = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Sub", ["n_in", "two"], ["n_out"]),
            helper.make_node("Equal", ["n_out", "zero"], ["e"]),
            helper.make_node("Not", ["e"], ["c_out"]),
            helper.make_node("Identity", ["c_in"], ["same"]),
            helper.make_node("Add", ["s_in", "n_out"], ["s_out"]),
        ],
        "body",
        [
            number("i", TensorProto.INT64, []), number("c_in", TensorProto.BOOL, []),
            number("n_in", TensorProto.INT64, []), number("s_in", TensorProto.INT64, []),
        ],
        [
            number(ends, TensorProto.BOOL, []), number("n_out", TensorProto.INT64, []),
            number("s_out", TensorProto.INT64, []),
        ],
    )  # fmt: skip
    loop = helper.make_node("Loop", [turns, "true", "n", "zero"], ["n_last", "s"], name="down", body=body)
    graph = helper.make_graph(
        [*before, loop],
        "halving",
        [number("n", TensorProto.INT64, [])],
        [number("s", TensorProto.INT64, [])],
        [numpy_helper.from_array(np.array(one), name) for name, one in {**_KNOWN, **(more or {})}.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
