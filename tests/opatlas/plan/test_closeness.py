"""Which results are the same but for rounding: one rule for ONNX models' arrays and PyTorch's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opatlas.identity.dtypes import numpy_dtype
from opatlas.plan.closeness import is_close

ONES = np.ones(3, np.float32)


@pytest.mark.parametrize("bits, name", [
    (52, "float64"), (23, "float32"), (10, "float16"), (7, "bfloat16"), (3, "float8_e4m3fn"),
    (2, "float8_e5m2"), (52, "complex128"), (23, "complex64"),
])  # fmt: skip
def test_floats_may_differ_by_the_square_root_of_their_precision(bits: int, name: str) -> None:
    dtype, allowed = numpy_dtype(name), 2 ** (-bits / 2)
    one = np.array([0.0, 1.0]).astype(dtype)
    assert is_close(np.array([0.5 * allowed, 1.0]).astype(dtype), one)
    assert not is_close(np.array([2.0 * allowed, 1.0]).astype(dtype), one)
    assert not is_close(np.array([0.0, 1.0]).astype(dtype), np.array([2.0 * allowed, 1.0]).astype(dtype))


def test_the_imaginary_part_counts() -> None:
    assert not is_close(np.array([1 + 1j]), np.array([1 + 2j]))


@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_whole_numbers_of_8_bits_may_be_the_next_one(name: str) -> None:
    last = np.iinfo(name).max
    assert is_close(np.array([1, last], name), np.array([2, last - 1], name))
    assert not is_close(np.array([1], name), np.array([3], name))
    assert not is_close(np.array([np.iinfo(name).min], name), np.array([last], name))  # would wrap around


@pytest.mark.parametrize("name", ["int16", "uint16", "int32", "int64", "uint64", "bool"])
def test_the_next_count_or_index_is_another(name: str) -> None:
    assert is_close(np.array([0, 1], name), np.array([0, 1], name))
    assert not is_close(np.array([0, 1], name), np.array([0, 0], name))


def test_shape_type_and_what_is_no_number_count() -> None:
    assert not is_close(ONES[:2], ONES) and not is_close(ONES.astype(np.float64), ONES)
    endless: Any = np.array([np.nan, np.inf, 1.0], np.float32)
    assert is_close(endless.copy(), endless)
    assert not is_close(ONES, endless) and not is_close(endless, ONES) and not is_close(-endless, endless)


def test_lists_strings_and_values_that_are_no_arrays() -> None:
    words = np.array(["a", "b"], object)
    assert is_close([ONES, words], [ONES.copy(), words.copy()])
    assert not is_close([ONES], [ONES, ONES]) and not is_close(words, np.array(["a", "c"], object))
    assert is_close(3, 3) and not is_close(3, 4) and not is_close({1: 0.5}, {1: 0.6}) and is_close(None, None)
