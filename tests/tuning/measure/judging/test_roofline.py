"""Only the impossible is below the floor."""

from __future__ import annotations

from opatlas.identity import Setting, Target, parse_operator
from tests.catalog.making import GPU
from tuning.measure.judging.roofline import floor_us


def test_a_matrix_product_cannot_beat_any_machines_peak(target: Target) -> None:
    square = {"shape": [1024, 1024], "dtype": "float32"}
    floor = floor_us(parse_operator({"op": "MatMul", "inputs": [square, square]}), target, Setting(threads=1))
    # 2.1 GFLOP: above 0.5 TFLOP/s on one core is impossible, below 0.1 TFLOP/s is not.
    assert 2.1e9 / 5e11 * 1e6 < floor < 2.1e9 / 1e11 * 1e6


def test_what_a_gpu_does_is_no_cheat(target: Target) -> None:
    square = {"shape": [8192, 8192], "dtype": "float16"}
    product = parse_operator({"op": "MatMul", "inputs": [square, square]})
    # 1.1 TFLOP: an H100 takes 1.5 ms for it, which no CPU could.
    assert 20 < floor_us(product, GPU, Setting()) < 1500 < floor_us(product, target, Setting(threads=2))
    wide = {"shape": [8192, 8192], "dtype": "float32"}
    strict = parse_operator({"op": "MatMul", "inputs": [wide, wide]})
    assert floor_us(strict, GPU, Setting(tf32=True)) * 60 < floor_us(strict, GPU, Setting()) < 18_000


def test_a_view_may_take_no_time(target: Target) -> None:
    transpose = parse_operator(
        {"op": "Transpose", "attrs": {"perm": [1, 0]}, "inputs": [{"shape": [512, 512], "dtype": "float32"}]}
    )
    assert floor_us(transpose, target, Setting(threads=1)) == 0.0
