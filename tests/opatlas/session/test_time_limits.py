"""``Session()`` returns, whatever the model or a framework does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import opatlas
from opatlas.client import Client
from opatlas.graph.normal import ModelGraph
from opatlas.identity import Setting
from opatlas.plan import choosing, regions, trying
from opatlas.plan.limits import TookTooLong
from opatlas.plan.profiling import node_times
from opatlas.session import session as module
from tests.configuring import configured
from tests.opatlas.plan.loops import EVEN, ODD, halving
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.session import stand_ins
from tests.tuning.graph.making import model

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., opatlas.Session]]:
    def session(data: bytes, **named: Any) -> opatlas.Session:
        return opatlas.Session(data, client=client, **{"frameworks": ["openvino"], "try_s": 0.0, **named})

    with Client(offline=True, cache=tmp_path, setting=Setting(threads=1)) as client:
        yield session


def doubling() -> bytes:
    made = model([helper.make_node("Add", ["x", "x"], ["y"])], {"x": (3, 4)}, ["y"])
    made.ir_version = 8
    return made.SerializeToString()


def test_a_loop_that_never_ends_over_the_example_is_left_to_onnx_runtime(make: Any) -> None:
    with configured(first_run_s=0.3):
        session = make(halving(), example=ODD)
    [reason] = session.refused.values()
    assert reason == (
        "The example did not end (ONNX Runtime did not end within 0.3 s): "
        "give the session one that does by example=."
    )
    assert session.run(None, EVEN) == [np.array(20)] and session.checks is None
    with configured(first_run_s=60.0):  # the example was to blame, not the model
        assert make(halving(), example=EVEN).standings == ()


def test_so_is_a_model_whose_one_node_takes_longer_than_a_first_run_may(make: Any) -> None:
    with configured(first_run_s=1e-9):  # less than any node takes, and no node is cut
        session = make(doubling())
    assert "The example did not end" in next(iter(session.refused.values()))
    assert_same(session.run(None, {"x": X}), wanted(doubling(), {"x": X}))


def test_that_the_sessions_own_example_never_ends_is_found_out_once(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "random_inputs", lambda graph, seed: dict(ODD))
    with configured(first_run_s=0.3):
        first = make(halving())
    assert first.refused and first.run(None, EVEN) == [np.array(20)]
    with configured(first_run_s=0.4):  # there was less time before
        assert "within 0.4 s" in next(iter(make(halving()).refused.values()))
    monkeypatch.setattr(module, "choose", lambda *given, **named: pytest.fail("it was run again"))
    with configured(first_run_s=0.4):
        assert "within 0.4 s" in next(iter(make(halving()).refused.values()))


def test_so_is_one_behind_what_a_simpler_form_is_verified_by(make: Any) -> None:
    """A normalisation that could be folded: both forms would run over the example."""
    nodes = [
        helper.make_node("Conv", ["f", "k"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "o", "o", "o", "o"], ["b"]),
        helper.make_node("ReduceSum", ["b"], ["r"], keepdims=0),
    ]
    known = {
        "k": np.ones((1, 1, 1, 1), np.float32),
        "o": np.ones(1, np.float32),
        "f": np.ones((1, 1, 2, 2), np.float32),
    }
    with configured(first_run_s=0.3):
        session = make(halving(before=nodes, more=known), example=ODD)
    assert "The example did not end" in next(iter(session.refused.values()))


def test_a_framework_is_not_tried_where_it_could_not_be_ended(make: Any) -> None:
    pytest.importorskip("openvino")
    session = make(halving(), example=EVEN)
    assert session.refused == {
        "OpenVINO": "it cannot be ended, and the end of the loop 'down' depends on data"
    }


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A framework of the stand-ins in the place of OpenVINO; let go at the end."""
    stand_ins.let_go.clear()

    def use(name: str) -> None:
        named = {**regions._REGIONS, "openvino": ("tests.opatlas.session.stand_ins", name)}
        monkeypatch.setattr(regions, "_REGIONS", named)
        monkeypatch.setattr(regions, "_MODULES", {**regions._MODULES, "openvino": "numpy"})

    yield use
    stand_ins.let_go.set()


def test_a_framework_that_does_not_load_in_time_is_left(make: Any, slow: Any) -> None:
    slow("SlowLoader")
    with configured(loading_s=0.2):
        session = make(doubling())
    assert "did not load within" in session.refused["OpenVINO"]
    assert_same(session.run(None, {"x": X}), wanted(doubling(), {"x": X}))


def test_a_framework_whose_first_run_does_not_end_in_time_is_left(
    make: Any, slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trying, "TRIED_S", 0.1)
    monkeypatch.setattr(trying, "HOPELESS", 0.0)
    slow("SlowRunner")
    session = make(doubling())
    assert session.refused == {"OpenVINO": "it did not end within 0.1 s"}
    assert_same(session.run(None, {"x": X}), wanted(doubling(), {"x": X}))


def test_who_takes_a_hundred_times_as_long_takes_no_turns(
    make: Any, slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_ins.let_go.set()
    slow("WrongBeyond")
    monkeypatch.setattr(trying, "HOPELESS", 0.0)
    monkeypatch.setattr(trying, "HOPELESS_S", 0.0)
    monkeypatch.setattr(choosing, "line_up", lambda *given: pytest.fail("it was timed"))
    session = make(doubling())
    assert "times as long as ONNX Runtime" in session.refused["OpenVINO"]


def test_a_profile_ends_too() -> None:
    with configured(first_run_s=0.2), pytest.raises(TookTooLong):
        node_times(ModelGraph(halving()), ODD, 1)
