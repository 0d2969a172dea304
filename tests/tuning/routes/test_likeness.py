"""Families and nearness of operators."""

from __future__ import annotations

import math

from opatlas.identity import Operator, Setting, parse_operator
from tuning.routes.likeness import distance, family_of, features_of, sizes_of

TWO = Setting(threads=2)


def conv(channels: int, size: int, kernel: int = 3, groups: int = 1, **attrs: object) -> Operator:
    weights = [channels, channels // groups, kernel, kernel]
    inputs = [
        {"dtype": "float32", "shape": [1, channels, size, size]},
        {"dtype": "float32", "shape": weights, "const": True},
    ]
    return parse_operator({"op": "Conv", "attrs": {"group": groups, **attrs}, "inputs": inputs})


def test_sizes_do_not_make_a_family_structure_does() -> None:
    family = family_of(conv(64, 56), TWO)
    assert family == family_of(conv(128, 28), TWO) == family_of(conv(64, 56), Setting(threads=4))
    others = [
        conv(64, 56, kernel=1),
        conv(64, 56, strides=[2, 2]),
        conv(64, 56, groups=2),
        conv(64, 56, groups=64),
    ]
    families = {family_of(one, TWO) for one in others}
    assert len(families) == len(others) and family not in families
    assert family_of(conv(64, 56), Setting(threads=2, fast_math=True)) != family


def test_depthwise_is_one_family_whatever_the_channels() -> None:
    assert family_of(conv(64, 56, groups=64), TWO) == family_of(conv(96, 28, groups=96), TWO)


def test_a_reshapes_target_is_a_size_and_axes_are_structure() -> None:
    def reduced(axis: int) -> Operator:
        axes = {"dtype": "int64", "shape": [1], "const": True, "data": [axis]}
        return parse_operator({"op": "ReduceSum", "inputs": [{"dtype": "float32", "shape": [8, 9]}, axes]})

    def reshaped(*shape: int) -> Operator:
        wanted = {"dtype": "int64", "shape": [len(shape)], "const": True, "data": list(shape)}
        return parse_operator({"op": "Reshape", "inputs": [{"dtype": "float32", "shape": [8, 9]}, wanted]})

    assert family_of(reduced(0), TWO) != family_of(reduced(1), TWO)
    assert family_of(reshaped(72, 1), TWO) == family_of(reshaped(36, 2), TWO)


def test_nearness_counts_doublings() -> None:
    here = features_of(conv(64, 56), TWO)
    assert distance(here, here) == 0
    half_map = distance(here, features_of(conv(64, 28), TWO))
    half_both = distance(here, features_of(conv(32, 28), TWO))
    other_threads = distance(here, features_of(conv(64, 56), Setting(threads=4)))
    assert 0 < other_threads < half_map < half_both
    assert distance(here, [1.0]) == math.inf


def test_sizes_are_told_in_a_few_characters() -> None:
    assert sizes_of(conv(64, 56)) == "1×64×56×56, 64×64×3×3"
