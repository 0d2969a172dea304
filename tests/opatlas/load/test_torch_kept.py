"""Kept output buffers: the same results, each binding's its own; other forms of a node; fused endings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from opatlas.identity import Operator  # noqa: E402
from opatlas.load import LoadedKernel, LoadError  # noqa: E402
from opatlas.load.torch import kept  # noqa: E402
from opatlas.load.torch.graph import run_graph  # noqa: E402
from opatlas.load.torch.ops.names import KEPT  # noqa: E402
from opatlas.load.torch.ops.types import to_tensor  # noqa: E402
from tests.opatlas.load.cases import FAMILIES  # noqa: E402
from tests.opatlas.load.operators import Case, ints, normal, operator_of, recipe_kernel, scalar  # noqa: E402
from tests.opatlas.load.test_torch_recipe import graph  # noqa: E402


def kernel_of(operator: Operator, **recipe: Any) -> LoadedKernel:
    return recipe_kernel(operator, "eager", {"library": "torch", "call": "eager", **recipe}, threads=2)


def reference(operator: Operator, inputs: dict[int, np.ndarray]) -> list[np.ndarray]:
    tensors = {number: to_tensor(array) for number, array in inputs.items()}
    return [made.contiguous().numpy() for made in run_graph(operator, tensors)]


def outputs(
    kernel: LoadedKernel, operator: Operator, inputs: dict[int, np.ndarray], runs: int = 3
) -> list[np.ndarray]:
    kernel.prepare({number: inputs[number] for number in operator.constant_inputs})
    bound = kernel.bind({number: inputs[number] for number in operator.runtime_inputs})
    for _ in range(3):
        bound.poison()
        bound()
    return [np.array(made) for made in bound.outputs()]


def check(operator: Operator, inputs: dict[int, np.ndarray], tolerance: float = 2e-4, **recipe: Any) -> None:
    made = outputs(kernel_of(operator, **recipe), operator, inputs)
    for ours, want in zip(made, reference(operator, inputs), strict=True):
        assert ours.dtype == want.dtype and ours.shape == want.shape
        np.testing.assert_allclose(ours.astype("f8"), want.astype("f8"), rtol=tolerance, atol=tolerance)


KEEPING = [case for cases in FAMILIES.values() for case in cases if case.op in KEPT]


def test_the_list_of_names_is_that_of_the_calls() -> None:
    assert set(kept.BUILDERS) == KEPT


@pytest.mark.parametrize("case", KEEPING, ids=str)
def test_a_kept_output_holds_what_a_fresh_one_does(case: Case) -> None:
    operator, inputs = operator_of(case)
    check(operator, inputs, buffers="kept")


MOVED = [
    Case("Transpose", [normal(3, 4, 5)], {"perm": [2, 0, 1]}),
    Case("Expand", [normal(4, 1), ints(2, 4, 3)], fixed=[1]),
    Case("Slice", [normal(6, 8), ints(1), ints(7), ints(1), ints(2)], fixed=[1, 2, 3, 4]),
    Case("Split", [normal(4, 6), ints(2, 4)], {"axis": 1}, fixed=[1], outputs=2),
]


@pytest.mark.parametrize("case", MOVED, ids=str)
def test_what_is_moved_lands_in_the_same_buffer_every_time(case: Case) -> None:
    operator, inputs = operator_of(case)
    check(operator, inputs, buffers="kept")
    kernel = kernel_of(operator, buffers="kept")
    bound = kernel.bind({number: inputs[number] for number in operator.runtime_inputs})
    bound()
    first = [array.ctypes.data for array in bound.outputs()]
    bound()
    assert [array.ctypes.data for array in bound.outputs()] == first


def test_one_binding_never_overwrites_another_s_output() -> None:
    operator, inputs = operator_of(Case("Relu", [normal(5, 7)]))
    kernel = kernel_of(operator, buffers="kept")
    one, other = kernel.bind({0: inputs[0]}), kernel.bind({0: inputs[0] + 10})
    for bound in (one, other, one, other):
        bound()
    np.testing.assert_array_equal(one.outputs()[0], np.maximum(inputs[0], 0))
    np.testing.assert_array_equal(other.outputs()[0], inputs[0] + 10)


def test_a_pad_s_frame_survives_poison() -> None:
    operator, inputs = operator_of(
        Case("Pad", [normal(2, 3), ints(1, 2, 0, 1), scalar(4.0)], {"mode": "constant"}, fixed=[1, 2])
    )
    check(operator, inputs, buffers="kept")


def test_a_graph_of_several_nodes_keeps_each_of_them() -> None:
    operator = graph([("Tanh", "x", "t", {}), ("Mul", "t x", "y", {})], {"x": (3, 5)}, ["t", "y"])
    check(operator, {0: normal(3, 5)}, buffers="kept")


FORMED = [
    ("product", Case("Conv", [normal(3, 8, 6, 5), normal(4, 8, 1, 1), normal(4)])),
    ("product", Case("Conv", [normal(3, 8, 6, 5), normal(4, 8, 1, 1)], fixed=[1])),
    ("product", Case("Conv", [normal(3, 8, 1, 1), normal(4, 8, 1, 1), normal(4)], {"strides": [2, 2]})),
    ("product", Case("Conv", [normal(2, 3, 8, 6), normal(5, 3, 4, 2), normal(5)], {"strides": [4, 2]})),
    ("product", Case("Conv", [normal(2, 3, 4, 2), normal(5, 3, 4, 2), normal(5)])),
    ("product", Case("Conv", [normal(2, 3, 12), normal(5, 3, 3)], {"strides": [3]})),
    ("product", Case("Conv", [normal(2, 3, 2, 4, 6), normal(5, 3, 1, 2, 3)], {"strides": [1, 2, 3]})),
    ("product",
     Case("ConvTranspose", [normal(2, 3, 4, 5), normal(3, 4, 2, 3), normal(4)], {"strides": [2, 3]})),
    ("product", Case("ConvTranspose", [normal(2, 3, 4), normal(3, 4, 2)], {"strides": [2]})),
    ("vector", Case("MatMul", [normal(2, 5, 6), normal(6, 1)])),
    ("vector", Case("MatMul", [normal(1, 6), normal(6, 9)])),
    ("vector", Case("MatMul", [normal(1, 6), normal(6, 9)], strides={1: (1, 6)})),
    ("turned", Case("MatMul", [normal(3, 7, 6), normal(6, 9)])),
    ("turned", Case("Gemm", [normal(6, 7), normal(6, 9), normal(9)], {"transA": 1})),
    ("written_out", Case("Attention", [normal(2, 3, 4, 8), normal(2, 3, 5, 8), normal(2, 3, 5, 6)])),
    (
        "written_out",
        Case("Attention", [normal(2, 3, 4, 8), normal(2, 3, 4, 8), normal(2, 3, 4, 6)], {"is_causal": 1}),
    ),
    (
        "written_out",
        Case(
            "Attention",
            [normal(2, 3, 4, 8), normal(2, 3, 5, 8), normal(2, 3, 5, 6), normal(4, 5)],
            {"scale": 0.2},
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize("buffers", ["fresh", "kept"])
@pytest.mark.parametrize(("form", "case"), FORMED, ids=str)
def test_another_form_comes_to_the_same(form: str, case: Case, buffers: str) -> None:
    operator, inputs = operator_of(case)
    check(operator, inputs, form=form, buffers=buffers)


@pytest.mark.parametrize(
    ("form", "case"),
    [
        ("product", Case("Conv", [normal(1, 3, 6, 6), normal(4, 3, 3, 3)])),
        ("product", Case("Conv", [normal(1, 4, 6, 6), normal(4, 1, 1, 1)], {"group": 4})),
        ("vector", Case("MatMul", [normal(4, 6), normal(6, 9)])),
        ("turned", Case("MatMul", [normal(2, 4, 6), normal(2, 6, 9)])),
        ("written_out", Case("Relu", [normal(4)])),
    ],
    ids=str,
)
def test_a_form_that_does_not_fit_is_refused(form: str, case: Case) -> None:
    operator, _ = operator_of(case)
    with pytest.raises(LoadError):
        kernel_of(operator, form=form).prepare({})


CONV: tuple = ("Conv", "x w", "c", {"pads": [1, 1, 1, 1]})
MAPS: dict[str, tuple[int, ...]] = {"x": (2, 4, 6, 6), "w": (8, 4, 3, 3)}
PRODUCT: tuple = ("MatMul", "x w", "c", {})
ROWS: dict[str, tuple[int, ...]] = {"x": (3, 5, 8), "w": (8, 6)}
AFTER: dict[str, list[tuple]] = {
    "relu": [("Relu", "c", "y", {})],
    "sigmoid": [("Sigmoid", "c", "y", {})],
    "tanh": [("Tanh", "c", "y", {})],
    "gelu": [("Gelu", "c", "y", {})],
    "gelu by tanh": [("Gelu", "c", "y", {"approximate": "tanh"})],
    "hardswish": [("HardSwish", "c", "y", {})],
    "leaky relu": [("LeakyRelu", "c", "y", {"alpha": 0.2})],
    "silu": [("Sigmoid", "c", "s", {}), ("Mul", "c s", "y", {})],
    "add": [("Add", "c o", "y", {})],
    "add, then relu": [("Add", "o c", "a", {}), ("Relu", "a", "y", {})],
}


@pytest.mark.parametrize("name", AFTER)
@pytest.mark.parametrize("first", ["conv", "product"])
def test_a_fused_ending_equals_its_nodes(first: str, name: str) -> None:
    node, taken = (CONV, MAPS) if first == "conv" else (PRODUCT, ROWS)
    made: tuple[int, ...] = (2, 8, 6, 6) if first == "conv" else (3, 5, 6)
    shapes: dict[str, tuple[int, ...]] = {**taken, "o": made} if "add" in name else taken
    operator = graph([node, *AFTER[name]], shapes, ["y"])
    inputs = {number: normal(*value.shape, seed=number) for number, value in enumerate(operator.inputs)}
    check(operator, inputs, call="onednn", epilogue="fused")
    if first == "conv":
        check(operator, inputs, call="onednn", epilogue="fused", layout="channels_last")


def test_a_bias_added_after_a_product_is_fused_with_what_follows() -> None:
    nodes = [PRODUCT, ("Add", "c b", "a", {}), ("Gelu", "a", "y", {})]
    operator = graph(nodes, {**ROWS, "b": (6,)}, ["y"])
    inputs = {number: normal(*value.shape, seed=number) for number, value in enumerate(operator.inputs)}
    check(operator, inputs, call="onednn", epilogue="fused")


def test_what_leaves_or_is_read_twice_is_not_fused() -> None:
    leaves = graph([CONV, ("Relu", "c", "y", {})], MAPS, ["c", "y"])
    twice = graph([CONV, ("Relu", "c", "r", {}), ("Add", "c r", "y", {})], MAPS, ["y"])
    for operator in (leaves, twice):
        with pytest.raises(LoadError, match="nothing that could be fused"):
            kernel_of(operator, call="onednn", epilogue="fused").prepare({})


@pytest.mark.parametrize(
    "recipe",
    [
        {"form": "eval"},
        {"form": "product", "function": "os.system"},
        {"buffers": True},
        {"call": "onednn", "epilogue": "burnt"},
        {"call": "onednn", "form": "product"},
        {"call": "mkl", "buffers": "kept"},
        {"call": "script"},
    ],
    ids=str,
)
def test_what_is_not_on_the_list_is_refused(recipe: dict[str, Any]) -> None:
    operator, _ = operator_of(FORMED[0][1])
    with pytest.raises(LoadError):
        kernel_of(operator, **recipe)
