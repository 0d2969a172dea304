"""Comparison with the reference: strict about NaN and infinity, scaled, exact for whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

from opatlas.identity import Setting, parse_operator
from tuning.measure.judging.check import compare
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
