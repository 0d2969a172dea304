"""Whole models through ``opatlas.Session``: by a served catalogue, without one, and again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

import opatlas
import opatlas.session.session  # before anything of it is replaced
from opatlas.errors import CallerError
from opatlas.evidence import Ratios
from opatlas.graph.profile import ModelProfile
from opatlas.identity import Setting
from opatlas.plan import choosing
from opatlas.plan.engines import DeadlinePassed
from opatlas.plan.line_up import LEAST_ROUNDS, line_up, ratios_of
from opatlas.plan.plan import ByBodies, ByKernel
from opatlas.plan.predicting import CALL_US
from opatlas.plan.profiling import profile_model
from opatlas.session import forms
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.client.test_client import until
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.plan.standings import the_more_kernels_the_better
from tests.tuning.graph.making import model

SIZE = 1000


def adding() -> bytes:
    """Two additions that the catalogue's kernel does, and what it does not know."""
    nodes = [
        helper.make_node("Add", ["x", "y"], ["s"], name="first"),
        helper.make_node("Tanh", ["s"], ["t"]),
        helper.make_node("Add", ["t", "x"], ["z"], name="second"),
    ]
    made = model(nodes, {"x": (SIZE,), "y": (SIZE,)}, ["z"])
    made.ir_version = 10
    return made.SerializeToString()


def looping() -> bytes:
    """An addition in each of five iterations."""
    tensor, number = onnx.TensorProto, helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["c", "x"], ["d"]), helper.make_node("Tanh", ["d"], ["e"])],
        "body",
        [number("turn", tensor.INT64, []), number("go", tensor.BOOL, []), number("c", tensor.FLOAT, None)],
        [helper.make_empty_tensor_value_info(name) for name in ("go", "e")],
    )
    nodes = [helper.make_node("Loop", ["five", "", "y"], ["z"], body=body)]
    made = model(nodes, {"x": (SIZE,), "y": (SIZE,)}, ["z"], {"five": np.array(5)})
    made.ir_version = 10
    return made.SerializeToString()


FEED = {"x": np.linspace(-1, 1, SIZE, dtype=np.float32), "y": np.linspace(0, 3, SIZE, dtype=np.float32)}


