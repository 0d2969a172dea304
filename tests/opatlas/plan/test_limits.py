"""What is ended, or left, when its time is over."""

from __future__ import annotations

import threading

import numpy as np
import onnxruntime as ort
import pytest

from opatlas.load.onnxruntime_recipe import quiet_options
from opatlas.plan.limits import TookTooLong, run_within, within
from tests.opatlas.plan.loops import EVEN, ODD, halving


def test_onnx_runtime_ends_a_loop_that_would_never_end_and_runs_again() -> None:
    session = ort.InferenceSession(halving(), quiet_options(1))
    with pytest.raises(TookTooLong, match=r"did not end within 0\.2 s"):
        run_within(session, None, ODD, 0.2)
    assert run_within(session, ["s"], EVEN, 60.0) == [np.array(20)]


def test_what_onnx_runtime_raises_is_raised() -> None:
    session = ort.InferenceSession(halving(), quiet_options(1))
    with pytest.raises(Exception, match="missing from input feed"):
        run_within(session, None, {}, 60.0)


def test_a_call_gives_what_it_gives_and_raises_what_it_raises() -> None:
    assert within(60.0, lambda: 4) == 4
    with pytest.raises(ZeroDivisionError):
        within(60.0, lambda: 1 // 0)


def test_a_call_that_does_not_end_is_left_and_what_it_makes_is_let_go_of() -> None:
    go_on, let_go = threading.Event(), threading.Event()

    def slow() -> str:
        go_on.wait(60)
        return "made"

    found: list[str] = []

    def late(made: str) -> None:
        found.append(made)
        let_go.set()

    with pytest.raises(TookTooLong, match="did not end within"):
        within(0.01, slow, late)
    go_on.set()
    assert let_go.wait(60) and found == ["made"]
