"""``torch.compile`` recipes: compiled when they are prepared, on the constants that they are given."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity import Setting
from opatlas.load.recipe import check_recipe
from tests.catalog.making import GPU
from tests.opatlas.load.operators import Case, expected, operator_of
from tuning.routes.base import Budget
from tuning.routes.compiler.inductor.baseline import TorchCompile

RECIPE = {"library": "torch", "call": "compile"}
compiles = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")


def test_its_mode_is_one_of_three() -> None:
    there = {"device": "cpu", "tf32": False, "graphs": False}
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


def test_on_a_device_its_launches_are_captured_by_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the processor as the device, compiled into itself: by its own graphs two bindings would have each
    other's results."""
    import torch

    from opatlas.load.torch import compile as compiling
    from opatlas.load.torch import on_device

    modes: list[str] = []
    calls: list[object] = []

    def compiled(module: torch.nn.Module, mode: str) -> torch.nn.Module:
        modes.append(mode)
        return module

    def captured(call: object, device: torch.device) -> object:
        calls.append(call)
        return call

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(on_device, "captured", captured)
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    operator, inputs = operator_of(Case("Relu", [x]))
    setting = Setting(graphs=True)
    (candidate,) = TorchCompile().candidates(operator, GPU, setting, Budget(1.0))
    recipe = check_recipe(candidate.parameters, 1)
    assert (recipe["mode"], recipe["graphs"]) == ("max-autotune-no-cudagraphs", True)
    kernel = compiling.DeviceCompiledKernel(operator, recipe, torch.device("cpu"))
    first, second = kernel.bind(inputs), kernel.bind({0: -x})
    assert modes == ["max-autotune-no-cudagraphs"] and len(calls) == 2
    first()
    second()
    np.testing.assert_array_equal(first.outputs()[0], np.maximum(x, 0))
    np.testing.assert_array_equal(second.outputs()[0], np.maximum(-x, 0))
    (plain,) = TorchCompile().candidates(operator, GPU, Setting(), Budget(1.0))
    assert check_recipe(plain.parameters, 1)["graphs"] is False
