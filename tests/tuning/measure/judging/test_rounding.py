"""What the allowed errors catch and what they leave alone: computing less, and computing otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

from opatlas.identity import Operator, Setting, parse_operator
from tests import by_day
from tests.opatlas.identity.examples import graph, step
from tuning.measure.judging.check import CheckResult, Reference, compare
from tuning.measure.judging.inputs import DISTRIBUTIONS, make_runtime
from tuning.measure.judging.reference import runner
from tuning.measure.outcome import Status

F32 = np.float32
Array = np.ndarray
Kernel = Callable[..., Array]


def operator(op: str, *shapes: tuple[int, ...], dtype: str = "float32", **attrs: Any) -> Operator:
    inputs = [{"shape": list(shape), "dtype": dtype} for shape in shapes]
    return parse_operator({"op": op, "attrs": attrs, "inputs": inputs})


def references(op: Operator, *inputs: Array, setting: Setting = Setting()) -> list[Reference]:  # noqa: B008
    run = runner("torch64", op, setting, {})
    return [Reference(*pair) for pair in run(dict(enumerate(inputs)))]


def judged(op: Operator, kernel: Kernel, *inputs: Array, setting: Setting = Setting()) -> CheckResult:  # noqa: B008
    with np.errstate(all="ignore"):
        return compare([np.asarray(kernel(*inputs), F32)], references(op, *inputs, setting=setting))


def drawn(op: Operator, distribution: str, seed: int = 3) -> list[Array]:
    flat = make_runtime(op, distribution, np.random.default_rng(seed))
    return [flat[number].reshape(op.inputs[number].shape) for number in op.runtime_inputs]


def wrong_somewhere(op: Operator, kernel: Kernel) -> bool:
    return any(judged(op, kernel, *drawn(op, name)).status is not Status.OK for name in DISTRIBUTIONS)


def bits(x: Array, kept: int) -> Array:
    """Rounded to so many bits of fraction."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2.0 ** (kept + 1)) / 2.0 ** (kept + 1), exponent).astype(F32)


