"""Timelines of models: in streams, one step after the other, in ONNX Runtime, on engines."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

from opatlas.client import Client
from opatlas.graph.normal import ModelGraph
from opatlas.plan.engines import Engines, EngineStep
from opatlas.plan.executor import Executor
from opatlas.plan.plan import ByKernel
from opatlas.session import Session
from tests.opatlas.plan.making import Kernels, planned
from tests.opatlas.plan.test_concurrent import FEED, LONG_S, right, streamed, wide


def test_of_a_plan_in_streams_each_has_a_row_and_waits_are_marked() -> None:
    graph = ModelGraph(wide())
    kernels = Kernels(graph)
    running = Executor(graph, streamed(graph, kernels), kernels.load, threads=3)
    made = running.timeline(FEED)
    assert made.rows == ("stream 0", "stream 1", "stream 2")
    assert sorted({one.row for one in made.boxes}) == [0, 1, 2]
    assert len(made.boxes) == len(running.plan.steps) == 13
    assert {one.by for one in made.boxes} == {step.by.said for step in running.plan.steps}
    assert len(made.waits) == 2  # the sum waits for two other chains
    for row in range(3):
        mine = sorted((one for one in made.boxes if one.row == row), key=lambda one: one.start_us)
        for one, after in itertools.pairwise(mine):
            assert one.start_us + one.took_us <= after.start_us + 1e-6
    assert right(running)
    running.close()


def test_of_a_plan_in_one_stream_its_steps_follow_each_other() -> None:
    graph = ModelGraph(wide())
    kernels = Kernels(graph)
    running = Executor(graph, planned(graph, kernels), kernels.load, threads=1)
    made = running.timeline(FEED)
    assert made.rows == ("one step after the other",) and len(made.boxes) == 13 and not made.waits
    assert made.boxes[0].said.startswith("Step 0 (")
    running.close()


def test_what_went_over_to_the_default_is_not_called_a_kernels() -> None:
    graph = ModelGraph(wide())
    kernels = Kernels(graph)
    running = Executor(graph, planned(graph, kernels), kernels.load, threads=1)
    kernel = next(step for step in running.plan.steps if isinstance(step.by, ByKernel))
    running._program.drop({kernel.by.artifact})  # type: ignore[union-attr, arg-type]
    told = dict(zip(running.plan.steps, running.timeline(FEED).boxes, strict=True))
    assert told[kernel].by == "onnxruntime"
    running.close()


def test_of_a_whole_model_onnx_runtimes_own_profile_is_shown() -> None:
    with Client(offline=True, cache=False) as client:
        session = Session(wide(), client=client, frameworks=[], try_s=0.1)
        made = session.timeline(FEED)
    assert made.rows == ("ONNX Runtime",)
    assert {one.said.partition(" ")[0] for one in made.boxes} >= {"Tanh", "Neg", "Sum"}
    assert len(made.boxes) <= 13 and made.took_us < 60e6


def test_of_engines_each_step_has_its_wait_beside_the_expected_one() -> None:
    engines = Engines(1)
    go_on = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(
            engines.share("a").run, [EngineStep("holds", lambda: go_on.wait(LONG_S), reference_s=1000.0)]
        )
        while not engines._machinery.engines["engine 0"].running:
            pass
        other = pool.submit(engines.share("b").run, [EngineStep("waits", int)])
        while not engines._machinery._placement.queues["engine 0"]._waiting:
            pass
        go_on.set()
        first.result(LONG_S), other.result(LONG_S)
    made = engines.timeline()
    assert made.rows == ("engine 0",)
    assert [(one.said, one.model) for one in made.boxes] == [("holds", "a"), ("waits", "b")]
    waited = next(one for one in made.waits if one.model == "b")
    assert waited.start_us + waited.took_us >= made.boxes[0].took_us
    assert waited.expected_us is not None and 9e8 < waited.expected_us <= 1e9
    assert made.row_waits[0].count == 2
    assert not engines.timeline(since=engines.waits[-1].ended_at + 1).boxes
    engines.close()
