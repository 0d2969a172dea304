"""Recipes of library onnxruntime: every level, packing and execution mode comes to the same result."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

from opatlas.identity import Operator, Setting, detect_target  # noqa: E402
from opatlas.load import LoadedKernel, LoadError  # noqa: E402
from opatlas.load.torch.graph import run_graph  # noqa: E402
from opatlas.load.torch.ops.types import to_tensor  # noqa: E402
from opatlas.plan.resting import OtherThreads  # noqa: E402
from tests.opatlas.load.operators import (  # noqa: E402
    Case,
    ints,
    laid_out,
    normal,
    operator_of,
    recipe_kernel,
)
from tests.opatlas.load.test_torch_recipe import graph  # noqa: E402
from tests.opatlas.load.threads import cpu_ns, threads_of_this_process  # noqa: E402
from tuning.routes.base import Budget  # noqa: E402
from tuning.routes.registry import route  # noqa: E402

SETTING = Setting(threads=2)


def kernel_of(operator: Operator, **recipe: Any) -> LoadedKernel:
    recipe = {"library": "onnxruntime", "call": "session", **recipe}
    return recipe_kernel(operator, "onnxruntime", recipe, SETTING.threads)


def check(operator: Operator, inputs: dict[int, np.ndarray], **recipe: Any) -> None:
    kernel = kernel_of(operator, **recipe)
    kernel.prepare({number: inputs[number] for number in operator.constant_inputs})
    bound = kernel.bind({number: inputs[number] for number in operator.runtime_inputs})
    wanted = run_graph(operator, {number: to_tensor(array) for number, array in inputs.items()})
    for _ in range(2):
        bound.poison()
        bound()
        for made, want in zip(bound.outputs(), wanted, strict=True):
            np.testing.assert_allclose(made, want.numpy(), rtol=1e-3, atol=1e-4)


def test_its_threads_rest_once_it_has_run() -> None:
    """A job has many such kernels, and those of each would go on spinning where the next one runs: for 40 ms
    of the processors' time."""
    operator, inputs = operator_of(Case("MatMul", [normal(512, 512), normal(512, 512)]))
    before = threads_of_this_process()
    bound = kernel_of(operator).bind(inputs)
    bound()
    own, others = threads_of_this_process() - before, OtherThreads()
    assert own

    def goes_on_for_ns() -> int:
        bound()
        ended = sum(map(cpu_ns, own))
        while own & others.at_work():
            time.sleep(0.001)
        return sum(map(cpu_ns, own)) - ended

    assert statistics.median(goes_on_for_ns() for _ in range(20)) < 5e6


def labels(operator: Operator) -> list[str]:
    budget = Budget(seconds=10, candidates=32)
    return [one.label for one in route("onnxruntime").candidates(operator, detect_target(), SETTING, budget)]


TURNED = [
    Case("MatMul", [normal(6, 5), normal(5, 7)], strides={1: (1, 5)}),
    Case("MatMul", [normal(3, 6, 5), normal(3, 5, 7)], strides={0: (5, 15, 1), 1: (35, 1, 5)}),
    Case("Add", [normal(2, 3, 4, 5), normal(5)], strides={0: (60, 1, 15, 3)}),
    Case("Softmax", [normal(4, 5, 6)], {"axis": 1}, strides={0: (30, 1, 5)}),
]


@pytest.mark.parametrize("level", ["all", "disabled"])
@pytest.mark.parametrize("case", TURNED, ids=str)
def test_strided_inputs_are_turned_inside_the_session(case: Case, level: str) -> None:
    operator, inputs = operator_of(case)
    check(operator, inputs, strided="turned", graph_optimization=level)
    check(operator, inputs, strided="copied", graph_optimization=level)
    assert labels(operator)[0] == "strided inputs turned inside, optimised"


def test_a_turned_input_is_read_anew_in_every_run() -> None:
    operator, inputs = operator_of(TURNED[0])
    weights = laid_out(normal(5, 7), (1, 5))
    bound = kernel_of(operator, strided="turned").bind({0: inputs[0], 1: weights})
    bound()
    weights[...] = 1
    bound()
    np.testing.assert_allclose(bound.outputs()[0], inputs[0] @ np.ones((5, 7)), rtol=1e-4, atol=1e-5)


def test_a_cut_out_input_is_copied() -> None:
    operator, inputs = operator_of(Case("Relu", [normal(4, 6)]))
    assert "turned" not in " ".join(labels(operator))
    check(operator, inputs, strided="turned")


BRANCHES = graph(
    [("Relu", "x", "a", {}), ("Tanh", "x", "b", {}), ("Add", "a b", "y", {})], {"x": (4, 6)}, ["y"]
)
CHAIN = graph([("Relu", "x", "a", {}), ("Tanh", "a", "y", {})], {"x": (4, 6)}, ["y"])


def test_only_branches_are_offered_side_by_side() -> None:
    assert "branches side by side" in labels(BRANCHES)
    assert "branches side by side" not in labels(CHAIN)
    check(BRANCHES, {0: normal(4, 6)}, execution="parallel")


def test_levels_and_packing() -> None:
    operator, inputs = operator_of(
        Case("Conv", [normal(1, 16, 9, 9), normal(16, 16, 3, 3), normal(16)], {"pads": [1] * 4}, fixed=[1, 2])
    )
    for level in ("all", "extended", "basic", "disabled"):
        for packing in (True, False):
            check(operator, inputs, graph_optimization=level, prepacking=packing)
    check(operator, inputs, constants="inputs")


@pytest.mark.parametrize(
    "recipe",
    [
        {"strided": "torn"},
        {"execution": "wild"},
        {"prepacking": 1},
        {"graph_optimization": "extra"},
        {"providers": ["CUDAExecutionProvider"]},
        {"threads": 0},
    ],
    ids=str,
)
def test_what_is_not_on_the_list_is_refused(recipe: dict[str, Any]) -> None:
    operator, _ = operator_of(Case("ReduceSum", [normal(3, 4), ints(1)], fixed=[1]))
    with pytest.raises(LoadError):
        kernel_of(operator, **recipe)
