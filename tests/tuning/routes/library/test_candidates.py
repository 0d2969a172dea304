"""Every candidate of every library route, loaded as jobs load it, equals the float64 reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from opatlas.identity import Operator, Setting, detect_target  # noqa: E402
from opatlas.load import load  # noqa: E402
from opatlas.load.torch.graph import run_graph  # noqa: E402
from opatlas.load.torch.ops.types import to_tensor  # noqa: E402
from tests import by_day  # noqa: E402
from tests.opatlas.load.cases import FAMILIES  # noqa: E402
from tests.opatlas.load.operators import Case, normal, operator_of  # noqa: E402
from tests.opatlas.load.test_torch_recipe import graph  # noqa: E402
from tuning.routes.base import Budget, Candidate, Route  # noqa: E402
from tuning.routes.registry import default_candidate, route, routes_for  # noqa: E402

SETTING = Setting(threads=2)
LIBRARIES = [one for one in routes_for("cpu") if one.method == "library"]

HEAVY = [
    Case("Conv", [normal(2, 64, 14, 14), normal(64, 64, 3, 3), normal(64)], {"pads": [1] * 4}, fixed=[1, 2]),
    Case("Conv", [normal(1, 64, 28, 28), normal(64, 1, 5, 5)], {"group": 64, "pads": [2] * 4}, fixed=[1]),
    Case("MatMul", [normal(128, 256), normal(256, 96)], fixed=[1]),
    Case("MatMul", [normal(128, 256), normal(256, 96)]),
    Case("MatMul", [normal(2, 17, 256), normal(256, 96)], strides={1: (1, 256)}),
    Case("Gemm", [normal(32, 100), normal(48, 100), normal(48)], {"transB": 1}, fixed=[1, 2]),
    Case("MaxPool", [normal(1, 8, 20, 20)], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
]
FROM_FAMILIES = [
    case for family in ("linear", "convolutions", "pools", "normalisations") for case in FAMILIES[family]
]
FEW = [
    case
    for family in (
        "elementwise",
        "activations",
        "reductions",
        "movements",
        "indexing",
        "resizes",
        "attentions",
    )
    for case in FAMILIES[family][::3]
]


def candidates(operator: Operator) -> Iterator[tuple[Route, Candidate]]:
    target = detect_target()
    for one in LIBRARIES:
        if one.supports(operator, SETTING):
            for candidate in one.candidates(operator, target, SETTING, Budget(seconds=10, candidates=32)):
                yield one, candidate


def reference(operator: Operator, inputs: dict[int, np.ndarray]) -> list[np.ndarray]:
    """The graph on float64 inputs (integers stay as they are)."""
    wide = {
        number: to_tensor(array).double() if array.dtype.kind == "f" else to_tensor(array)
        for number, array in inputs.items()
    }
    return [tensor.contiguous().numpy() for tensor in run_graph(operator, wide)]


@pytest.mark.parametrize(
    "case", by_day.one_of_each(lambda case: case.op, [*HEAVY, *FROM_FAMILIES, *FEW]), ids=str
)
def test_every_candidate_equals_the_reference(case: Case, tmp_path: Path) -> None:
    operator, inputs = operator_of(case)
    wanted = reference(operator, inputs)
    target = detect_target()
    tried = 0
    for one, candidate in candidates(operator):
        artifact = one.build(operator, target, SETTING, candidate, tmp_path)
        kernel = load(artifact.manifest, artifact.folder)
        try:
            before = {number: array.copy(order="K") for number, array in inputs.items()}
            kernel.prepare({number: inputs[number] for number in operator.constant_inputs})
            bound = kernel.bind({number: inputs[number] for number in operator.runtime_inputs})
        except Exception as error:
            if one.name == "onnxruntime" and "NOT_IMPLEMENTED" in str(error):
                continue  # what ONNX Runtime lacks it says only when a session is made
            raise AssertionError(f"{one.name} {candidate.label}: {error}") from error
        for _ in range(2):
            bound()
            for made, value, want in zip(bound.outputs(), operator.output_values, wanted, strict=True):
                assert made.dtype.name == value.dtype and made.shape == value.shape
                np.testing.assert_allclose(
                    made, want, rtol=1e-3, atol=2e-4, err_msg=f"{one.name}: {candidate.label}"
                )
            bound.poison()
        for number, array in inputs.items():
            np.testing.assert_array_equal(array, before[number], err_msg=f"{one.name} wrote input {number}")
        kernel.close()
        tried += 1
    assert tried >= 1


def test_default_is_plain_eager() -> None:
    operator, _ = operator_of(HEAVY[0])
    found = default_candidate(operator, detect_target(), SETTING)
    assert found is not None
    one, candidate = found
    assert one.name == "eager"
    assert candidate.parameters == {"library": "torch", "call": "eager"}


def test_default_is_onnxruntime_where_eager_lacks_the_operator() -> None:
    operator, _ = operator_of(HEAVY[0])
    from dataclasses import replace

    odd = replace(operator, nodes=(replace(operator.nodes[0], op="NonMaxSuppression"),))
    found = default_candidate(odd, detect_target(), SETTING)
    assert found is not None and found[0].name == "onnxruntime"


def test_variants_of_a_convolution_with_constant_weights() -> None:
    operator, _ = operator_of(HEAVY[0])
    labels = {f"{one.name}: {candidate.label}" for one, candidate in candidates(operator)}
    assert {
        "eager: plain call",
        "onednn: packed weights",
        "onednn: channels-last",
        "onednn: channels-last, packed weights",
        "mkl: native kernel",
        "onnxruntime: optimised",
    } <= labels


def test_runtime_weights_are_never_packed() -> None:
    operator, _ = operator_of(Case("Conv", [normal(1, 4, 8, 8), normal(4, 4, 3, 3)]))
    assert all(candidate.parameters.get("weights") != "packed" for _, candidate in candidates(operator))


def test_one_thread_is_offered_for_small_operators_only() -> None:
    small, _ = operator_of(Case("MatMul", [normal(4, 4), normal(4, 4, seed=1)]))
    large, _ = operator_of(Case("MatMul", [normal(512, 512), normal(512, 512, seed=1)]))
    assert {candidate.parameters.get("threads") for _, candidate in candidates(small)} == {None, 1}
    assert {candidate.parameters.get("threads") for _, candidate in candidates(large)} == {None}


def test_one_thread_is_not_offered_where_pytorch_uses_one_anyway() -> None:
    operator, _ = operator_of(Case("Relu", [normal(100)]))
    for candidate in route("eager").candidates(operator, detect_target(), SETTING, Budget(seconds=1)):
        assert "threads" not in candidate.parameters


def test_large_tensors_come_from_the_heap_in_a_variant_of_its_own() -> None:
    large, _ = operator_of(Case("Softmax", [np.zeros((3000, 3000), np.float32)]))
    made = list(route("eager").candidates(large, detect_target(), SETTING, Budget(seconds=1)))
    assert [candidate.label for candidate in made] == [
        "plain call",
        "plain call, large tensors from the heap",
        "kept outputs",
    ]
    assert made[0].parameters == {"library": "torch", "call": "eager"}
    small, _ = operator_of(Case("Softmax", [normal(300, 300)]))
    assert all("memory" not in candidate.parameters for _, candidate in candidates(small))


def test_no_route_has_more_candidates_than_a_contest_can_afford() -> None:
    target = detect_target()
    for case in (*HEAVY, *FROM_FAMILIES):
        operator, _ = operator_of(case)
        for one in LIBRARIES:
            if one.supports(operator, SETTING):
                budget = Budget(seconds=10, candidates=100)
                assert len(list(one.candidates(operator, target, SETTING, budget))) <= 8


def test_variants_of_a_fused_and_of_a_pointwise_convolution() -> None:
    shapes: dict[str, tuple[int, ...]] = {"x": (1, 8, 6, 6), "w": (4, 8, 1, 1)}
    operator = graph([("Conv", "x w", "c", {}), ("Relu", "c", "y", {})], shapes, ["y"])
    labels = {f"{one.name}: {candidate.label}" for one, candidate in candidates(operator)}
    assert {"onednn: fused ending", "eager: as a matrix product", "eager: kept outputs"} <= labels


@pytest.mark.parametrize("name", ["onednn", "mkl", "openblas"])
def test_unsupported_says_why(name: str) -> None:
    operator, _ = operator_of(Case("Softmax", [normal(3, 4)]))
    answer = route(name).supports(operator, SETTING)
    assert not answer and answer.reason


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        (Case("Erf", [normal(3, 4).astype(np.float64)]), "no float64 kernel for Erf"),
        (Case("Add", [normal(3, 4).astype(ml_dtypes.bfloat16)] * 2), "no bfloat16"),
    ],
    ids=str,
)
def test_onnxruntime_knows_what_it_lacks(case: Case, sentence: str) -> None:
    operator, _ = operator_of(case)
    answer = route("onnxruntime").supports(operator, SETTING)
    assert not answer and sentence in answer.reason
