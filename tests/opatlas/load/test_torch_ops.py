"""Every PyTorch call means what ONNX says: compared with ONNX's own reference on awkward attributes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from opatlas.load.torch.graph import missing, run_graph  # noqa: E402
from opatlas.load.torch.ops.names import FAMILY_OF  # noqa: E402
from opatlas.load.torch.ops.types import to_array, to_tensor  # noqa: E402
from tests import by_day  # noqa: E402
from tests.opatlas.load.cases import FAMILIES  # noqa: E402
from tests.opatlas.load.operators import Case, expected, expected_by_ort, normal, operator_of  # noqa: E402

ALL = [pytest.param(case, id=f"{family}-{case}") for family, cases in FAMILIES.items() for case in cases]


def answer(case: Case) -> list[np.ndarray]:
    """ONNX Runtime's answer where it has the operator at this opset, else the reference evaluator's."""
    try:
        return expected_by_ort(case)
    except Exception:
        return expected(case)


@pytest.mark.parametrize("case", by_day.one_of_each(lambda case: case.op, ALL))
def test_call_equals_onnx(case: Case) -> None:
    operator, inputs = operator_of(case)
    assert missing(operator) is None
    tensors = {number: to_tensor(array) for number, array in inputs.items()}
    made = run_graph(operator, tensors)
    wanted = answer(case)
    assert len(made) == len(wanted) == len(operator.outputs)
    for tensor, value, want in zip(made, operator.output_values, wanted, strict=True):
        assert tuple(tensor.shape) == value.shape == want.shape
        assert str(tensor.dtype) == f"torch.{value.dtype}"
        np.testing.assert_allclose(to_array(tensor.contiguous(), value.dtype), want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("family", sorted(set(FAMILY_OF.values())))
def test_names_are_what_the_families_build(family: str) -> None:
    module = __import__(f"opatlas.load.torch.ops.{family}", fromlist=["BUILDERS"])
    assert set(module.BUILDERS) == {name for name, place in FAMILY_OF.items() if place == family}


def test_even_lrn_window_leans_forward() -> None:
    """ONNX Runtime has odd windows only and the reference evaluator mixes up batch and channels."""
    x = np.random.default_rng(0).standard_normal((2, 7, 3, 3)).astype(np.float32)
    operator, inputs = operator_of(Case("LRN", [x], {"size": 4, "alpha": 0.1}))
    (made,) = run_graph(operator, {0: torch.from_numpy(inputs[0])})
    sums = np.stack([(x[:, max(0, c - 1) : c + 3] ** 2).sum(1) for c in range(7)], 1)
    np.testing.assert_allclose(made.numpy(), x / (1 + 0.1 / 4 * sums) ** 0.75, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_graph_runs_in_another_float_type(dtype: torch.dtype) -> None:
    """A float64 reference is the same graph on float64 tensors, casts and made constants included."""
    operator, inputs = operator_of(Case("Cast", [np.ones((2, 3), np.float32)], {"to": 10}))
    (made,) = run_graph(operator, {0: torch.from_numpy(inputs[0]).to(dtype)})
    assert made.dtype == dtype


def test_missing_says_why() -> None:
    operator, _ = operator_of(Case("Det", [np.ones((2, 3, 3), np.float32)]))
    assert missing(operator) is None
    from dataclasses import replace

    odd = replace(operator, nodes=(replace(operator.nodes[0], op="NonMaxSuppression"),))
    assert missing(odd) == "no PyTorch call is known for NonMaxSuppression"


def test_statistics_of_a_layer_norm_keep_their_wide_type() -> None:
    case = Case("LayerNormalization", [normal(3, 8).astype(np.float16), np.ones(8, np.float16)], outputs=3)
    operator, inputs = operator_of(case)
    made = run_graph(operator, {number: torch.from_numpy(array) for number, array in inputs.items()})
    assert [tensor.dtype for tensor in made] == [torch.float16, torch.float32, torch.float32]


def test_half_precision_limits_are_known_beforehand() -> None:
    operator, _ = operator_of(Case("LRN", [normal(1, 4, 3, 3).astype(np.float16)], {"size": 3}))
    assert missing(operator) == "PyTorch's CPU has no float16 LRN"