@pytest.fixture
def kernels_win(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(graph: Any, feed: Any, threads: int) -> dict[Any, float]:
        return dict.fromkeys([*range(9), *graph.operators()], 99.0)

    monkeypatch.setattr(choosing, "line_up", the_more_kernels_the_better)
    monkeypatch.setattr(choosing, "node_times", slow)
    monkeypatch.setattr(choosing, "foretold_us", lambda run: 99e3)
    monkeypatch.setattr(forms, "profile_in_place", counted)


def counted(graph: Any, feed: Any, threads: int) -> ModelProfile:
    """In place of ``profile_in_place``: with no times that count, so that only published ones do."""
    return profile_model(graph, [feed], threads)


def test_a_model_runs_by_the_catalogues_kernels_where_they_are_faster(
    publish_add: Any, job: Any, kernels_win: None
) -> None:
    publish_add()
    with opatlas.Session(adding(), client=job()) as session:
        assert session.known == 1 and len(session.plan.kernels) == 2
        assert session.plan.steps[0].over[0].said == "ONNX Runtime in the model"
        kernels = [step.predicted_us for step in session.plan.steps if isinstance(step.by, ByKernel)]
        assert kernels[1] == 10.0 + CALL_US  # what was published, and the call
        assert session.plan.predicted_us > 2 * 10.0  # what is left to ONNX Runtime is in it, too
        assert session.standings[-1].predicted_us is not None
        for feed in (FEED, {name: -value for name, value in FEED.items()}):
            assert_same(session.run(None, feed), wanted(adding(), feed))
        rows = session.breakdown(FEED)
        assert [row.by for row in rows] == ["cpp add", "ONNX Runtime", "cpp add"]
        assert all(row.us > 0 for row in rows)


def test_sessions_share_engines_and_each_gives_what_it_gave_alone(
    publish_add: Any, job: Any, kernels_win: None
) -> None:
    publish_add()
    engines = opatlas.Engines(2)
    with opatlas.Session(adding(), client=job()) as one, opatlas.Session(looping(), client=job()) as other:
        with pytest.raises(CallerError, match="call share"):
            one.run(None, FEED, deadline_s=1.0)
        one.share(engines, "one", priority_s=0.01)
        other.share(engines, "other")
        with ThreadPoolExecutor(2) as pool:
            runs = [(make, pool.submit(session.run, None, FEED, deadline_s=60.0))
                    for _ in range(5) for make, session in ((adding, one), (looping, other))]  # fmt: skip
            for make, run in runs:
                assert_same(run.result(60), wanted(make(), FEED))
        assert {wait.model for wait in engines.waits} == {"one", "other"}
        with pytest.raises(DeadlinePassed):
            one.run(None, FEED, deadline_s=-1.0)
        seen = len(engines.waits)
        one.share(None)
        assert_same(one.run(None, FEED), wanted(adding(), FEED))
        assert len(engines.waits) == seen
    engines.close()


def test_what_was_chosen_is_remembered_by_the_machine(
    publish_add: Any, job: Any, kernels_win: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_add()
    with opatlas.Session(adding(), client=job()) as first:
        chosen = first.plan
    monkeypatch.setattr(choosing, "line_up", lambda runs, seconds: pytest.fail("it was timed again"))
    with opatlas.Session(adding(), client=job()) as second:
        assert second.plan == chosen and second.standings == ()
        assert_same(second.run(["z"], FEED), wanted(adding(), FEED))


def test_so_does_what_lies_in_a_loop_and_a_later_session_remembers_it(
    publish_add: Any, job: Any, kernels_win: None
) -> None:
    publish_add()
    for standings in (2, 0):  # the second session times nothing
        with opatlas.Session(looping(), client=job()) as session:
            assert session.known == 1 and len(session.plan.kernels) == 1
            assert [type(step.by) for step in session.plan.steps] == [ByBodies]
            assert len(session.standings) >= standings and (standings or not session.standings)
            for feed in (FEED, {name: -value for name, value in FEED.items()}):
                assert_same(session.run(None, feed), wanted(looping(), feed))
            assert [share.by for share in session.breakdown(FEED)] == ["1 kernels in bodies"]


def test_an_output_may_lie_where_an_input_lies(publish_add: Any, job: Any, kernels_win: None) -> None:
    publish_add()
    with opatlas.Session(looping(), client=job()) as session:
        place, expected = FEED["x"].copy(), wanted(looping(), FEED)
        binding = session.io_binding()
        binding.bind_cpu_input("x", place)
        binding.bind_cpu_input("y", FEED["y"])
        binding.bind_output("z", "cpu", 0, np.float32, [SIZE], place.ctypes.data)
        session.run_with_iobinding(binding)
        assert_same([place], expected)


def test_a_revoked_kernel_is_out_of_the_next_run(publish_add: Any, job: Any, kernels_win: None) -> None:
    from catalog.best import revoked
    from catalog.best.withdrawing import withdraw
    from catalog.models import Implementation

    published = publish_add()
    client = job()
    with opatlas.Session(adding(), client=client) as session:
        session.run(None, FEED)
        withdraw(Implementation.objects.filter(pk=published.implementation.pk), "it was found to be wrong")
        revoked.forget()  # a process of the service knows it within a second
        session.run(None, FEED)
        assert session._executor.artifacts  # nobody has asked since
        session._ask_at = 0.0  # some minutes later
        session.run(None, FEED)
        until(lambda: session.plan.kernels[0].artifact in client.revoked)
        assert_same(session.run(None, FEED), wanted(adding(), FEED))
        assert not session._executor.artifacts


def test_a_second_run_knows_what_the_first_one_missed(publish_add: Any, job: Any, kernels_win: None) -> None:
    from catalog.models import Miss

    with opatlas.Session(adding(), client=job()) as session:
        assert session.known == 0 and not session.plan.kernels
    asked = Miss.objects.filter(related=False).values_list("operator__op_type", flat=True)
    # The addition and the tanh are explored, and what they may be together.
    assert sorted(asked) == ["Add", "Add+Tanh", "Add+Tanh+Add", "Tanh", "Tanh+Add"]
    publish_add()
    with opatlas.Session(adding(), client=job(cache=False)) as session:
        assert len(session.plan.kernels) == 2


def test_without_a_service_it_is_onnx_runtime(tmp_path: Path) -> None:
    from opatlas.client import Client

    path = tmp_path / "model.onnx"
    path.write_bytes(adding())
    with (
        Client(offline=True, cache=tmp_path / "cache") as client,
        opatlas.Session(path, client=client) as session,
    ):
        theirs = ort.InferenceSession(path)
        assert [(one.name, one.shape, one.type) for one in session.get_inputs()] == [
            (one.name, one.shape, one.type) for one in theirs.get_inputs()
        ]
        assert [one.name for one in session.get_outputs()] == [one.name for one in theirs.get_outputs()]
        assert_same(session.run(None, FEED), theirs.run(None, FEED))
        with pytest.raises(InvalidArgument, match="Invalid output name:q"):
            session.run(["q"], FEED)
        binding, taken = session.io_binding(), np.empty(SIZE, np.float32)
        for name, array in FEED.items():
            binding.bind_cpu_input(name, array)
        binding.bind_output("z", "cpu", 0, np.float32, [SIZE], taken.ctypes.data)
        session.run_with_iobinding(binding)
        assert np.shares_memory(binding.copy_outputs_to_cpu()[0], taken)
        assert_same([taken], theirs.run(None, FEED))
        binding.bind_output("z", "cpu", 0, np.float64, [SIZE], np.empty(SIZE).ctypes.data)
        with pytest.raises(RuntimeError, match="Unexpected output data type"):  # ONNX Runtime's
            session.run_with_iobinding(binding)


def test_a_line_up_takes_turns_and_leaves_out_who_fails() -> None:
    order: list[str] = []

    def fail() -> None:
        raise ValueError

    standings = line_up(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b"), "c": fail}, seconds=0.0
    )
    assert set(standings) == {"a", "b"}
    groups = [name for name, _ in groupby(order)]
    assert len(groups) <= 2 + LEAST_ROUNDS + 1  # whoever comes second is first in the next round
    with pytest.raises(ValueError):
        line_up({"c": fail, "a": lambda: None}, seconds=0.0)


def test_the_interval_of_paired_ratios_holds_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    held = []
    for _ in range(400):
        found = ratios_of(list(np.exp(random.normal(0.1, 0.2, 15))))
        held.append(found.low <= np.exp(0.1) <= found.high)
    assert 0.93 <= np.mean(held) <= 0.995
    assert ratios_of([3.0, 1.0, 2.0]) == Ratios(2.0, 1.0, 3.0)


def forked() -> bytes:
    """Two ways from the inputs to their sum, with additions that the catalogue's kernel does."""
    nodes = [
        helper.make_node("Add", ["x", "y"], ["s"]),
        helper.make_node("Tanh", ["s"], ["t"]),
        helper.make_node("Add", ["t", "x"], ["u"]),
        helper.make_node("Sigmoid", ["y"], ["v"]),
        helper.make_node("Add", ["v", "y"], ["w"]),
        helper.make_node("Add", ["u", "w"], ["z"]),
    ]
    made = model(nodes, {"x": (SIZE,), "y": (SIZE,)}, ["z"])
    made.ir_version = 10
    return made.SerializeToString()


def test_a_plan_in_streams_is_chosen_and_remembered_as_any_other(
    publish_add: Any, job: Any, kernels_win: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def the_last_wins(runs: Any, seconds: float) -> Any:
        *others, last = the_more_kernels_the_better(runs, seconds).values()
        slower = {one.said: replace(one, ratios=Ratios(1.0, 0.9, 1.1)) for one in others}
        return slower | {last.said: replace(last, ratios=Ratios(2.0, 1.9, 2.1))}

    monkeypatch.setattr(choosing, "line_up", the_last_wins)
    publish_add(threads=2)
    two = Setting(threads=2)
    with opatlas.Session(forked(), client=job(setting=two)) as first:
        assert first.plan.stream_count == 2 and len(first.plan.kernels) == 4
        assert choosing.said_of(first.plan).endswith("by kernels, in 2 streams")
        for _ in range(3):
            assert_same(first.run(None, FEED), wanted(forked(), FEED))
        assert len(first.breakdown(FEED)) == len(first.plan.steps)
    monkeypatch.setattr(choosing, "line_up", lambda runs, seconds: pytest.fail("it was timed again"))
    with opatlas.Session(forked(), client=job(setting=two)) as second:
        assert second.plan == first.plan and second.standings == ()
        for _ in range(3):
            assert_same(second.run(None, FEED), wanted(forked(), FEED))
        assert not second._executor.in_one_stream
