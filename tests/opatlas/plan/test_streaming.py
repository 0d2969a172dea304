"""Models cut into streams, where that could pay at all; and a session that takes what the line-up says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from opatlas.graph.normal import ModelGraph
from opatlas.plan import choosing, streaming
from opatlas.plan.checking import check_plan
from opatlas.plan.choosing import by_framework, choose
from opatlas.plan.executor import Executor
from opatlas.plan.making import whole, with_kernels
from opatlas.plan.plan import ByKernel, InvalidPlan, ModelPlan
from opatlas.plan.said import said_of
from opatlas.plan.streaming import could_pay, node_streams
from tests import by_day
from tests.opatlas.plan.graphs import RandomModel
from tests.opatlas.plan.making import PLACE, Kernels, wanted
from tests.opatlas.plan.standings import the_more_kernels_the_better
from tests.opatlas.plan.test_concurrent import FEED, right, streamed, wide
from tests.opatlas.plan.test_executor import chain

EACH_US = dict.fromkeys(range(13), 100.0)


def test_it_could_pay_where_much_lies_beside_the_longest_chain() -> None:
    graph = ModelGraph(wide())
    assert could_pay(graph, 1300.0) and could_pay(graph, 1300.0, EACH_US)
    assert not could_pay(graph, 13.0, EACH_US)  # handing over takes as long
    slow = EACH_US | {0: 9000.0}
    assert not could_pay(graph, 10_200.0, slow)  # all others together are not worth a thread
    assert not could_pay(ModelGraph(chain()), 6000.0)


@pytest.mark.parametrize("seed", by_day.first(6, range(20)))
def test_what_crosses_streams_is_made_by_the_last_of_a_step_and_read_by_the_first(seed: int) -> None:
    graph = ModelGraph(RandomModel(seed, nodes=20, control=False).build(4))
    placed = node_streams(graph, {}, 3)
    plan = with_kernels(graph, {}, *PLACE, None, placed)
    if plan.stream_count == 1:
        return
    step_of = {number: step for step in plan.steps for number in step.nodes}
    maker = {value: number for number in step_of for value in graph.nodes[number].makes}
    for number, step in step_of.items():
        assert step.stream == placed[number]
        for value in graph.nodes[number].reads:
            if value in maker and step_of[maker[value]].stream != step.stream:
                assert maker[value] == step_of[maker[value]].nodes[-1]
                assert number == step.nodes[0]


def test_where_values_of_unknown_type_would_be_cut_all_run_in_one_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = ModelGraph(wide())
    assert streamed(graph, Kernels(graph, [])).stream_count == 3
    monkeypatch.setattr(ModelGraph, "can_begin_at", lambda self, number: False)
    plan = streamed(graph, Kernels(graph, []))
    assert plan == whole(graph, *PLACE) and plan.stream_count == 1


def test_streams_are_in_the_plan_and_left_out_of_one_without() -> None:
    graph = ModelGraph(wide())
    plan = streamed(graph, Kernels(graph))
    assert plan.stream_count == 3 and plan.predicted_us is None
    assert ModelPlan.from_json(plan.to_json()) == plan
    alone = with_kernels(graph, Kernels(graph).candidates, *PLACE)
    assert not any("stream" in step for step in alone.to_json()["steps"])
    assert said_of(plan) == f"{len(plan.kernels)} of {len(plan.steps)} steps by kernels, in 3 streams"
    none = streamed(graph, Kernels(graph, []))
    assert said_of(none) == "ONNX Runtime, the whole model, in 3 streams"


@pytest.mark.parametrize("stream", [-1, 16, 1.0, True, "1", None])
def test_what_is_no_stream_is_refused(stream: Any) -> None:
    graph = ModelGraph(wide())
    document = streamed(graph, Kernels(graph)).to_json()
    document["steps"][1]["stream"] = stream
    with pytest.raises(InvalidPlan, match="Step 1 of the plan: 'stream' must be a whole number from 0 to 15"):
        ModelPlan.from_json(document)


@pytest.mark.parametrize("framework", ["pytorch", "torch.compile", "xla"])
def test_what_sets_its_whole_processs_threads_runs_in_one_stream(framework: str) -> None:
    graph = ModelGraph(wide())
    plan = by_framework(streamed(graph, Kernels(graph, [])), framework)
    with pytest.raises(InvalidPlan, match=r"regions by pytorch, torch.compile, xla in more than one stream"):
        check_plan(plan, graph, *PLACE)
    check_plan(by_framework(plan, "openvino"), graph, *PLACE)


def test_steps_wait_for_each_other_in_no_circle() -> None:
    """A plan whose steps stand in the wrong order, in whichever streams, reads what is not made yet."""
    graph = ModelGraph(wide())
    document = streamed(graph, Kernels(graph)).to_json()
    document["steps"].reverse()
    with pytest.raises(InvalidPlan, match="before it is made"):
        check_plan(ModelPlan.from_json(document), graph, *PLACE)


def chosen(monkeypatch: pytest.MonkeyPatch, line_up: Callable[..., Any], threads: int = 2) -> choosing.Chosen:
    graph = ModelGraph(wide())
    kernels = Kernels(graph, [])
    monkeypatch.setattr(choosing, "line_up", line_up)
    monkeypatch.setattr(streaming, "LEAST_US", 0.0)
    monkeypatch.setattr(choosing, "node_times", lambda *_: dict(EACH_US))

    def build(plan: ModelPlan) -> Executor:
        def load(by: ByKernel) -> Any:
            return kernels.load(by)

        return Executor(graph, plan, load, threads=threads)

    return choose(graph, {}, PLACE, build, FEED, threads, 0.1)


def test_streams_run_where_they_were_timed_to_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    made = chosen(monkeypatch, the_more_kernels_the_better)
    assert [one.said for one in made.standings] == [
        "ONNX Runtime, the whole model",
        "ONNX Runtime, the whole model, in 2 streams",
    ]
    assert made.plan.stream_count == 2 and right(made.executor)
    made.executor.close()


def test_four_streams_are_tried_where_there_are_four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    made = chosen(monkeypatch, the_more_kernels_the_better, 4)
    assert [one.said.rpartition(", ")[2] for one in made.standings[1:]] == ["in 2 streams", "in 3 streams"]
    made.executor.close()


def test_and_not_where_they_were_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def slower(runs: Mapping[str, Callable[[], object]], seconds: float) -> Any:
        found = the_more_kernels_the_better(runs, seconds)
        first = next(iter(found))
        return dict.fromkeys(found, found[first])

    made = chosen(monkeypatch, slower)
    assert said_of(made.plan) == "ONNX Runtime, the whole model" and made.plan.stream_count == 1


def test_one_thread_has_no_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    made = chosen(monkeypatch, the_more_kernels_the_better, 1)
    assert made.standings == () and made.plan.stream_count == 1


def test_a_plan_in_streams_that_gives_other_values_takes_no_part(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first run, one step after the other, is right; the one in streams is not."""
    from opatlas.plan.concurrent import InStreams

    def wrong(self: InStreams, marks: object = None) -> None:
        self.program.run()
        if self._timeout_s:
            [y] = self.program.graph.outputs
            self.program.arrays[0][y][...] += 1
        self._timeout_s = 1.0

    monkeypatch.setattr(InStreams, "run", wrong)
    made = chosen(monkeypatch, the_more_kernels_the_better)
    assert made.standings == () and "takes no part: it gives other values" in caplog.text
    np.testing.assert_allclose(made.executor.run(FEED)[0], wanted(wide(), FEED)[0], atol=1e-5)
