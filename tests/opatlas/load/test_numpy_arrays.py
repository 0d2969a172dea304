"""Small operators as NumPy calls: the same results as PyTorch's, kept arrays, refusals with a reason."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from opatlas.identity import Operator  # noqa: E402
from opatlas.load import LoadedKernel, LoadError  # noqa: E402
from opatlas.load.numpy_arrays import ARRAY_VIEWS, ARRAYS, missing  # noqa: E402
from opatlas.load.torch.graph import run_graph  # noqa: E402
from opatlas.load.torch.ops.types import to_tensor  # noqa: E402
from tests.opatlas.load.cases import FAMILIES  # noqa: E402
from tests.opatlas.load.operators import Case, ints, normal, operator_of, recipe_kernel  # noqa: E402
from tests.opatlas.load.test_torch_recipe import graph  # noqa: E402


def kernel_of(operator: Operator) -> LoadedKernel:
    return recipe_kernel(operator, "numpy", {"library": "numpy", "call": "arrays"})


def check(operator: Operator, inputs: dict[int, np.ndarray]) -> None:
    kernel = kernel_of(operator)
    kernel.prepare({number: inputs[number] for number in operator.constant_inputs})
    bound = kernel.bind({number: inputs[number] for number in operator.runtime_inputs})
    wanted = run_graph(operator, {number: to_tensor(array) for number, array in inputs.items()})
    for _ in range(2):
        bound.poison()
        bound()
        for made, value, want in zip(bound.outputs(), operator.output_values, wanted, strict=True):
            assert made.dtype.name == value.dtype and made.shape == value.shape
            np.testing.assert_allclose(made, want.numpy(), rtol=1e-4, atol=1e-5)


CASES = [case for cases in FAMILIES.values() for case in cases if case.op in ARRAYS | ARRAY_VIEWS]
ABLE = [case for case in CASES if missing(operator_of(case)[0]) is None]


def test_most_of_the_cases_are_made() -> None:
    assert {case.op for case in ABLE} >= ARRAYS - {"Round", "Where"} and len(ABLE) > 100


@pytest.mark.parametrize("case", ABLE, ids=str)
def test_arrays_hold_what_pytorch_computes(case: Case) -> None:
    operator, inputs = operator_of(case)
    check(operator, inputs)


def test_a_small_graph_with_a_view_inside() -> None:
    nodes = [
        ("Reshape", "x s", "r", {}),
        ("Sigmoid", "r", "g", {}),
        ("Mul", "r g", "m", {}),
        ("ReduceSum", "m a", "y", {"keepdims": 0}),
    ]
    operator = graph(nodes, {"x": (3, 4, 5)}, ["m", "y"], s=ints(12, 5), a=ints(1))
    check(operator, {0: normal(3, 4, 5)})


def test_infinities_are_results_and_warn_nobody() -> None:
    operator, _ = operator_of(Case("Div", [normal(2), normal(2)]))
    bound = kernel_of(operator).bind({0: np.array([1, 0], "f4"), 1: np.array([0, 0], "f4")})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bound()
    assert np.isposinf(bound.outputs()[0][0]) and np.isnan(bound.outputs()[0][1])


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case("Softmax", [normal(3, 4)]), "no NumPy call is known for Softmax"),
        (Case("Reshape", [normal(3, 4), ints(12)], fixed=[1]), "answers with a view"),
        (Case("Relu", [normal(3).astype("f2")]), "no fast float16"),
        (Case("Div", [np.array([7]), np.array([2])]), "means another thing"),
    ],
    ids=str,
)
def test_what_it_cannot_do_has_a_reason(case: Case, reason: str) -> None:
    operator, _ = operator_of(case)
    assert reason in str(missing(operator))
    with pytest.raises(LoadError, match=reason):
        kernel_of(operator)
