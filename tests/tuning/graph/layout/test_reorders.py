"""Reorders as operators: what ONNX Runtime makes of one is the tensor as NumPy lays it out."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto

from opatlas.graph.types import TensorType
from opatlas.identity import to_onnx
from tuning.graph.layout.names import misfit, settled
from tuning.graph.layout.reorders import BYTES_PER_US, CALL_US, ReorderCosts, reorder_operator

KIND = TensorType(TensorProto.FLOAT, (2, 16, 3, 5))
X = np.arange(KIND.size, dtype=np.float32).reshape(KIND.shape)
STORED: dict[str, Any] = {
    "row-major": X,
    "NHWC": X.transpose(0, 2, 3, 1),
    "HWCN": X.transpose(2, 3, 1, 0),
    "NCHW8c": X.reshape(2, 2, 8, 3, 5).transpose(0, 1, 3, 4, 2),
    "NCHW16c": X.reshape(2, 1, 16, 3, 5).transpose(0, 1, 3, 4, 2),
    "NHWC8c": X.reshape(2, 2, 8, 3, 5).transpose(0, 3, 4, 1, 2),
}


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(STORED, 2)))
def test_a_reorder_gives_the_tensor_in_its_new_layout(source: str, target: str) -> None:
    operator = reorder_operator(KIND, source, target)
    if {source, target} & {"NCHW16c"} and {source, target} & {"NCHW8c", "NHWC8c"}:
        assert operator is None  # from blocks to other blocks
        return
    assert operator is not None
    session = ort.InferenceSession(to_onnx(operator).SerializeToString())
    given = {session.get_inputs()[0].name: np.ascontiguousarray(STORED[source])}
    np.testing.assert_array_equal(session.run(None, given)[0], STORED[target])


def test_a_layout_whose_name_says_nothing_has_no_operator() -> None:
    assert reorder_operator(KIND, "row-major", "L1") is None
    assert reorder_operator(KIND, "buffer", "NHWC") is None


def test_what_is_published_is_taken_and_what_is_not_is_marked() -> None:
    known = ReorderCosts({(KIND, "row-major", "NHWC"): 7.0})
    assert (known.cost(KIND, "NCHW", "NHWC").us, known.cost(KIND, "NCHW", "NHWC").is_estimate) == (7.0, False)
    guess = known.cost(KIND, "NHWC", "NCHW")
    assert guess.is_estimate and guess.us == CALL_US + 2 * 4 * math.prod(KIND.shape) / BYTES_PER_US


def test_names_say_which_tensors_a_layout_is_of() -> None:
    assert settled("NCHW") == settled("OIHW") == settled("row-major") == "row-major"
    assert settled("HWIO") == "HWIO"
    assert not any(misfit(one, KIND) for one in ("NHWC", "NCHW16c", "L1", "buffer"))
    assert misfit("NCHW32c", KIND) == "NCHW32c splits 16 of [2, 16, 3, 5] by 32, which does not divide it"
    assert misfit("NHWC", TensorType(TensorProto.FLOAT, (2, 3))) == "NHWC is of 4 dimensions, not of [2, 3]"
    assert misfit("NHWC", None) and not misfit("row-major", None)
    assert misfit("NCHW0c", KIND) == ""  # no block: a name like any other
