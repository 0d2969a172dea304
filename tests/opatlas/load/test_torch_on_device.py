"""Eager calls on a device: the same code on copies, here with the processor as the device."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from opatlas.identity import Operator  # noqa: E402
from opatlas.load import KernelFailed, LoadError  # noqa: E402
from opatlas.load.kernel import computes_on_device  # noqa: E402
from opatlas.load.recipe import check_recipe  # noqa: E402
from opatlas.load.torch import on_device as loading  # noqa: E402
from opatlas.load.torch.on_device import DeviceTorchKernel  # noqa: E402
from tests.opatlas.load.cases import FAMILIES  # noqa: E402
from tests.opatlas.load.operators import Case, normal, operator_of, recipe_kernel  # noqa: E402

RECIPE = {"library": "torch", "call": "eager", "device": "cuda"}
CASES = [cases[0] for cases in FAMILIES.values()] + [
    Case("MatMul", [normal(4, 6), normal(6, 5)], fixed=[1]),
    Case("Relu", [normal(6, 4)], strides={0: (1, 6)}),
    Case("Transpose", [normal(3, 4)], {"perm": [1, 0]}),
]


def on_device(operator: Operator) -> DeviceTorchKernel:
    return DeviceTorchKernel(operator, check_recipe(RECIPE, 1), device="cpu")


def split(operator: Operator, inputs: dict[int, np.ndarray]) -> tuple[dict[int, Any], dict[int, Any]]:
    constant = {number: inputs[number] for number in operator.constant_inputs}
    return constant, {number: inputs[number].copy(order="K") for number in operator.runtime_inputs}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_computes_what_the_plain_call_does_and_sees_new_values_when_they_are_brought(case: Case) -> None:
    operator, inputs = operator_of(case)
    constants, runtime = split(operator, inputs)
    results = []
    for kernel in (
        on_device(operator),
        recipe_kernel(operator, "eager", {"library": "torch", "call": "eager"}),
    ):
        kernel.prepare(constants)
        results.append(kernel.bind({number: array.copy(order="K") for number, array in runtime.items()}))
    for bound in results:
        bound()
    for here, plain in zip(results[0].outputs(), results[1].outputs(), strict=True):
        np.testing.assert_array_equal(here, plain)


def test_inputs_are_copies_until_they_are_brought_again() -> None:
    operator, inputs = operator_of(Case("Relu", [normal(6, 4)], strides={0: (1, 6)}))
    x = inputs[0]
    bound = on_device(operator).bind({0: x})
    bound()
    before = bound.outputs()[0].copy()
    x += 1
    bound()
    np.testing.assert_array_equal(bound.outputs()[0], before)
    bound.upload()
    bound.poison()
    with pytest.raises(KernelFailed, match="not called yet"):
        bound.outputs()
    bound()
    np.testing.assert_array_equal(bound.outputs()[0], np.maximum(x, 0))
    x[...] = 0
    bound.fetch_inputs()
    assert (x != 0).any()
    changed = bound.outputs()[0]
    changed[...] = 7
    bound.send_outputs()
    assert (bound.outputs()[0] == 7).all()
    assert not bound.trespassed()


def test_what_lies_there_is_read_where_it_is() -> None:
    operator, _ = operator_of(Case("Relu", [normal(6, 4)]))
    there = torch.randn(6, 4)
    bound = on_device(operator).bind({0: there})
    there.fill_(3)
    bound()
    assert (bound.outputs()[0] == 3).all()
    with pytest.raises(LoadError, match=r"input 0 has shape \[4, 6\]"):
        on_device(operator).bind({0: torch.randn(4, 6)})
    with pytest.raises(LoadError, match="input 0 has element type float64"):
        on_device(operator).bind({0: torch.randn(6, 4, dtype=torch.float64)})
    with pytest.raises(LoadError, match="input 0 cannot be read on cpu"):
        on_device(operator).bind({0: object()})


def test_results_go_where_the_caller_says_and_stay_what_they_were() -> None:
    operator, _ = operator_of(Case("Relu", [normal(6, 4)]))
    there, given = torch.randn(6, 4), torch.empty(6, 4)
    kernel = on_device(operator)
    bound = kernel.bind({0: there}, [given])
    for factor in (2, -3):
        bound()
        assert torch.equal(given, there.clamp(min=0))
        there *= factor
    (kept,) = bound.fresh_outputs(kernel.memory)
    assert torch.equal(kept, given)
    assert kept.data_ptr() != given.data_ptr()
    own = kernel.bind({0: there})
    own()
    (first,) = own.fresh_outputs(kernel.memory)
    before = first.clone()
    there *= -1
    own()
    assert torch.equal(first, before), "each call makes new ones"
    for wrong in (torch.empty(4, 6), torch.empty(6, 4, dtype=torch.float64)):
        with pytest.raises(LoadError, match="output 0 has"):
            kernel.bind({0: there}, [wrong])
    with pytest.raises(LoadError, match="has 1 outputs; 2 are given"):
        kernel.bind({0: there}, [given, given])
    with pytest.raises(LoadError, match="cpu has no streams"):
        kernel.bind({0: there}, stream=7)


def test_a_result_that_is_an_inputs_memory_is_copied_for_the_caller() -> None:
    operator, _ = operator_of(Case("Transpose", [normal(3, 1)], {"perm": [1, 0]}))
    there = torch.randn(3, 1)
    kernel = on_device(operator)
    bound = kernel.bind({0: there})
    bound()
    (made,) = bound.fresh_outputs(kernel.memory)
    wanted = there.T.clone()
    there += 1
    assert torch.equal(made, wanted)


def test_what_is_of_no_use_on_the_device_says_so() -> None:
    operator, _ = operator_of(Case("Relu", [normal(6, 4)]))
    kernel = on_device(operator)
    with pytest.raises(LoadError, match="input 0 lies on meta, and what reads it runs on cpu"):
        kernel.bind({0: torch.empty(6, 4, device="meta")})
    value = operator.inputs[0]
    there = torch.randn(6, 4, requires_grad=True)
    copy = kernel.fetched(there, value, "input 0")
    np.testing.assert_array_equal(copy, there.detach().numpy())
    assert copy.ctypes.data != there.data_ptr()
    assert not computes_on_device(kernel), "here the processor is the device"


def test_sums_of_half_types_are_kept_in_float32_and_nobody_is_asked_for_it_in_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    products = torch.backends.cuda.matmul
    before = products.allow_fp16_reduced_precision_reduction, products.allow_bf16_reduced_precision_reduction
    monkeypatch.setattr(loading, "_tf32_now", None)
    products.allow_fp16_reduced_precision_reduction = True
    products.allow_bf16_reduced_precision_reduction = True
    try:
        operator, _ = operator_of(Case("Relu", [normal(6, 4)]))
        bound = on_device(operator).bind({0: torch.randn(6, 4)})
        bound()
        assert not products.allow_fp16_reduced_precision_reduction
        assert not products.allow_bf16_reduced_precision_reduction
        assert not torch.backends.cudnn.allow_tf32
        monkeypatch.setattr(torch.backends, "cudnn", None)
        bound()  # asks for nothing there
    finally:
        products.allow_fp16_reduced_precision_reduction, products.allow_bf16_reduced_precision_reduction = (
            before
        )


def test_its_clock_and_its_caches() -> None:
    operator, _ = operator_of(Case("Relu", [normal(6, 4)]))
    bound = on_device(operator).bind({0: torch.randn(6, 4)})
    assert bound.device_us(lambda: time.sleep(0.002)) >= 2000
    assert [us > 0 for us in bound.each_us(4, 1 << 16, lead_in=True)] == [True] * 4
    in_a_graph = DeviceTorchKernel(operator, check_recipe({**RECIPE, "graphs": True}, 1), device="cpu")
    with pytest.raises(LoadError, match="launches on cpu cannot be captured"):
        in_a_graph.bind({0: torch.randn(6, 4)})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_recipe_says_so() -> None:
    operator, _ = operator_of(Case("Relu", [normal(6, 4)]))
    with pytest.raises(LoadError, match="needs a CUDA device, and PyTorch finds none here"):
        recipe_kernel(operator, "eager", RECIPE)
