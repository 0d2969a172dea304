"""``torch.compile`` recipes: compiled when they are prepared, on the constants that they are given."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.load.recipe import check_recipe
from tests.opatlas.load.operators import Case, expected, operator_of

RECIPE = {"library": "torch", "call": "compile"}
compiles = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")


def test_its_mode_is_one_of_two() -> None:
    there = {"device": "cpu", "tf32": False}
    assert check_recipe(RECIPE, 2) == {**RECIPE, **there, "mode": "default", "threads": 2}
    with pytest.raises(LoadError, match="max-autotune"):
        check_recipe({**RECIPE, "mode": "reduce-overhead"}, 2)


@pytest.mark.slow
@compiles
@pytest.mark.parametrize("mode", ["default", pytest.param("max-autotune", marks=pytest.mark.nightly)])
def test_it_runs_and_takes_new_constants(mode: str) -> None:
    from opatlas.load.torch.compile import open_kernel

    x, w = np.random.default_rng(0).standard_normal((2, 24, 24)).astype(np.float32)
    operator, inputs = operator_of(Case("MatMul", [x, w], fixed=(1,)))
    [runtime], [const] = operator.runtime_inputs, operator.constant_inputs
    kernel = open_kernel(operator, check_recipe({**RECIPE, "mode": mode}, 1))
    with pytest.raises(LoadError, match="call prepare"):
        kernel.bind({runtime: inputs[runtime]})
    for weights in (w, 2 * w):
        kernel.prepare({const: weights})
        bound = kernel.bind({runtime: inputs[runtime]})
        bound()
        wanted = expected(Case("MatMul", [x, weights], fixed=(1,)))[0]
        np.testing.assert_allclose(bound.outputs()[0], wanted, rtol=1e-4, atol=1e-4)
    import torch

    assert torch.is_grad_enabled()