def bfloat(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(F32)


LONG = ((16, 4096), (4096, 16))
ROWS = (64, 1024)


def float16_sums(a: Array, b: Array) -> Array:
    total = np.zeros((a.shape[0], b.shape[1]), np.float16)
    for k in range(a.shape[1]):
        total = (total + np.outer(a[:, k], b[k])).astype(np.float16)
    return total


def largest_terms(a: Array, b: Array) -> Array:
    """Without the factors far below the largest of their row."""
    return np.where(np.abs(a) < 2**-10 * np.abs(a).max(1, keepdims=True), 0, a) @ b


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def truncated_softmax(x: Array) -> Array:
    made = softmax(x)
    return np.where(made < 1e-5, 0, made)


def root_mean_square(x: Array, w: Array, inverse: Kernel) -> Array:
    return x * inverse(np.sqrt((x * x).mean(-1, keepdims=True) + F32(1e-5))) * w


LESS = {
    # the issue's own: 0 between 6.5 and 70, and below −8
    "exp, nothing between": (operator("Exp", ROWS), lambda x: np.where((x > 6.5) & (x < 70), 0, np.exp(x))),
    "exp, nothing below": (operator("Exp", ROWS), lambda x: np.where(x < -8, 0, np.exp(x))),
    "exp, 17 bits": (operator("Exp", ROWS), lambda x: bits(np.exp(x), 17)),
    "exp, of a bfloat16": (operator("Exp", ROWS), lambda x: np.exp(bfloat(x))),
    "tanh, nothing small": (operator("Tanh", ROWS), lambda x: np.where(np.abs(x) < 1e-6, 0, np.tanh(x))),
    "tanh, one too early": (
        operator("Tanh", ROWS), lambda x: np.where(np.abs(x) > 5, np.sign(x), np.tanh(x))
    ),
    "sigmoid, 0 and 1 too early": (
        operator("Sigmoid", ROWS),
        lambda x: np.where(x > 10, 1, np.where(x < -10, 0, 1 / (1 + np.exp(-x)))),
    ),
    "log, near one by its difference": (
        operator("Log", ROWS),
        lambda x: np.where(np.abs(x - 1) < 0.01, x - 1, np.log(x)),
    ),
    "sine, one turn only": (operator("Sin", ROWS), lambda x: np.where(np.abs(x) > 6.3, 0, np.sin(x))),
    "sine, a short pi": (
        operator("Sin", ROWS), lambda x: np.sin(x - F32(3.1416) * 2 * np.round(x / F32(6.2832)))
    ),
    "exp, no infinity": (operator("Exp", ROWS), lambda x: np.exp(np.clip(x, -200, 88))),
    "sine, no NaN": (operator("Sin", ROWS), lambda x: np.nan_to_num(np.sin(x))),
    "root, nothing small": (operator("Sqrt", ROWS), lambda x: np.where(x < 1e-20, 0, np.sqrt(x))),
    "power, of the size": (operator("Pow", ROWS, ROWS), lambda x, y: np.power(np.abs(x), y)),
    "reciprocal, 12 bits": (operator("Reciprocal", ROWS), lambda x: bits(1 / x, 12)),
    "quotient, 12 bits": (operator("Div", ROWS, ROWS), lambda x, y: x * bits(1 / y, 12)),
    "sum, by float16": (operator("Add", ROWS, ROWS), lambda x, y: x.astype(np.float16) + y),
    "relu, by float16": (operator("Relu", ROWS), lambda x: np.maximum(x, 0).astype(np.float16)),
    "relu, 20 bits": (operator("Relu", ROWS), lambda x: bits(np.maximum(x, 0), 20)),
    "turned, by bfloat16": (operator("Transpose", ROWS, perm=[1, 0]), lambda x: bfloat(x).T),
    "product, of bfloat16": (operator("MatMul", *LONG), lambda a, b: bfloat(a) @ bfloat(b)),
    "product, of 10 bits": (operator("MatMul", *LONG), lambda a, b: bits(a, 10) @ bits(b, 10)),
    "product, kept in float16": (operator("MatMul", *LONG), float16_sums),
    "product, without the last": (operator("MatMul", *LONG), lambda a, b: a[:, :-1] @ b[:-1]),
    "product, of large terms": (operator("MatMul", *LONG), largest_terms),
    "sums, without the last": (
        operator("ReduceMean", ROWS, keepdims=1), lambda x: x[:, :-1].mean(keepdims=True)
    ),
    "softmax, without its tail": (operator("Softmax", ROWS, axis=-1), truncated_softmax),
    "softmax, 14 bits": (operator("Softmax", ROWS, axis=-1), lambda x: bits(softmax(x), 14)),
    "norm, 12 bits of the root": (
        operator("RMSNormalization", ROWS, (1024,), axis=-1),
        lambda x, w: root_mean_square(x, w, lambda root: bits(1 / root, 12)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LESS)
def test_computing_less_is_wrong(name: str) -> None:
    assert wrong_somewhere(*LESS[name])


def in_order(a: Array, b: Array) -> Array:
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    for k in range(a.shape[1]):
        total += np.outer(a[:, k], b[k])
    return total


def fused(a: Array, b: Array) -> Array:
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    for k in range(a.shape[1]):
        total = (total + np.outer(a[:, k].astype(np.float64), b[k])).astype(F32)
    return total


def in_blocks(a: Array, b: Array) -> Array:
    return sum((in_order(a[:, k : k + 64], b[k : k + 64]) for k in range(0, a.shape[1], 64)), F32(0))


def winograd(x: Array, w: Array) -> Array:
    """F(4, 3) along one dimension, every step in float32."""
    input_, filter_, output = (np.array(rows, F32) for rows in (
        [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
         [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]],
        [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6],
         [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    ))  # fmt: skip
    tiles = np.stack([x[..., start : start + 6] for start in range(0, x.shape[-1] - 5, 4)], 2)
    transformed = np.einsum("ij,nctj->ncti", input_, tiles).astype(F32)
    filters = np.einsum("ij,ocj->oci", filter_, w).astype(F32)
    products = np.einsum("ncti,oci->noti", transformed, filters, dtype=F32)
    made = np.einsum("ij,notj->noti", output, products).astype(F32)
    return made.reshape(*made.shape[:2], -1)


def one_pass(x: Array, w: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = (x * x).mean(-1, keepdims=True) - mean * mean
    return (x - mean) / np.sqrt(variance + F32(1e-5)) * w


def flushed(x: Array) -> Array:
    return np.where(np.abs(x) < 2.0**-126, 0, x).astype(F32)


def base_two(x: Array) -> Array:
    return np.exp2((x * F32(1.442695)).astype(F32) + (x * F32(1.9259629e-8)).astype(F32))


OTHERWISE = {
    "product, in order": (operator("MatMul", *LONG), in_order),
    "product, backwards": (operator("MatMul", *LONG), lambda a, b: in_order(a[:, ::-1], b[::-1])),
    "product, fused": (operator("MatMul", *LONG), fused),
    "product, in blocks": (operator("MatMul", *LONG), in_blocks),
    "product, in float64": (operator("MatMul", *LONG), lambda a, b: a.astype(np.float64) @ b),
    "sum, in order": (
        operator("ReduceSum", ROWS, keepdims=1),
        lambda x: np.cumsum(x.reshape(-1), dtype=F32)[-1:].reshape(1, 1),
    ),
    "sum, in pairs": (operator("ReduceSum", ROWS, keepdims=1), lambda x: x.sum(keepdims=True)),
    "convolution, Winograd": (operator("Conv", (2, 32, 66), (16, 32, 3), kernel_shape=[3]), winograd),
    "exp, base two": (operator("Exp", ROWS), base_two),
    "exp, flushed": (operator("Exp", ROWS), lambda x: flushed(np.exp(flushed(x)))),
    "root, flushed": (operator("Sqrt", ROWS), lambda x: np.sqrt(flushed(x))),
    "sigmoid, by tanh": (operator("Sigmoid", ROWS), lambda x: F32(0.5) + F32(0.5) * np.tanh(F32(0.5) * x)),
    "softplus, by its definition": (
        operator("Softplus", ROWS), lambda x: np.where(x > 80, x, np.log(1 + np.exp(x)))
    ),
    "elu, by its definition": (operator("Elu", ROWS), lambda x: np.where(x > 0, x, np.exp(x) - 1)),
    "quotient, by a reciprocal": (operator("Div", ROWS, ROWS), lambda x, y: x * (1 / y)),
    "softmax": (operator("Softmax", ROWS, axis=-1), softmax),
    "norm, in one pass": (operator("LayerNormalization", ROWS, (1024,), axis=-1), one_pass),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERWISE)
@pytest.mark.parametrize("distribution", by_day.only(["strata"], DISTRIBUTIONS))
def test_computing_otherwise_is_right(name: str, distribution: str) -> None:
    op, kernel = OTHERWISE[name]
    verdict = judged(op, kernel, *drawn(op, distribution))
    assert verdict.status is Status.OK and verdict.error < 0.95, verdict


def by_transforms(x: Array, w: Array) -> Array:
    """As PyTorch computes it without oneDNN: from sixteen images on NNPACK does, which mixes what lies in a
    tile."""
    import torch

    with torch.backends.mkldnn.flags(enabled=False):
        return torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w)).numpy()


def one_exponent_for_a_map(x: Array, w: Array) -> Array:
    step = np.abs(x).max((2, 3), keepdims=True) * 2.0**-15
    return by_transforms((np.round(x / step) * step).astype(F32), w)


def test_what_lies_in_a_tile_of_a_transform_may_lose_of_its_largest_and_no_more() -> None:
    op = operator("Conv", (16, 32, 13, 13), (24, 32, 1, 1), kernel_shape=[1, 1])
    random = np.random.default_rng(4)
    x = random.standard_normal((16, 32, 13, 13), np.float32) * np.exp2(np.arange(13) - 6).astype(F32)
    w = random.standard_normal((24, 32, 1, 1), np.float32) / F32(6)
    far = (x * np.exp2(3 * np.arange(13) - 18)).astype(F32)
    for made in (x, far):
        assert judged(op, by_transforms, made, w).status is Status.OK
        assert judged(op, one_exponent_for_a_map, made, w).status is Status.WRONG_RESULT


def test_a_setting_may_allow_less() -> None:
    op = operator("MatMul", (16, 256), (256, 16))
    inputs = drawn(op, "normal")

    def tf32(a: Array, b: Array) -> Array:
        return bits(a, 10) @ bits(b, 10)

    assert judged(op, tf32, *inputs).status is Status.WRONG_RESULT
    assert judged(op, tf32, *inputs, setting=Setting(tf32=True)).status is Status.OK
    assert judged(op, float16_sums, *inputs, setting=Setting(accumulate="float16")).status is Status.OK


@given(st.integers(0, 7), st.integers(0, 15), st.sampled_from([1e30, -1e30, 1e12]), st.integers(0, 99))
@settings(max_examples=20)
def test_a_large_element_excuses_only_what_is_computed_from_it(
    row: int, column: int, factor: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((8, 16)).astype(F32), random.standard_normal((16, 8)).astype(F32)
    large = a.copy()
    large[row, column] *= F32(factor)
    others = np.arange(8) != row
    for op, inputs, changed in (
        (operator("MatMul", (8, 16), (16, 8)), [a, b], [large, b]),
        (operator("Softmax", (8, 16), axis=-1), [a], [large]),
        (operator("Exp", (8, 16)), [a], [large]),
    ):
        [before], [after] = references(op, *inputs), references(op, *changed)
        assert before.allowed is not None and after.allowed is not None
        np.testing.assert_array_equal(before.allowed[others], after.allowed[others])


def test_a_mask_of_infinities_leaves_every_element_its_own_room() -> None:
    heads = (1, 2, 16, 8)
    op = operator("Attention", heads, heads, heads, (16, 16))
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal(heads, np.float32) for _ in range(3))
    [free] = references(op, q, k, v, np.zeros((16, 16), F32))
    [causal] = references(op, q, k, v, np.where(np.tri(16) > 0, 0, -np.inf).astype(F32))
    assert free.allowed is not None and causal.allowed is not None
    assert causal.allowed.max() < 8 * free.allowed.max()


def test_tiny_factors_of_a_large_product_have_room_too() -> None:
    op = operator("MatMul", (64, 512), (512, 1024))
    random = np.random.default_rng(0)
    a, b = random.standard_normal((64, 512), F32), random.standard_normal((512, 1024), F32)
    [usual], [tiny] = references(op, a, b), references(op, a * F32(2.0**-40), b * F32(2.0**-40))
    assert usual.allowed is not None and tiny.allowed is not None
    np.testing.assert_allclose(tiny.allowed * 2.0**80, usual.allowed, rtol=1e-3)


def test_what_cancels_has_the_room_of_what_it_was_made_of() -> None:
    chain = graph(
        step("Mul", [0, 0], [1]),
        step("Sub", [1, 0], [2]),
        inputs=[{"shape": [2], "dtype": "float32"}],
        outputs=[2],
    )
    [reference] = references(parse_operator(chain), np.array([1.0000001, 3.0], F32))
    assert reference.allowed is not None
    assert 2**-24 < reference.allowed[0] < 2**-20  # of numbers around one, although they differ by 1e-7
    assert reference.allowed[1] < 2**-18


def test_either_side_of_a_jump_is_right_only_at_the_jump() -> None:
    third = {"shape": [3], "dtype": "float32"}
    chain = parse_operator(
        graph(step("Div", [0, 1], [2]), step("Floor", [2], [3]), inputs=[third, third], outputs=[3])
    )
    [reference] = references(chain, np.array([3, 7, 1], F32), np.array([1, 2, F32(0.1)], F32))
    assert compare([np.array([3, 3, 9], F32)], [reference]).status is Status.OK
    assert compare([np.array([2, 3, 10], F32)], [reference]).status is Status.OK
    assert compare([np.array([3, 4, 9], F32)], [reference]).status is Status.WRONG_RESULT
    # Room has no side: 8 would pass for 9 here, as 10 does, and 7 does not.
    assert compare([np.array([3, 3, 7], F32)], [reference]).status is Status.WRONG_RESULT
    [exact] = references(operator("Floor", (3,)), np.array([0.9999999, 3, -1e-30], F32))
    assert compare([np.array([0, 3, -1], F32)], [exact]).status is Status.OK
    assert compare([np.array([1, 3, -1], F32)], [exact]).status is Status.WRONG_RESULT


def test_of_equal_elements_either_may_be_chosen() -> None:
    top = parse_operator(
        {
            "op": "TopK",
            "attrs": {"axis": 0, "largest": 1, "sorted": 1},
            "inputs": [{"shape": [5], "dtype": "float32"}, {"value": [2], "dtype": "int64"}],
            "outputs": 2,
        }
    )
    wanted = references(top, np.array([1, 9, 4, 4, 4], F32))
    values = np.array([9, 4], F32)
    for index in (2, 3, 4):
        assert compare([values, np.array([1, index])], wanted).status is Status.OK
    assert compare([values, np.array([0, 2])], wanted).status is Status.WRONG_RESULT
    assert compare([np.array([9, 1], F32), np.array([1, 2])], wanted).status is Status.WRONG_RESULT


def test_without_a_pytorch_graph_the_whole_operator_is_probed() -> None:
    op = parse_operator(
        {
            "op": "QuantizeLinear",
            "inputs": [
                {"shape": [4], "dtype": "float32"},
                {"shape": [], "dtype": "float32"},
                {"shape": [], "dtype": "uint8"},
            ],
        }
    )
    inputs = {0: np.array([0.25, 0.5, 10, 20], F32), 1: F32(0.1).reshape(()), 2: np.uint8(3).reshape(())}
    wanted = [Reference(*pair) for pair in runner("onnx", op, Setting(), {})(inputs)]
    for first in (5, 6):  # 2.5 steps: where a rounding decides
        assert compare([np.array([first, 8, 103, 203], np.uint8)], wanted).status is Status.OK
    assert compare([np.array([5, 9, 103, 203], np.uint8)], wanted).status is Status.WRONG_RESULT
    assert compare([np.array([7, 8, 103, 203], np.uint8)], wanted).status is Status.WRONG_RESULT


def test_the_timed_sets_hold_no_denormal_number_and_the_strata_hold_all_kinds() -> None:
    exp = operator("Exp", ROWS)
    for name in DISTRIBUTIONS[:2]:
        [x] = drawn(exp, name)
        assert (np.abs(x) > 2.0**-126).all() and np.abs(x).max() < 8
    [x] = drawn(exp, "strata")
    sizes = np.abs(x)
    assert ((sizes > 0) & (sizes < 2.0**-126)).any()
    assert (x == 0).any() and np.signbit(x[x == 0]).any() and not np.signbit(x[x == 0]).all()
    with np.errstate(invalid="ignore"):
        assert np.isfinite(x).mean() > 0.9
    for low, high in [(-104, -88), (-80, -20), (6.5, 70), (70, 88), (1e-30, 1e-20), (-1e-3, -1e-6)]:
        assert ((x > low) & (x < high)).sum() > 100
    assert np.isnan(x).any() and np.isposinf(x).any() and np.isneginf(x).any()
    [x] = drawn(operator("Relu", ROWS), "strata")
    assert np.isposinf(x).any() and not np.isnan(x).any()  # max(NaN, 0): libraries disagree
    a, _ = drawn(operator("MatMul", ROWS, (1024, 4)), "strata")
    rows = np.abs(a).mean(1)
    assert rows.max() / rows.min() > 2**20


@pytest.mark.parametrize("largest", [3.5, 1.25, 0.875])
def test_codes_of_a_quotient_beside_a_tie_may_be_either(largest: float) -> None:
    """Single precision divides to exactly a half where the reference lies beside it: the default was
    refused."""
    inputs = [{"shape": [16, 64], "dtype": "float32"}]
    op = parse_operator({"op": "DynamicQuantizeLinear", "inputs": inputs, "outputs": 3})
    x = (np.resize([-1, 1, 0.2, -0.2], (16, 64)) * largest).astype(np.float32)
    step = np.float32(2 * largest) / np.float32(255)
    zero = np.rint(np.float32(largest) / step)
    codes = np.clip(np.rint(x / step) + zero, 0, 255).astype(np.uint8)
    wanted = [Reference(*pair) for pair in runner("onnx", op, Setting(), {})({0: x})]
    assert compare([codes, np.asarray(step), np.asarray(zero, np.uint8)], wanted).status is Status.OK
    wrong = np.where(x > 0, codes - 2, codes).astype(np.uint8)
    assert compare([wrong, *(one.value for one in wanted[1:])], wanted).status is Status.WRONG_RESULT
