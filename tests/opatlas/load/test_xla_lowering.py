"""Operators lowered to XLA mean what ONNX says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from opatlas.identity import Operator  # noqa: E402
from opatlas.load.xla.lower import lowered  # noqa: E402
from opatlas.load.xla.table import FAMILY_OF, missing  # noqa: E402
from tests import by_day  # noqa: E402
from tests.opatlas.load.cases import FAMILIES  # noqa: E402
from tests.opatlas.load.operators import Case, expected, expected_by_ort, normal, operator_of  # noqa: E402

SUPPORTED = [
    pytest.param(case, id=f"{family}-{case}")
    for family, cases in FAMILIES.items()
    for case in (cases[::3] if family in ("resizes", "reductions") else cases)
    if case.op in FAMILY_OF and not (case.op == "MaxPool" and case.outputs > 1) and not case.strides
]
"""Layouts have tests of their own, through the loader."""


# What is lowered is tested, not what LLVM makes of it, which takes most of the time.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def jitted(operator: Operator, variant: str) -> Callable[..., Any]:
    return jax.jit(lowered(operator, variant), compiler_options=QUICK)


def answer(case: Case) -> list[np.ndarray]:
    """ONNX Runtime's answer where it has the operator at this opset, else the reference evaluator's."""
    try:
        return expected_by_ort(case)
    except Exception:
        return expected(case)


@pytest.mark.parametrize("case", by_day.one_of_each(lambda case: case.op, SUPPORTED))
def test_lowering_equals_onnx(case: Case) -> None:
    operator, inputs = operator_of(case)
    assert missing(operator) is None
    dense = [np.array(inputs[number]) for number in operator.tensor_inputs]
    with jax.enable_x64(True):
        made = [np.asarray(array) for array in jitted(operator, "plain")(*dense)]
    wanted = answer(case)
    assert len(made) == len(wanted) == len(operator.outputs)
    for array, value, want in zip(made, operator.output_values, wanted, strict=True):
        assert array.shape == value.shape == want.shape and str(array.dtype) == value.dtype
        np.testing.assert_allclose(array, want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("variant", ["channels-last", "product", "shifted"])
@pytest.mark.parametrize(
    "case", by_day.first(2, [case for case in FAMILIES["convolutions"] if case.op == "Conv"][2:12]), ids=str
)
def test_every_way_of_writing_a_convolution_down_is_the_same(case: Case, variant: str) -> None:
    operator, inputs = operator_of(case)
    made = jitted(operator, variant)(*[inputs[number] for number in operator.tensor_inputs])
    np.testing.assert_allclose(np.asarray(made[0]), answer(case)[0], rtol=2e-4, atol=2e-5)


POOLS = [case for case in FAMILIES["pools"] if case.op in ("MaxPool", "AveragePool") and case.outputs == 1]


@pytest.mark.parametrize("case", by_day.one_of_each(lambda case: case.op, POOLS), ids=str)
def test_pools_of_slices_are_the_same(case: Case) -> None:
    operator, inputs = operator_of(case)
    made = jitted(operator, "shifted")(inputs[0])
    np.testing.assert_allclose(np.asarray(made[0]), answer(case)[0], rtol=2e-4, atol=2e-5)


def bytes_of(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    low = np.iinfo(dtype).min
    return np.random.default_rng(2).integers(low, low + 256, shape).astype(dtype)


NARROW = [
    Case("QuantizeLinear", [normal(3, 8), np.float32(0.02), np.uint8(7)]),
    Case(
        "QuantizeLinear",
        [normal(3, 8), np.full(8, 0.03, np.float32), bytes_of(8, dtype=np.int8)],
        {"axis": 1},
    ),
    Case("DequantizeLinear", [bytes_of(3, 8), np.float32(0.02), np.uint8(7)]),
    Case("DequantizeLinear", [bytes_of(3, 8), np.full(3, 0.1, np.float32), bytes_of(3)], {"axis": 0}),
    Case("DynamicQuantizeLinear", [normal(3, 8)], outputs=3),
    Case("MatMulInteger", [bytes_of(3, 8), bytes_of(8, 5)]),
    Case("MatMulInteger", [bytes_of(3, 8), bytes_of(8, 5, dtype=np.int8), np.uint8(9), np.int8(-3)]),
    Case(
        "ConvInteger",
        [bytes_of(1, 2, 6, 6), bytes_of(3, 2, 3, 3), np.uint8(5), np.uint8(3)],
        {"pads": [1] * 4},
    ),
]


@pytest.mark.parametrize("case", by_day.one_of_each(lambda case: case.op, NARROW), ids=str)
def test_whole_numbers_of_8_bits_are_exact(case: Case) -> None:
    case = replace(case, inputs=[np.asarray(array) for array in case.inputs])
    operator, inputs = operator_of(case)
    with jax.enable_x64(True):
        made = jitted(operator, "plain")(*[inputs[number] for number in operator.tensor_inputs])
    for array, value, want in zip(made, operator.output_values, answer(case), strict=True):
        assert str(array.dtype) == value.dtype
        np.testing.assert_allclose(np.asarray(array), want, rtol=1e-6)
