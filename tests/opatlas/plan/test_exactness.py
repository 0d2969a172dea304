"""How inexact a plan may be beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from opatlas.graph.normal import ModelGraph
from opatlas.plan import exactness
from opatlas.plan.exactness import error_of, in_float64_if_possible, why_inexact
from tests.opatlas.plan.test_executor import FEED, chain
from tests.opatlas.session.test_session import looping

EXACT = [np.array([1.0, -4.0])]


def off(by: float) -> list[np.ndarray]:
    return [(EXACT[0] + [by, 0.0]).astype(np.float64)]


def test_outputs_of_another_shape_are_endlessly_wrong() -> None:
    assert error_of([np.ones(3)], [np.ones(4)]) == float("inf")
    assert error_of([np.array([1.0, 3.0])], [np.array([1.0, 4.0])]) == 0.25


def test_twice_as_much_is_allowed_and_what_is_rounding() -> None:
    assert not why_inexact(off(1.99e-6), off(1e-6), EXACT)
    assert why_inexact(off(3e-6), off(1e-6), EXACT) == (
        "it errs 3.0 times as much as ONNX Runtime against float64, and at most 2 times is allowed"
    )
    assert not why_inexact(off(4e-7), off(0.0), EXACT)  # a tenth of a millionth of the largest value
    assert "where ONNX Runtime does not" in why_inexact(off(5e-7), off(0.0), EXACT)
    assert why_inexact([np.array([np.nan, -4.0])], off(1e-6), EXACT)


def test_where_nobody_can_tell_there_is_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ModelGraph(chain(2))
    found = in_float64_if_possible(graph, FEED, 1)
    assert found is not None and found[0].dtype == np.float64
    given = {name: np.ones(1000, np.float32) for name in ("x", "y")}
    assert in_float64_if_possible(ModelGraph(looping()), given, 1) is None  # no call of PyTorch's is a Loop
    monkeypatch.setattr(exactness, "lacking", lambda wanted: "too little")
    assert in_float64_if_possible(graph, FEED, 1) is None
