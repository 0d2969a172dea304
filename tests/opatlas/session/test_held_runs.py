"""A session's first runs on the caller's own inputs, held against ONNX Runtime."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import opatlas
import opatlas.session.session  # before anything of it is replaced
from opatlas.client import Client
from opatlas.graph.normal import ModelGraph
from opatlas.identity import Setting
from opatlas.plan import choosing, regions
from opatlas.plan.guard import InputGuard
from opatlas.session import forms, held_runs
from tests.configuring import configured
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.plan.standings import the_more_kernels_the_better
from tests.opatlas.session import stand_ins
from tests.tuning.graph.making import model

SMALL = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
LARGE = 1000 * SMALL


def summing() -> bytes:
    nodes = [helper.make_node("Add", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    nodes.append(helper.make_node("Neg", ["a"], ["z"]))
    made = model(nodes, {"x": (3, 4), "w": (3, 4)}, ["y", "z"], {"w": np.ones((3, 4), np.float32)})
    made.ir_version = 8
    return made.SerializeToString()


def picking() -> bytes:
    """What ONNX Runtime refuses is an index beyond the end."""
    nodes = [helper.make_node("Gather", ["w", "x"], ["y"])]
    made = model(nodes, {"x": (2,)}, ["y"], {"w": np.arange(4, dtype=np.float32)})
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    made.ir_version = 8
    return made.SerializeToString()


@pytest.fixture(autouse=True)
def wrong_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of OpenVINO, the fastest of all."""
    named = {**regions._REGIONS, "openvino": ("tests.opatlas.session.stand_ins", "WrongBeyond")}
    monkeypatch.setattr(regions, "_REGIONS", named)
    monkeypatch.setattr(regions, "_MODULES", {**regions._MODULES, "openvino": "numpy"})
    monkeypatch.setattr(choosing, "line_up", the_more_kernels_the_better)
    monkeypatch.setattr(choosing, "foretold_us", lambda run: 99e3)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., opatlas.Session]]:
    def session(data: bytes, **named: Any) -> opatlas.Session:
        return opatlas.Session(data, client=client, frameworks=["openvino"], try_s=0.0, **named)

    with Client(offline=True, cache=tmp_path, setting=Setting(threads=1)) as client:
        yield session


def runs_by(session: opatlas.Session) -> list[str]:
    return [step.by.framework for step in session.plan.steps]  # type: ignore[union-attr]


