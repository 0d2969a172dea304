"""Patterns: what matches, what does not and why, and that nothing that is given breaks the reading."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opatlas.identity import parse_operator
from tests import by_day
from tuning.routes.manual.matching import InvalidPattern, parse_pattern


def softmax(*shape: int, dtype: str = "float32", axis: int = -1, **value: Any) -> Any:
    given = {"shape": list(shape), "dtype": dtype, **value}
    return parse_operator({"op": "Softmax", "inputs": [given], "attrs": {"axis": axis}})


CONV = parse_operator(
    {
        "op": "Conv",
        "attrs": {"group": 8, "pads": [1, 1, 1, 1], "strides": [2, 2], "kernel_shape": [3, 3]},
        "inputs": [
            {"shape": [1, 8, 9, 9], "dtype": "float32"},
            {"shape": [8, 1, 3, 3], "dtype": "float32", "role": "const"},
        ],
    }
)


def refused(pattern: dict[str, Any], operator: Any) -> str:
    return parse_pattern(pattern).refuses(operator)


def test_an_axis_may_be_counted_from_the_end() -> None:
    pattern = {"op": "Softmax", "attributes": {"axis": -1}}
    assert refused(pattern, softmax(4, 5, 6)) == ""
    assert refused(pattern, softmax(4, 5, 6, axis=1)) == "its axis is 1, not -1"
    assert refused({"op": "Softmax", "attributes": {"axis": 2}}, softmax(4, 5, 6)) == ""


def test_sizes_dtypes_and_layouts() -> None:
    one = {"dtype": "float32", "contiguous": True, "rank": 2, "dims": {"-1": {"multiple_of": 8, "max": 64}}}
    pattern = {"op": ["LogSoftmax", "Softmax"], "inputs": [one]}
    assert refused(pattern, softmax(3, 64)) == ""
    assert refused(pattern, softmax(3, 72)) == "input 0 has 72 in dimension -1, not at most 64"
    assert refused(pattern, softmax(3, 60)) == "input 0 has 60 in dimension -1, not a multiple of 8"
    assert refused(pattern, softmax(1, 3, 64)) == "input 0 has rank 3, not 2"
    assert "float64" in refused(pattern, softmax(3, 64, dtype="float64"))
    assert "strided" in refused(pattern, softmax(64, 64, strides=[1, 64]))
    assert refused({"op": "Softmax"}, softmax(64, 64, strides=[1, 64])) == ""


def test_lists_roles_and_how_many_inputs() -> None:
    weights = {"role": "const", "dims": {"1": 1, "2": {"one_of": [3, 5]}}}
    assert refused({"op": "Conv", "inputs": [None, weights]}, CONV) == ""
    assert refused({"op": "Conv", "attributes": {"strides": [2, 2]}}, CONV) == ""
    assert refused({"op": "Conv", "attributes": {"strides": {"one_of": [[1, 1], [2, 2]]}}}, CONV) == ""
    assert "strides" in refused({"op": "Conv", "attributes": {"strides": [1, 1]}}, CONV)
    assert refused({"op": "Conv", "inputs": [None, None, None]}, CONV) == "it has 2 inputs, not 3"
    assert (
        refused({"op": "Conv", "inputs": [{"role": "const"}, None]}, CONV) == "input 0 is runtime, not const"
    )
    assert refused({"op": "Softmax"}, CONV) == "it is Conv, not Softmax"
    assert refused({"op": "Conv", "attributes": {"colour": 1}}, CONV) == "it has no attribute colour"


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ("Softmax", "pattern"),
        ({}, "pattern.op"),
        ({"op": []}, "pattern.op"),
        ({"op": 3}, "pattern.op"),
        ({"op": ""}, "pattern.op"),
        ({"op": "X", "input": []}, "pattern"),
        ({"op": "X", "inputs": {}}, "pattern.inputs"),
        ({"op": "X", "inputs": [{"dtype": "float31"}]}, "pattern.inputs[0].dtype"),
        ({"op": "X", "inputs": [{"rank": "2"}]}, "pattern.inputs[0].rank"),
        ({"op": "X", "inputs": [{"rank": {"min": -1}}]}, "pattern.inputs[0].rank.min"),
        ({"op": "X", "inputs": [{"rank": {"min": 3, "max": 2}}]}, "pattern.inputs[0].rank"),
        ({"op": "X", "inputs": [{"dims": {"last": 2}}]}, "pattern.inputs[0].dims"),
        ({"op": "X", "inputs": [{"dims": {"0": {}}}]}, "pattern.inputs[0].dims.0"),
        (
            {"op": "X", "inputs": [{"dims": {"0": {"multiple_of": 0}}}]},
            "pattern.inputs[0].dims.0.multiple_of",
        ),
        ({"op": "X", "inputs": [{"role": "weights"}]}, "pattern.inputs[0].role"),
        ({"op": "X", "inputs": [{"contiguous": "yes"}]}, "pattern.inputs[0].contiguous"),
        ({"op": "X", "attributes": {"a": None}}, "pattern.attributes.a"),
        ({"op": "X", "attributes": {"a": {"one_of": []}}}, "pattern.attributes.a.one_of"),
        ({"op": "X", "attributes": {"a": float("nan")}}, "pattern.attributes.a"),
        ({"op": "X", "attributes": {"a": [[1]] * 70}}, "pattern.attributes.a"),
    ],
)
def test_a_bad_pattern_is_refused_with_one_sentence(document: Any, where: str) -> None:
    with pytest.raises(InvalidPattern) as refusal:
        parse_pattern(document)
    assert refusal.value.where == where
    assert str(refusal.value).endswith(".") and "\n" not in str(refusal.value)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["op", "inputs", "attributes", "dims", "rank", "dtype", "min", "one_of", "-1", "axis"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=by_day.draws(150))
@given(_json)
def test_whatever_is_given_is_read_or_refused(document: Any) -> None:
    try:
        pattern = parse_pattern(document)
    except InvalidPattern as refusal:
        assert str(refusal)
    else:
        assert isinstance(pattern.refuses(CONV), str)


@settings(max_examples=by_day.draws(100))
@given(
    size=st.integers(1, 200),
    low=st.integers(0, 200),
    span=st.integers(0, 200),
    multiple=st.integers(1, 16),
)
def test_bounds_mean_what_they_say(size: int, low: int, span: int, multiple: int) -> None:
    bounds = {"min": low, "max": low + span, "multiple_of": multiple}
    pattern = {"op": "Softmax", "inputs": [{"dims": {"-1": bounds}}]}
    matches = refused(pattern, softmax(2, size)) == ""
    assert matches == (low <= size <= low + span and size % multiple == 0)
