"""Only the impossible is below the floor."""

from __future__ import annotations

from opatlas.identity import Setting, Target, parse_operator
from tuning.measure.judging.roofline import floor_us


def test_a_matrix_product_cannot_beat_any_machines_peak(target: Target) -> None:
    square = {"shape": [1024, 1024], "dtype": "float32"}
    floor = floor_us(parse_operator({"op": "MatMul", "inputs": [square, square]}), target, Setting(threads=1))
    # 2.1 GFLOP: above 0.5 TFLOP/s on one core is impossible, below 0.1 TFLOP/s is not.
    assert 2.1e9 / 5e11 * 1e6 < floor < 2.1e9 / 1e11 * 1e6


def test_a_view_may_take_no_time(target: Target) -> None:
    transpose = parse_operator(
        {"op": "Transpose", "attrs": {"perm": [1, 0]}, "inputs": [{"shape": [512, 512], "dtype": "float32"}]}
    )
    assert floor_us(transpose, target, Setting(threads=1)) == 0.0
