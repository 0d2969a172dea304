"""Comparison with the reference: strict about NaN and infinity, scaled, exact for whole numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from opatlas.identity import Setting, parse_operator
from tests.opatlas.identity.examples import TOKENS, graph, known, node, step, tensor, weight
from tuning.measure.judging.check import CheckResult, compare
from tuning.measure.judging.tolerance import reduction_length, tolerance
from tuning.measure.outcome import Status


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def f64(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("got", "wanted", "status"),
    [
        (f32(1, 2), f64(1, 2), Status.OK),
        (f32(1, 2.00001), f64(1, 2), Status.OK),
        (f32(1, 2.01), f64(1, 2), Status.WRONG_RESULT),
        (f32(NAN, 2), f64(1, 2), Status.NOT_FINITE),
        (f32(1, 2), f64(NAN, 2), Status.NOT_FINITE),
        (f32(NAN, 2), f64(NAN, 2), Status.OK),
        (f32(INF, 2), f64(INF, 2), Status.OK),
        (f32(-INF, 2), f64(INF, 2), Status.NOT_FINITE),
        (f32(INF, 2), f64(1e30, 2), Status.NOT_FINITE),
        (f32(INF, 2), f64(1e39, 2), Status.OK),  # what float32 cannot hold
        (f32(NAN, 2), f64(1e39, 2), Status.NOT_FINITE),
        (f32(), f64(), Status.OK),
        (np.array([1, 2]), np.array([1, 2]), Status.OK),
        (np.array([1, 3]), np.array([1, 2]), Status.WRONG_RESULT),
        (np.array([True]), np.array([False]), Status.WRONG_RESULT),
    ],
)
def test_verdicts(got: np.ndarray, wanted: np.ndarray, status: Status) -> None:
    assert compare([got], [wanted], 1e-4).status is status


def test_the_error_is_relative_to_the_outputs_scale() -> None:
    assert compare([f32(1000, 0.01)], [f64(1000, 0)], 1e-4).error == pytest.approx(1e-5)


def test_every_output_is_looked_at() -> None:
    verdict = compare([f32(1), f32(5)], [f64(1), f64(1)], 1e-4)
    assert verdict.status is Status.WRONG_RESULT
    assert "output 1" in verdict.detail


@pytest.mark.parametrize(
    ("got", "wanted", "verdict"),
    [
        (
            np.array([[1, 2], [3, 4]], np.int32),
            np.array([[1, 2], [9, 9]]),
            CheckResult(Status.WRONG_RESULT, "output 0: 2 of 4 elements differ", INF),
        ),
        (np.array([200], np.uint8), np.array([200.0]), CheckResult()),
        (np.array([1 << 24 | 1], np.int32), np.array([1 << 24 | 1]), CheckResult()),
        (
            f32(1, 2.5),
            f64(1, 2),
            CheckResult(Status.WRONG_RESULT, "output 0: error 0.25 of its scale; at most 0.125", 0.25),
        ),
        (f32(1, 2.25), f64(1, 2), CheckResult(error=0.125)),
        (f32(1, 1.75), f64(1, 2), CheckResult(error=0.125)),
        (f32(-1, -2.25), f64(-1, -2), CheckResult(error=0.125)),
        (f32(-2.125, 1), f64(-2, 1), CheckResult(error=0.0625)),
        (
            np.array([[1, 2, NAN], [4, 5, 6]], np.float32),
            np.array([[1.0, 2.0, 3.0], [4.0, 5.0, INF]]),
            CheckResult(
                Status.NOT_FINITE,
                "output 0: 2 of 6 elements are not finite where the reference is, or the other way round"
                " (one is nan)",
                INF,
            ),
        ),
    ],
)
def test_a_verdict_says_what_was_wrong_and_by_how_much(
    got: np.ndarray, wanted: np.ndarray, verdict: CheckResult
) -> None:
    assert compare([got], [wanted], 0.125) == verdict


def test_small_numbers_are_judged_by_their_own_scale() -> None:
    assert compare([f32(2e-3)], [f64(1e-3)], 0.1).status is Status.WRONG_RESULT
    # But never by less than the smallest normal number of float32: below it there is none to speak of.
    assert compare([f64(3e-40)], [f64(1e-40)], 0.1).error == pytest.approx(2e-40 / 2**-126)
    near = compare([f64(1.05e-40)], [f64(1e-40)], 0.1)
    assert near.error == pytest.approx(5e-42 / 2**-126)
    tiny = compare([np.array([3e-40j])], [np.array([1e-40j])], 0.1)
    assert tiny.error == pytest.approx(2e-40 / 2**-126)


LIMITS = {
    np.dtype(np.float16): 65504.0,
    np.dtype(ml_dtypes.bfloat16): float(ml_dtypes.finfo(ml_dtypes.bfloat16).max),
    np.dtype(ml_dtypes.float8_e5m2): 57344.0,
    np.dtype(np.float32): float(np.finfo(np.float32).max),
    np.dtype(np.float64): float(np.finfo(np.float64).max),
    np.dtype(np.complex64): float(np.finfo(np.float32).max),
    np.dtype(np.complex128): float(np.finfo(np.float64).max),
}


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize(
    ("got", "wanted", "status"),
    [
        # as shares of the largest number of the type
        (INF, 0.85, Status.NOT_FINITE),
        (INF, 0.95, Status.OK),
        (-INF, 0.95, Status.NOT_FINITE),
        (-INF, -0.95, Status.OK),
        (0.75, 0.95, Status.OK),
        (0.25, 0.95, Status.NOT_FINITE),
        (0.5, 0.5, Status.OK),
        (0.25, 0.5, Status.WRONG_RESULT),
        (NAN, NAN, Status.OK),
        (INF, INF, Status.OK),
        (INF, NAN, Status.NOT_FINITE),
    ],
)
def test_near_a_types_limit_either_answer_is_right(
    dtype: np.dtype, got: float, wanted: float, status: Status
) -> None:
    wide = np.complex128 if dtype.kind == "c" else np.float64
    limit = LIMITS[dtype]
    made = np.array([got * limit, 0], wide).astype(dtype)
    assert compare([made], [np.array([wanted * limit, 0], wide)], 0.1).status is status


def test_imaginary_parts_count() -> None:
    got, wanted = np.array([1 + 1j], np.complex64), np.array([1 + 2j], np.complex128)
    assert compare([got], [wanted], 0.1).status is Status.WRONG_RESULT
    assert compare([wanted.astype(np.complex64)], [wanted], 0.1).status is Status.OK
    half = np.array([3 + 0j], np.complex64)
    assert compare([half], [np.array([2 + 0j])], 0.5) == CheckResult(error=0.5)


def test_outputs_must_be_as_many_as_are_wanted() -> None:
    with pytest.raises(ValueError, match="argument 2 is longer"):
        compare([f32(1)], [f64(1), f64(1)], 0.1)


def matmul(inner: int, dtype: str = "float32") -> object:
    return parse_operator(
        {
            "op": "MatMul",
            "inputs": [{"shape": [4, inner], "dtype": dtype}, {"shape": [inner, 4], "dtype": dtype}],
        }
    )


def test_longer_sums_and_narrower_types_may_err_more() -> None:
    strict = Setting(threads=1)
    short, long = tolerance(matmul(16), strict), tolerance(matmul(4096), strict)  # type: ignore[arg-type]
    assert short < long < 1e-3
    assert tolerance(matmul(16, "float16"), strict) > 50 * short  # type: ignore[arg-type]
    assert tolerance(matmul(16), Setting(threads=1, tf32=True)) > 50 * short  # type: ignore[arg-type]


def test_sums_that_may_be_kept_in_a_narrow_type_may_err_more() -> None:
    strict, loose = tolerance(matmul(64), Setting()), tolerance(matmul(64), Setting(accumulate="float16"))  # type: ignore[arg-type]
    assert loose > 50 * strict
    assert tolerance(matmul(64), Setting(accumulate="float64")) == strict  # type: ignore[arg-type]


def test_whole_numbers_must_be_exact() -> None:
    add = parse_operator(
        {"op": "Add", "inputs": [{"shape": [4], "dtype": "int64"}, {"shape": [4], "dtype": "int64"}]}
    )
    assert tolerance(add, Setting(threads=1)) == 0.0


def test_a_convolution_sums_over_channels_and_window() -> None:
    conv = parse_operator(
        {
            "op": "Conv",
            "attrs": {"group": 2},
            "inputs": [
                {"shape": [1, 8, 9, 9], "dtype": "float32"},
                {"shape": [6, 4, 3, 3], "dtype": "float32", "const": True},
            ],
        }
    )
    assert reduction_length(conv) == 36


BYTES = {"dtype": "uint8"}
SCALE, ZERO = tensor(role="const"), tensor(role="const", **BYTES)
SUMS = [
    (node("Relu", TOKENS), 1),
    (node("Add", TOKENS, TOKENS), 1),
    (node("Conv", tensor(1, 8, 9, 9), weight(6, 4, 3, 5), group=2), 4 * 3 * 5),
    (node("ConvInteger", tensor(1, 8, 9, 9, **BYTES), weight(6, 8, 3, 5, **BYTES)), 8 * 3 * 5),
    (
        node(
            "QLinearConv", tensor(1, 8, 9, 9, **BYTES), SCALE, ZERO, weight(6, 8, 3, 5, **BYTES), SCALE, ZERO,
            SCALE, ZERO,
        ),
        8 * 3 * 5,
    ),
    (node("ConvTranspose", tensor(2, 6, 9, 8), weight(6, 4, 3, 5)), 6 * 3 * 5),
    (node("MatMul", tensor(4, 7), tensor(7, 5)), 7),
    (node("MatMulInteger", tensor(4, 7, **BYTES), tensor(7, 5, **BYTES)), 7),
    (
        node(
            "QLinearMatMul", tensor(4, 7, **BYTES), SCALE, ZERO, tensor(7, 5, **BYTES), SCALE, ZERO,
            SCALE, ZERO,
        ),
        7,
    ),
    (node("Gemm", tensor(4, 7), tensor(7, 5)), 7),
    (node("Gemm", tensor(7, 4), tensor(7, 5), transA=1), 7),
    (node("Gemm", tensor(4, 7), tensor(5, 7), transB=1), 7),
    (node("RNN", tensor(5, 2, 3), weight(1, 11, 3), weight(1, 11, 11), hidden_size=11), 5 * (3 + 11)),
    (node("GRU", tensor(5, 2, 3), weight(1, 33, 3), weight(1, 33, 11), hidden_size=11), 5 * (3 + 11)),
    (node("LSTM", tensor(5, 2, 3), weight(1, 44, 3), weight(1, 44, 11), hidden_size=11), 5 * (3 + 11)),
    (node("Attention", tensor(1, 4, 3, 8), tensor(1, 4, 16, 8), tensor(1, 4, 16, 8)), 16),
    (node("Einsum", tensor(2, 3), tensor(3, 9), equation="ij,jk->ik"), 9),
    (node("Einsum", tensor(), tensor(), equation=",->"), 1),
    (node("ReduceSum", TOKENS, known(1)), 5),
    (node("ReduceSum", TOKENS, known(0, 1, 2), keepdims=0), 2 * 5 * 12),
    (node("ReduceSum", tensor(3, 1), known(1)), 3),
    (node("Softmax", TOKENS), 12),
    (node("LogSoftmax", TOKENS), 12),
    (node("CumSum", TOKENS, {"value": 1, "dtype": "int64"}), 12),
    (node("GlobalAveragePool", tensor(2, 6, 9, 8)), 9 * 8),
    (node("AveragePool", tensor(1, 1, 9, 9), kernel_shape=[2, 2], strides=[2, 2]), 81 // 16),
    (node("AveragePool", tensor(1, 1, 9), kernel_shape=[2]), 9 // 8),
    (node("LayerNormalization", TOKENS, weight(12), weight(12)), 12),
    (node("InstanceNormalization", tensor(2, 6, 9, 8), weight(6), weight(6)), 9),
    (
        graph(
            step("MatMul", [0, 1], [2]),
            step("Softmax", [2], [3]),
            inputs=[tensor(4, 7), tensor(7, 5)],
            outputs=[3],
        ),
        7 + 5,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("document", "terms"), SUMS, ids=[str(row[0].get("op", "fused")) for row in SUMS])
def test_terms_of_the_longest_sum(document: dict[str, Any], terms: int) -> None:
    assert reduction_length(parse_operator(document)) == terms


F64, F32, TF32, F16, BF16 = 2.0**-52, 2.0**-23, 2.0**-10, 2.0**-10, 2.0**-7


@pytest.mark.parametrize(
    ("dtype", "setting", "rounding", "summing"),
    [
        # what the result is rounded by, with its room; what the sum of 9 terms is, with 16 times as much
        ("float32", Setting(), 16 * F32, F32),
        ("float64", Setting(), 16 * F64, F64),
        ("float16", Setting(), 8 * F16, F32),
        ("bfloat16", Setting(), 8 * BF16, F32),
        ("float32", Setting(accumulate="float64"), 16 * F32, F32),
        ("float32", Setting(accumulate="float16"), 16 * F32, F16),
        ("float64", Setting(accumulate="bfloat16"), 16 * F64, BF16),
        ("float16", Setting(accumulate="float16"), 8 * F16, F16),
        ("float32", Setting(tf32=True), 8 * TF32, TF32),
        ("float32", Setting(fast_math=True), 8 * TF32, TF32),
        ("bfloat16", Setting(tf32=True), 8 * BF16, TF32),
        ("bfloat16", Setting(tf32=True, accumulate="bfloat16"), 8 * BF16, BF16),
    ],
)
def test_room_is_for_rounding_and_for_the_root_of_the_terms(
    dtype: str, setting: Setting, rounding: float, summing: float
) -> None:
    assert tolerance(matmul(9, dtype), setting) == pytest.approx(rounding + 16 * summing * 3)  # type: ignore[arg-type]


def test_each_node_of_a_fused_operator_rounds_once_more() -> None:
    chain = graph(*(step("Relu", [n], [n + 1]) for n in range(4)), inputs=[TOKENS], outputs=[4])
    assert tolerance(parse_operator(chain), Setting()) == pytest.approx(16 * F32 * 2 + 16 * F32 * 2)


def test_whether_it_must_be_exact_goes_by_the_outputs() -> None:
    found = parse_operator(node("ArgMax", TOKENS, axis=1))
    made = parse_operator(node("Cast", tensor(4, dtype="int64"), to=1))
    assert tolerance(found, Setting()) == 0.0
    assert tolerance(made, Setting()) == pytest.approx(32 * F32)
