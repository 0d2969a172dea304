"""Recipes of library torch: what users' single calls are, layouts, narrow types, process-wide switches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

torch = pytest.importorskip("torch")

import ml_dtypes  # noqa: E402

from opatlas.identity import Operator, canonicalise  # noqa: E402
from opatlas.load import KernelFailed, LoadedKernel, LoadError  # noqa: E402
from opatlas.load.recipe import check_recipe  # noqa: E402
from opatlas.load.torch.graph import run_graph  # noqa: E402
from opatlas.load.torch.patterns import whole_call  # noqa: E402
from opatlas.load.torch.recipe import open_kernel  # noqa: E402
from tests.opatlas.load.operators import (  # noqa: E402
    Case,
    integers,
    ints,
    laid_out,
    normal,
    operator_of,
    recipe_kernel,
    scalar,
)


def kernel_of(operator: Operator, threads: int = 1, **recipe: Any) -> LoadedKernel:
    return recipe_kernel(operator, "eager", {"library": "torch", "call": "eager", **recipe}, threads)


def graph(nodes: Sequence[tuple], shapes: dict[str, tuple[int, ...]], outputs: Sequence[str], **fixed: Any):
    """Several nodes (op, inputs, outputs, attributes) as a canonical operator of float inputs."""
    made = [helper.make_node(op, i.split(), o.split(), **attrs) for op, i, o, attrs in nodes]
    ins = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    outs = [helper.make_empty_tensor_value_info(name) for name in outputs]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in fixed.items()]
    model = helper.make_model(
        helper.make_graph(made, "g", ins, outs, constants), opset_imports=[helper.make_opsetid("", 23)]
    )
    return canonicalise(model).operator


X = {"x": (2, 3, 4)}
PATTERNS = {
    "silu": graph([("Sigmoid", "x", "s", {}), ("Mul", "x s", "y", {})], X, ["y"]),
    "silu, other order": graph([("Sigmoid", "x", "s", {}), ("Mul", "s x", "y", {})], X, ["y"]),
    "ne": graph([("Equal", "x z", "e", {}), ("Not", "e", "y", {})], {**X, "z": (4,)}, ["y"]),
    "rsqrt": graph([("Sqrt", "x", "s", {}), ("Reciprocal", "s", "y", {})], X, ["y"]),
    "softmax in float64": graph(
        [("Cast", "x", "c", {"to": 11}), ("Softmax", "c", "y", {"axis": 1})], X, ["y"]
    ),
    "stack": graph(
        [("Unsqueeze", "x a", "p", {}), ("Unsqueeze", "z a", "q", {}), ("Concat", "p q", "y", {"axis": 1})],
        {**X, "z": (2, 3, 4)},
        ["y"],
        a=ints(1),
    ),
    "unbind": graph(
        [
            ("Split", "x", "p q r", {"axis": 1, "num_outputs": 3}),
            ("Squeeze", "p a", "u", {}),
            ("Squeeze", "q a", "v", {}),
            ("Squeeze", "r a", "w", {}),
        ],
        X,
        ["u", "v", "w"],
        a=ints(1),
    ),
    "var": graph(
        [
            ("ReduceMean", "x a", "m", {"keepdims": 1}),
            ("Sub", "x m", "c", {}),
            ("Mul", "c c", "s", {}),
            ("ReduceMean", "s a", "y", {"keepdims": 0}),
        ],
        X,
        ["y"],
        a=ints(1, 2),
    ),
    "max with index": graph(
        [
            ("ArgMax", "x", "i", {"axis": 2, "keepdims": 0}),
            ("ReduceMax", "x a", "v", {"keepdims": 0}),
        ],
        X,
        ["v", "i"],
        a=ints(2),
    ),
}
HEADS = {"q": (2, 3, 4, 8), "k": (2, 3, 5, 8), "v": (2, 3, 5, 6)}
SCORES: list[tuple] = [
    ("Transpose", "k", "t", {"perm": [0, 1, 3, 2]}),
    ("MatMul", "q t", "s", {}),
    ("Mul", "s f", "m", {}),
]
PATTERNS |= {
    "attention": graph(
        [*SCORES, ("Softmax", "m", "p", {"axis": -1}), ("MatMul", "p v", "y", {})],
        HEADS,
        ["y"],
        f=scalar(0.3),
    ),
    "attention with a mask": graph(
        [*SCORES, ("Add", "m b", "a", {}), ("Softmax", "a", "p", {"axis": -1}), ("MatMul", "p v", "y", {})],
        {**HEADS, "b": (4, 5)},
        ["y"],
        f=scalar(0.3),
    ),
}
NO_PATTERNS = {
    "attention over the wrong axis": graph(
        [*SCORES, ("Softmax", "m", "p", {"axis": 2}), ("MatMul", "p v", "y", {})], HEADS, ["y"], f=scalar(0.3)
    ),
    "gate with another tensor": graph(
        [("Sigmoid", "x", "s", {}), ("Mul", "z s", "y", {})], {**X, "z": (2, 3, 4)}, ["y"]
    ),
    "the sigmoid leaves too": graph([("Sigmoid", "x", "s", {}), ("Mul", "x s", "y", {})], X, ["s", "y"]),
    "a variance over other axes": graph(
        [
            ("ReduceMean", "x a", "m", {"keepdims": 1}),
            ("Sub", "x m", "c", {}),
            ("Mul", "c c", "s", {}),
            ("ReduceMean", "s b", "y", {"keepdims": 0}),
        ],
        X,
        ["y"],
        a=ints(1),
        b=ints(2),
    ),
}


@pytest.mark.parametrize("name", [*PATTERNS, *NO_PATTERNS])
def test_small_graphs_equal_their_nodes_one_by_one(name: str) -> None:
    operator = {**PATTERNS, **NO_PATTERNS}[name]
    assert (whole_call(operator) is not None) == (name in PATTERNS)
    inputs = {
        number: np.asarray(np.abs(normal(*operator.inputs[number].shape, seed=number)) + np.float32(0.1))
        for number in operator.tensor_inputs
    }
    wanted = run_graph(operator, {number: torch.from_numpy(array) for number, array in inputs.items()})
    kernel = kernel_of(operator)
    kernel.prepare({number: inputs[number] for number in operator.constant_inputs})
    bound = kernel.bind({number: inputs[number] for number in operator.runtime_inputs})
    bound()
    for made, want in zip(bound.outputs(), wanted, strict=True):
        np.testing.assert_allclose(made, want.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float64])
@pytest.mark.parametrize("weights", ["plain", "transposed"])
def test_other_float_types_pass_through(dtype: Any, weights: str) -> None:
    a, b = normal(3, 8).astype(dtype), normal(8, 5).astype(dtype)
    operator, inputs = operator_of(Case("MatMul", [a, b], fixed=[1]))
    kernel = kernel_of(operator, weights=weights)
    kernel.prepare({1: inputs[1]})
    bound = kernel.bind({0: inputs[0]})
    bound()
    (made,) = bound.outputs()
    assert made.dtype == dtype
    np.testing.assert_allclose(
        made.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64), rtol=0.05, atol=0.1
    )
    bound.poison()
    bound()


def test_outputs_leave_row_major_where_the_operator_says_so() -> None:
    operator, inputs = operator_of(Case("Transpose", [normal(3, 4)], {"perm": [1, 0]}))
    bound = kernel_of(operator).bind(inputs)
    bound()
    (made,) = bound.outputs()
    assert made.flags.c_contiguous
    np.testing.assert_array_equal(made, inputs[0].T)


def test_strided_activation_keeps_its_own_layout() -> None:
    """A channels-last activation is used as it lies, and what comes out may lie so too."""
    steps = (144, 1, 24, 4)
    case = Case("Conv", [normal(2, 4, 6, 6), normal(5, 4, 3, 3)], fixed=[1], strides={0: steps})
    operator, inputs = operator_of(case)
    kernel = kernel_of(operator)
    kernel.prepare({1: inputs[1]})
    bound = kernel.bind({0: laid_out(inputs[0], steps)})
    bound()
    want = torch.conv2d(torch.from_numpy(np.ascontiguousarray(inputs[0])), torch.from_numpy(inputs[1]))
    np.testing.assert_allclose(bound.outputs()[0], want.numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(LoadError, match="input 0 has strides"):
        kernel.bind({0: np.ascontiguousarray(inputs[0])})


def test_poison_never_reaches_an_input_through_a_view() -> None:
    operator, inputs = operator_of(Case("Reshape", [normal(3, 4), ints(4, 3)], fixed=[1]))
    x = inputs[0].copy()
    bound = kernel_of(operator).bind({0: x})
    bound()
    bound.poison()
    np.testing.assert_array_equal(x, inputs[0])


@pytest.mark.parametrize("call", ["eager", "compile"])
def test_nor_a_constant(call: str) -> None:
    operator, inputs = operator_of(Case("Reshape", [normal(3, 4), ints(4, 3)], fixed=[0, 1]))
    how = {"call": "compile", "mode": "default"} if call == "compile" else {"call": call}
    kernel = kernel_of(operator, **how)
    kernel.prepare(inputs)
    bound = kernel.bind({})
    for _ in range(2):
        bound()
        np.testing.assert_array_equal(bound.outputs()[0], inputs[0].reshape(4, 3))
        bound.poison()


@pytest.mark.parametrize("types", [
    ("float16", "float16", "float64"), ("bfloat16", "float32", "bfloat16"), ("float32", "float32", "float64"),
])  # fmt: skip
@pytest.mark.parametrize("buffers", ["fresh", "kept"])
def test_batch_normalisation_of_several_types(types: tuple[str, str, str], buffers: str) -> None:
    made = [normal(4, 3, 5), normal(3), normal(3), normal(3), np.abs(normal(3)) + 1]
    each = (types[0], types[1], types[1], types[2], types[2])
    operator, inputs = operator_of(Case("BatchNormalization", [
        one.astype(np.dtype(getattr(ml_dtypes, name, name))) for one, name in zip(made, each, strict=True)
    ]))  # fmt: skip
    bound = kernel_of(operator, buffers=buffers).bind(inputs)
    x, w, b, mean, var = (inputs[number].astype(np.float64) for number in range(5))
    shaped = (w[:, None], b[:, None], mean[:, None], var[:, None])
    expected = (x - shaped[2]) / np.sqrt(shaped[3] + 1e-5) * shaped[0] + shaped[1]
    for _ in range(2):
        bound()
        [found] = bound.outputs()
        assert found.dtype == inputs[0].dtype
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0.02, atol=0.05)


def test_outputs_before_the_first_call_are_refused() -> None:
    operator, inputs = operator_of(Case("Relu", [normal(3, 4)]))
    with pytest.raises(KernelFailed, match="not called yet"):
        kernel_of(operator).bind(inputs).outputs()


def test_read_only_inputs_are_fine() -> None:
    operator, inputs = operator_of(Case("Relu", [normal(3, 4)]))
    inputs[0].flags.writeable = False
    bound = kernel_of(operator).bind(inputs)
    bound()
    np.testing.assert_array_equal(bound.outputs()[0], np.maximum(inputs[0], 0))


def test_embedding_takes_negative_rows_and_refuses_others() -> None:
    operator, inputs = operator_of(Case("Gather", [normal(5, 4), integers(7, low=-5, high=5)]))
    rows = inputs[1].copy()
    bound = kernel_of(operator).bind({0: inputs[0], 1: rows})
    bound()
    np.testing.assert_array_equal(bound.outputs()[0], inputs[0][rows])
    rows[0] = 5
    with pytest.raises(KernelFailed, match="PyTorch failed: "):
        bound()


def test_kernels_of_several_settings_run_in_one_process() -> None:
    operator, inputs = operator_of(Case("Relu", [normal(3, 4)]))
    one, two = kernel_of(operator, threads=1).bind(inputs), kernel_of(operator, threads=2).bind(inputs)
    one()
    assert torch.get_num_threads() == 1
    two()
    assert torch.get_num_threads() == 2
    one()
    assert torch.get_num_threads() == 1
    torch.set_num_threads(2)  # as its owner may at any time
    one()
    assert torch.get_num_threads() == 1


def test_onednn_is_off_only_during_the_call() -> None:
    operator, inputs = operator_of(Case("Conv", [normal(1, 4, 8, 8), normal(4, 4, 3, 3)]))
    bound = kernel_of(operator, onednn=False).bind(inputs)
    bound()
    assert torch.backends.mkldnn.enabled


def test_packed_runtime_weights_are_refused() -> None:
    operator, inputs = operator_of(Case("MatMul", [normal(3, 4), normal(4, 5)]))
    kernel = kernel_of(operator, call="onednn", weights="packed")
    with pytest.raises(LoadError, match="weights come with every run"):
        kernel.bind(inputs)


def test_unknown_operator_is_refused_by_name() -> None:
    from dataclasses import replace

    operator, _ = operator_of(Case("Relu", [normal(3, 4)]))
    odd = replace(operator, nodes=(replace(operator.nodes[0], op="NonZero"),))
    with pytest.raises(LoadError, match="no PyTorch call is known for NonZero"):
        open_kernel(odd, check_recipe({"library": "torch", "call": "eager"}, 1))


def test_binding_reads_no_values() -> None:
    """Buffers may be filled after they were bound."""
    operator, inputs = operator_of(Case("Gather", [normal(5, 4), integers(7, low=0, high=5)]))
    rows = np.full_like(inputs[1], 1 << 40)
    bound = kernel_of(operator).bind({0: inputs[0], 1: rows})
    rows[...] = inputs[1]
    bound()
    np.testing.assert_array_equal(bound.outputs()[0], inputs[0][rows])