def test_a_framework_that_differs_on_the_callers_inputs_is_taken_out(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    data, session = summing(), make(summing())
    assert runs_by(session) == ["openvino"] and session.refused == {}
    with caplog.at_level(logging.WARNING, "opatlas"):
        assert_same(session.run(None, {"x": LARGE}), wanted(data, {"x": LARGE}))
    [reason] = session.refused.values()
    assert reason == ("it gave other values than ONNX Runtime for 'y', 'z' on the caller's inputs, in run 1")
    assert [one.message for one in caplog.records] == [
        f"OpenVINO, the whole model: {reason}. ONNX Runtime runs the model from now on."
    ]
    assert runs_by(session) == ["onnxruntime"] and session.checks.over == reason
    assert_same(session.run(["z"], {"x": -LARGE}), wanted(data, {"x": -LARGE})[1:])


def test_it_takes_no_part_in_later_sessions_of_the_machine(make: Any) -> None:
    with make(summing()) as first:
        first.run(None, {"x": LARGE})
    with make(summing()) as second:
        assert runs_by(second) == ["onnxruntime"] and second.checks is None
        assert_same(second.run(None, {"x": LARGE}), wanted(summing(), {"x": LARGE}))


def test_what_agrees_is_held_a_few_times_and_onnx_runtime_is_closed(make: Any) -> None:
    session = make(summing(), check_runs=3)
    right = wanted(summing(), {"x": SMALL})
    for _ in range(20_000):  # how many it takes is a matter of time: holding may take a quarter of it
        assert_same(session.run(None, {"x": SMALL}), right)
        if session.checks.over:
            break
    assert session.checks.schedule.held == 3 and session._held is None
    assert session.checks._session is None and session.check_peak_bytes >= 0
    assert runs_by(session) == ["openvino"] and session.refused == {}
    assert session.checks.over == "as many runs as asked for were held"


def test_bound_outputs_get_onnx_runtimes_values(make: Any) -> None:
    session = make(summing())
    binding, y = session.io_binding(), np.zeros((3, 4), np.float32)
    binding.bind_cpu_input("x", LARGE)
    value = ort.OrtValue.ortvalue_from_numpy(y)
    binding.bind_ortvalue_output("y", value)
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    assert_same([value.numpy(), binding.copy_outputs_to_cpu()[1]], wanted(summing(), {"x": LARGE}))
    assert runs_by(session) == ["onnxruntime"]
    session.run_with_iobinding(binding)
    assert_same(binding.copy_outputs_to_cpu(), wanted(summing(), {"x": LARGE}))


def test_an_output_bound_where_the_input_lies_is_held_against_the_input_as_it_was(make: Any) -> None:
    session, memory = make(summing()), SMALL.copy()
    binding = session.io_binding()
    binding.bind_cpu_input("x", memory)
    place = memory.__array_interface__["data"][0]
    binding.bind_output("y", "cpu", 0, np.float32, [3, 4], place)
    session.run_with_iobinding(binding)
    assert_same([memory], wanted(summing(), {"x": SMALL})[:1])
    assert session.checks.schedule.held == 1 and runs_by(session) == ["openvino"]


def test_on_shared_engines_runs_are_held_too(make: Any) -> None:
    session, engines = make(summing()), opatlas.Engines(1)
    session.share(engines, "one")
    assert_same(session.run(None, {"x": LARGE}, deadline_s=60.0), wanted(summing(), {"x": LARGE}))
    assert_same(session.run(None, {"x": LARGE}), wanted(summing(), {"x": LARGE}))
    assert runs_by(session) == ["onnxruntime"]
    engines.close()


def test_threads_that_run_at_once_get_right_values_after_the_difference(make: Any) -> None:
    session, expected = make(summing()), wanted(summing(), {"x": LARGE})
    session.run(None, {"x": LARGE})
    with ThreadPoolExecutor(4) as pool:
        for made in pool.map(lambda _: session.run(None, {"x": LARGE}), range(40)):
            assert_same(made, expected)


@pytest.mark.parametrize("is_seen", [False, True])
def test_inputs_that_onnx_runtime_refuses_are_refused(
    make: Any, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    """Also where nobody sees before what is wrong in them."""

    class Clips(stand_ins.WrongBeyond):
        def run(self, inputs: Any) -> Any:
            return super().run([np.clip(one, -4, 3) for one in inputs])

    monkeypatch.setattr(stand_ins, "WrongBeyond", Clips)
    if not is_seen:
        monkeypatch.setattr(InputGuard, "needs_default", lambda *given: False)
    session = make(picking())
    assert runs_by(session) == ["openvino"]
    with pytest.raises(Exception, match="indices element out of data bounds"):
        session.run(None, {"x": np.array([0, 9])})
    assert runs_by(session) == ["openvino" if is_seen else "onnxruntime"]


@pytest.mark.parametrize("off", ["argument", "variable"])
def test_it_can_be_turned_off(make: Any, off: str) -> None:
    with configured(check_runs=0 if off == "variable" else 5):
        session = make(summing(), **({"check_runs": 0} if off == "argument" else {}))
    session.run(None, {"x": LARGE})
    assert session._held is None and session.checks.over == "no runs are to be held"
    assert runs_by(session) == ["openvino"]


def test_a_model_that_memory_has_no_room_for_is_not_held(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = make(summing())
    monkeypatch.setattr(held_runs, "lacking", lambda size: "9 GB of memory are needed, and 1 GB are free")
    session.run(None, {"x": SMALL})
    assert session.checks.over == "9 GB of memory are needed, and 1 GB are free"
    assert session._held is None and session.checks.schedule.held == 0


def test_a_run_that_onnx_runtime_does_not_end_in_time_ends_the_checks(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make(summing())

    def endless(*given: Any) -> Any:
        raise held_runs.TookTooLong("ONNX Runtime did not end")

    monkeypatch.setattr(held_runs, "run_within", endless)
    session.run(None, {"x": SMALL})
    assert session.checks.over == "ONNX Runtime did not end a run within 10 s"
    assert runs_by(session) == ["openvino"]


@pytest.mark.parametrize("within", ["graph", "function"])
def test_a_model_with_random_numbers_stays_with_onnx_runtime(make: Any, within: str) -> None:
    noisy = [helper.make_node("RandomNormalLike", ["x"], ["n"]), helper.make_node("Add", ["x", "n"], ["y"])]
    made = model(noisy, {"x": (3, 4)}, ["y"])
    made.ir_version = 8
    if within == "function":
        opsets = made.opset_import
        made.functions.append(helper.make_function("own", "Noisy", ["x"], ["y"], noisy, opsets))
        del made.graph.node[:]
        made.graph.node.append(helper.make_node("Noisy", ["x"], ["y"], domain="own"))
        made.opset_import.append(helper.make_opsetid("own", 1))
    session = make(made.SerializeToString())
    assert session.checks is None and runs_by(session) == ["onnxruntime"]
    assert session.run(None, {"x": SMALL})[0].shape == (3, 4)


def test_a_simpler_form_that_differs_is_left_out_and_no_framework_for_it(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a form that is another model beyond what it is verified over."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("BatchNormalization", ["m", "o", "o", "o", "o"], ["y"]),
    ]
    known = {"w": np.eye(4, dtype=np.float32), "o": np.ones(4, np.float32)}
    made = model(nodes, {"x": (3, 4)}, ["y"], known)
    made.ir_version = 8
    data = made.SerializeToString()

    def clipped(given: Any, dims: Any) -> Any:
        other = model(
            [*nodes[:1], helper.make_node("Clip", ["m", "low", "high"], ["c"]),
             helper.make_node("BatchNormalization", ["c", "o", "o", "o", "o"], ["y"])],
            {"x": (3, 4)}, ["y"], {**known, "low": np.float32(-99), "high": np.float32(99)},
        )  # fmt: skip
        other.ir_version = 8
        return other

    monkeypatch.setattr(forms, "simplified", clipped)
    monkeypatch.setattr(stand_ins, "BEYOND", np.inf)
    with make(data) as first:
        assert runs_by(first) == ["openvino"]
        assert_same(first.run(None, {"x": LARGE}), wanted(data, {"x": LARGE}))
        [who] = first.refused
        assert who == "OpenVINO, the whole model, in a simpler form"
    with make(data) as second:
        assert runs_by(second) == ["openvino"]
        assert_same(second.run(None, {"x": LARGE}), wanted(data, {"x": LARGE}))
        assert second.refused == {}


@pytest.mark.parametrize("kind", ["Sampling", "BiasDropout"])
def test_what_onnx_runtime_has_of_random_numbers_beside_onnx_is_known(kind: str) -> None:
    made = model([helper.make_node(kind, ["x"], ["y"], domain="com.microsoft")], {"x": (3, 4)}, ["y"])
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    made.ir_version = 8
    assert ModelGraph(made.SerializeToString()).is_random


def test_what_onnx_runtime_has_open_for_other_runs_is_held_against(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make(summing())
    monkeypatch.setattr(held_runs, "open_session", lambda *given: pytest.fail("a second one is opened"))
    endless = np.full((3, 4), np.inf, np.float32)
    assert_same(session.run(None, {"x": endless}), wanted(summing(), {"x": endless}))
    assert_same(session.run(None, {"x": LARGE}), wanted(summing(), {"x": LARGE}))
    assert runs_by(session) == ["onnxruntime"] and session.checks.schedule.held == 1


def test_an_example_of_lists_refuses_nobody(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "BEYOND", np.inf)
    session = make(picking(), example={"x": [0, 1]})
    assert runs_by(session) == ["openvino"] and session.refused == {}


def test_a_bound_run_on_engines_of_fewer_threads_is_held(tmp_path: Path) -> None:
    engines = opatlas.Engines(2, threads=1)
    with Client(offline=True, cache=tmp_path, setting=Setting(threads=2)) as client:
        session = opatlas.Session(summing(), client=client, frameworks=["openvino"], try_s=0.0)
        session.share(engines, "one")
        instead = session._sharing.instead
        assert instead is not None and runs_by(session) == ["openvino"]
        binding = session.io_binding()
        binding.bind_cpu_input("x", LARGE)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        assert_same(binding.copy_outputs_to_cpu(), wanted(summing(), {"x": LARGE})[:1])
        assert runs_by(session) == ["onnxruntime"] and instead._held is None
        session.share(None)
        assert_same(session.run(None, {"x": LARGE}), wanted(summing(), {"x": LARGE}))
        assert session._on_threads(1) is None  # after a difference ONNX Runtime runs it on any threads
        session.close()
    engines.close()


def test_whatever_fails_while_blame_is_found_the_run_gives_onnx_runtimes_values(
    make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: Any) -> Any:
        raise RuntimeError("Nobody can be blamed.")

    monkeypatch.setattr(opatlas.session.session, "blamed_kernels", broken)
    session = make(summing())
    assert_same(session.run(None, {"x": LARGE}), wanted(summing(), {"x": LARGE}))
    assert runs_by(session) == ["onnxruntime"]
    assert "Who is to blame for it is not known." in [one.message for one in caplog.records]


def test_runs_that_are_onnx_runtimes_anyway_use_up_nothing(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make(summing(), check_runs=2)
    copies = []
    monkeypatch.setattr(held_runs, "_own", lambda value: copies.append(value) or np.array(value))
    endless = np.full((3, 4), np.inf, np.float32)
    for other in (endless, endless, SMALL[:2], SMALL.astype(np.float64)):
        with contextlib.suppress(Exception):  # what ONNX Runtime refuses
            session.run(None, {"x": other})
    assert session.checks.schedule.runs == session.checks.schedule.held == len(copies) == 0
    assert_same(session.run(None, {"x": LARGE}), wanted(summing(), {"x": LARGE}))
    assert runs_by(session) == ["onnxruntime"]


def test_deadlines_that_onnx_runtime_does_not_keep_are_not_used_up_for_ever(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, limits = make(summing()), list[float]()

    def late(theirs: Any, names: Any, feed: Any, limit_s: float) -> Any:
        limits.append(limit_s)
        time.sleep(0.05)
        raise held_runs.TookTooLong("ONNX Runtime did not end")

    monkeypatch.setattr(held_runs, "run_within", late)
    made = {"y": SMALL, "z": SMALL}
    for _ in range(3):
        assert session.checks.run({"x": SMALL}, lambda: made, 5.0) is made
    assert len(limits) == 1 and 0 < limits[0] < 5.0 and session.checks.over == ""


def test_checks_that_are_closed_while_they_open_onnx_runtime_keep_none_of_it(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, opened = make(summing()), held_runs.open_session

    def closing(*given: Any) -> Any:
        made = opened(*given)
        session.checks.close()
        return made

    monkeypatch.setattr(held_runs, "open_session", closing)
    session.run(None, {"x": SMALL})
    assert session.checks._session is None and session.checks.over == "the session was closed"
