"""Comparison with the reference: element by element, strict about NaN and infinity."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opatlas.identity import Setting, parse_operator
from tests import by_day
from tests.opatlas.identity.examples import TOKENS, graph, known, node, step, tensor, weight
from tuning.measure.judging.check import CheckResult, Reference, compare
from tuning.measure.judging.tolerance import Precision, reduction_length
from tuning.measure.outcome import Status


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def f64(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


NAN, INF = float("nan"), float("inf")


def with_room(wanted: np.ndarray, share: float) -> Reference:
    """A reference whose elements may each differ by this share of their own size."""
    return Reference(wanted, share * np.abs(np.nan_to_num(wanted, posinf=0, neginf=0)) + 2.0**-126)


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
        (f32(-INF, 2), f64(INF, 2), Status.WRONG_RESULT),
        (f32(INF, 2), f64(1e30, 2), Status.NOT_FINITE),
        (f32(INF, 2), f64(1e39, 2), Status.OK),  # what float32 cannot hold
        (f32(3.4e38, 2), f64(1e39, 2), Status.OK),  # and what is nearest to it
        (f32(1e38, 2), f64(1e39, 2), Status.WRONG_RESULT),
        (f32(NAN, 2), f64(1e39, 2), Status.NOT_FINITE),
        (f32(), f64(), Status.OK),
        (np.array([1, 2]), np.array([1, 2]), Status.OK),
        (np.array([1, 3]), np.array([1, 2]), Status.WRONG_RESULT),
        (np.array([True]), np.array([False]), Status.WRONG_RESULT),
    ],
)
def test_verdicts(got: np.ndarray, wanted: np.ndarray, status: Status) -> None:
    reference = with_room(wanted, 1e-4) if wanted.dtype.kind == "f" else Reference(wanted)
    assert compare([got], [reference]).status is status


@pytest.mark.parametrize("large", [1e38, INF, NAN])
def test_no_element_excuses_another(large: float) -> None:
    # 1e38 in one element once excused an absolute error of 1e32 in all others.
    size = 3 * 32768 + 17
    wanted = np.full(size, 1.0)
    wanted[40_000] = large
    got = wanted.astype(np.float32)
    assert compare([got], [with_room(wanted, 1e-6)]).status is Status.OK
    for place in (0, 39_999, 40_001, size - 1):
        off = got.copy()
        off[place] = 1.00001
        verdict = compare([off], [with_room(wanted, 1e-6)])
        assert (verdict.status, verdict.error) == (Status.WRONG_RESULT, pytest.approx(10, rel=0.02))
        assert "1 of 98321 elements are wrong (one is 1.00001001, and should be 1 ± 1e-06)" in verdict.detail


@given(st.data())
@settings(max_examples=by_day.draws(60))
def test_scaling_one_element_leaves_the_others_verdicts(data: st.DataObject) -> None:
    values = np.array(data.draw(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=9)), np.float32)
    off = np.array(data.draw(st.lists(st.booleans(), min_size=values.size, max_size=values.size)))
    place = data.draw(st.integers(0, values.size - 1))
    scaled = values.copy()
    scaled[place] *= np.float32(data.draw(st.sampled_from([1e30, -1e30, 1e-30])))
    for one in (values, scaled):
        got = np.where(off, one * np.float32(1.001) + np.float32(1e-3), one)
        others = np.arange(one.size) != place
        room = with_room(one.astype(np.float64), 1e-5)
        verdict = compare([got[others]], [Reference(room.value[others], room.allowed[others])])  # type: ignore[index]
        assert (verdict.status is Status.OK) == (not off[others].any())
        whole = compare([np.where(others, got, one)], [room])
        assert (whole.status is Status.OK) == (not off[others].any())


def test_the_error_is_a_share_of_what_is_allowed() -> None:
    reference = Reference(f64(1000, 0.5), f64(1, 0.01))
    assert compare([f32(1000.5, 0.5)], [reference]).error == pytest.approx(0.5)
    assert compare([f32(1000, 0.5025)], [reference]).error == pytest.approx(0.25, rel=1e-4)
    assert compare([f32(1001, 0.51)], [reference], 2.0).error == pytest.approx(1.0, rel=1e-4)
    assert compare([f32(1001.5, 0.5)], [reference], 2.0).status is Status.OK
    assert compare([f32(1001.5, 0.5)], [reference]).error == pytest.approx(1.5)


def test_what_nothing_is_known_of_may_be_anything() -> None:
    reference = Reference(f64(5, 1), f64(INF, 0.1))
    assert compare([f32(-7, 1)], [reference]).status is Status.OK
    assert compare([f32(-7, 2)], [reference]).status is Status.WRONG_RESULT


def test_what_is_moved_must_be_exact() -> None:
    exact = Reference(f64(0.1, -0.0, INF, NAN))
    assert compare([f32(0.1, 0.0, INF, NAN)], [exact]) == CheckResult()
    assert compare([f32(0.1, 1e-45, INF, NAN)], [exact]).status is Status.WRONG_RESULT
    near = np.nextafter(np.float32(0.1), np.float32(1))
    assert compare([f32(near, 0.0, INF, NAN)], [exact]).error == INF


def test_every_output_is_looked_at() -> None:
    verdict = compare([f32(1), f32(5)], [with_room(f64(1), 1e-4), with_room(f64(1), 1e-4)])
    assert verdict.status is Status.WRONG_RESULT
    assert "output 1" in verdict.detail


@pytest.mark.parametrize(
    ("got", "wanted", "verdict"),
    [
        (
            np.array([[1, 2], [3, 4]], np.int32),
            Reference(np.array([[1, 2], [9, 9]])),
            CheckResult(Status.WRONG_RESULT, "output 0: 2 of 4 elements differ", INF),
        ),
        (np.array([200], np.uint8), Reference(np.array([200.0])), CheckResult()),
        (np.array([1 << 24 | 1], np.int32), Reference(np.array([1 << 24 | 1])), CheckResult()),
        # Where a rounding decides, either number is right, and no third.
        (np.array([4, 7]), Reference(np.array([5, 7]), f32(1, 0)), CheckResult()),
        (
            np.array([4, 8]),
            Reference(np.array([5, 7]), f32(1, 0)),
            CheckResult(Status.WRONG_RESULT, "output 0: 1 of 2 elements differ", INF),
        ),
        (
            np.array([[1, 2, NAN], [4, 5, 6]], np.float32),
            with_room(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, INF]]), 0.125),
            CheckResult(
                Status.NOT_FINITE,
                "output 0: 2 of 6 elements are not finite where the reference is, or the other way round"
                " (one is nan, and should be 3 ± 0.375)",
                INF,
            ),
        ),
    ],
)
def test_a_verdict_says_what_was_wrong_and_by_how_much(
    got: np.ndarray, wanted: Reference, verdict: CheckResult
) -> None:
    assert compare([got], [wanted]) == verdict


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
        (INF, 0.45, Status.NOT_FINITE),
        (INF, 0.95, Status.OK),
        (-INF, 0.95, Status.NOT_FINITE),
        (-INF, -0.95, Status.OK),
        (0.5, 0.95, Status.WRONG_RESULT),
        (0.5, 0.5, Status.OK),
        (0.25, 0.5, Status.WRONG_RESULT),
        (NAN, NAN, Status.OK),
        (INF, INF, Status.OK),
        (INF, NAN, Status.NOT_FINITE),
    ],
)
def test_near_a_types_limit_infinity_is_right_too(
    dtype: np.dtype, got: float, wanted: float, status: Status
) -> None:
    wide = np.complex128 if dtype.kind == "c" else np.float64
    limit = LIMITS[dtype]
    made = np.array([got * limit, 0], wide).astype(dtype)
    reference = with_room(np.array([wanted * limit, 0], wide), 0.1)
    assert (compare([made], [reference]).status is Status.OK) == (status is Status.OK)


def test_imaginary_parts_count() -> None:
    got, wanted = np.array([1 + 1j], np.complex64), with_room(np.array([1 + 2j], np.complex128), 0.1)
    assert compare([got], [wanted]).status is Status.WRONG_RESULT
    assert compare([wanted.value.astype(np.complex64)], [wanted]).status is Status.OK


def test_outputs_must_be_as_many_as_are_wanted() -> None:
    with pytest.raises(ValueError, match="argument 2 is longer"):
        compare([f32(1)], [Reference(f64(1)), Reference(f64(1))])


def matmul(inner: int, dtype: str = "float32") -> object:
    return parse_operator(
        {
            "op": "MatMul",
            "inputs": [{"shape": [4, inner], "dtype": dtype}, {"shape": [inner, 4], "dtype": dtype}],
        }
    )


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
    (node("Det", tensor(4, 3, 3)), 9),
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
        ("float32", Setting(), F32, F32),
        ("float64", Setting(), F64, F64),
        ("float16", Setting(), F16, F32),
        ("bfloat16", Setting(), BF16, F32),
        ("complex64", Setting(), F32, F32),
        ("int64", Setting(), 0.0, 0.0),
        ("float32", Setting(accumulate="float64"), F32, F32),
        ("float32", Setting(accumulate="float16"), F32, F16),
        ("float64", Setting(accumulate="bfloat16"), F64, BF16),
        ("float16", Setting(accumulate="float16"), F16, F16),
        ("float32", Setting(tf32=True), TF32, TF32),
        ("float32", Setting(fast_math=True), TF32, TF32),
        ("bfloat16", Setting(tf32=True), BF16, TF32),
        ("bfloat16", Setting(tf32=True, accumulate="bfloat16"), BF16, BF16),
    ],
)
def test_types_and_settings_say_how_exactly_is_computed(
    dtype: str, setting: Setting, rounding: float, summing: float
) -> None:
    precision = Precision(setting)
    assert (precision.rounding(dtype), precision.summing(dtype)) == (rounding, summing)
