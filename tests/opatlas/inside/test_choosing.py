"""Which plans with kernels inside ONNX Runtime take part in a line-up, and what is predicted of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from onnx import helper

from opatlas.errors import LoadError
from opatlas.graph.normal import ModelGraph
from opatlas.plan import choosing
from opatlas.plan.executor import Executor
from opatlas.plan.line_up import TimedInTurns
from opatlas.plan.plan import ByKernel, ModelPlan
from tests.opatlas.inside.convolutions import FEED, SLOW, SOURCE, Convolutions, convolving, residual
from tests.opatlas.inside.made import inside
from tests.opatlas.plan.making import PLACE, assert_same, wanted
from tests.opatlas.plan.standings import the_more_kernels_the_better

NODE_US, KERNEL_US = 99e3, 11e3


@pytest.fixture
def profiled(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """Steps that take longer in place than kernels do, by their last nodes; ONNX Runtime takes ``NODE_US``
    for each convolution."""
    slow: dict[int, float] = {}

    def node_times(executor: Executor, inputs: Mapping[str, Any]) -> dict[int, float]:
        return {one.nodes[-1]: slow.get(one.nodes[-1], KERNEL_US) for one in executor.plan.steps}

    def times(graph: ModelGraph, feed: Any, threads: int) -> dict[int, float]:
        return {at: NODE_US for at, one in enumerate(graph.nodes) if one.proto.op_type == "Conv"}

    def inside_last(
        runs: Mapping[str, Callable[[], object]], seconds: float, **bounds: int
    ) -> dict[str, TimedInTurns]:
        inner = [name for name in runs if "inside" in name]
        order = [next(iter(runs)), *inner]
        return the_more_kernels_the_better({name: runs[name] for name in order}, seconds)

    monkeypatch.setattr(choosing, "line_up", inside_last)
    monkeypatch.setattr(choosing, "node_times", times)
    monkeypatch.setattr(choosing, "foretold_us", lambda run: 4 * NODE_US)
    monkeypatch.setattr(Executor, "node_times", node_times)
    return slow


def chosen(
    others: Mapping[int, str] | None = None, lacks_memory: Callable[[ModelPlan], bool] = lambda plan: False
) -> choosing.Chosen:
    graph = ModelGraph(residual())
    kernels = Convolutions(graph, layout="", others=others)
    fused = [one for one in kernels.candidates.values() if one.fused]
    single = {at: one for at, one in kernels.candidates.items() if not one.fused}

    def build(plan: ModelPlan) -> Executor:
        if plan.kernels and lacks_memory(plan):
            raise LoadError("no memory is free")
        return Executor(graph, plan, kernels.load, threads=2)

    return choosing.choose(graph, single, PLACE, build, FEED, 2, 0.0, fused=fused)


def test_kernels_take_part_in_blocks_and_what_is_predicted_is_their_time_in_place(
    profiled: dict[int, float],
) -> None:
    found = chosen()
    said = [one.said for one in found.standings[1:]]
    assert said == ["4 kernels inside ONNX Runtime, 4 in blocks of channels, 3 of several nodes"]
    assert found.plan.inside and all(by.layout for by in found.plan.kernels)
    steps = [one for one in found.plan.steps if isinstance(one.by, ByKernel)]
    scale = 1 - 0.5 * KERNEL_US / NODE_US
    assert all(scale * KERNEL_US < (one.predicted_us or 0.0) <= KERNEL_US for one in steps)
    assert_same(found.executor.run(FEED), wanted(residual(), FEED))
    found.executor.close()


def test_what_takes_longer_in_place_than_onnx_runtimes_own_node_is_left_to_it(
    profiled: dict[int, float],
) -> None:
    graph = ModelGraph(residual())
    last = max(Convolutions(graph).candidates)
    profiled[last] = 2 * NODE_US
    found = chosen()
    assert [one.said for one in found.standings[1:]] == [
        "3 kernels inside ONNX Runtime, 3 in blocks of channels, 2 of several nodes"
    ]
    assert last not in {step.nodes[-1] for step in found.plan.steps if isinstance(step.by, ByKernel)}
    assert_same(found.executor.run(FEED), wanted(residual(), FEED))
    found.executor.close()


def test_a_node_that_onnx_runtime_computes_within_another_is_weighed_with_that(
    profiled: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    pooling, last = 7, 8  # which would have all the time of both
    usual = choosing.node_times

    def within(*given: Any) -> dict[Any, float]:
        return {**usual(*given), last: 0.0, pooling: NODE_US}

    monkeypatch.setattr(choosing, "node_times", within)
    found = chosen()
    assert last in {step.nodes[0] for step in found.plan.steps if isinstance(step.by, ByKernel)}
    assert ModelPlan.from_json(found.plan.to_json()) == found.plan
    found.executor.close()
    profiled[pooling] = NODE_US
    found = chosen()
    assert last not in {step.nodes[0] for step in found.plan.steps if isinstance(step.by, ByKernel)}
    found.executor.close()


def test_where_memory_does_for_few_plans_kernels_inside_are_among_them(profiled: dict[int, float]) -> None:
    made: list[str] = []

    def is_full(plan: ModelPlan) -> bool:
        made.append(plan.inside)
        return len(made) > 2  # the one that is profiled, and what comes of it

    found = chosen(lacks_memory=is_full)
    assert "" in made, "plans that are cut were tried, too"
    assert found.plan.inside and len(found.plan.kernels) == 4
    found.executor.close()


def test_where_all_together_give_other_values_fewer_are_tried(profiled: dict[int, float]) -> None:
    last = 9  # of which least is promised
    profiled[last] = 1.1 * KERNEL_US
    right = "out[s] += add;"
    found = chosen(others={8: SOURCE.replace(right, right.replace("add;", "add + 1;"))})
    assert [one.said for one in found.standings[1:]] == [
        "2 kernels inside ONNX Runtime, 2 in blocks of channels, 2 of several nodes"
    ]
    assert last not in {step.nodes[-1] for step in found.plan.steps if isinstance(step.by, ByKernel)}
    found.executor.close()


def test_where_no_kernel_takes_blocks_they_are_given_plain_values(
    profiled: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Convolutions.load

    def without(self: Convolutions, by: ByKernel) -> Any:
        kernel = load(self, by)
        code = kernel.code()
        kernel.code = lambda: replace(code, blocks=0)  # type: ignore[method-assign]
        return kernel

    monkeypatch.setattr(Convolutions, "load", without)
    found = chosen()
    said = [one.said for one in found.standings[1:]]
    assert said == ["4 kernels inside ONNX Runtime, 3 of several nodes"]
    found.executor.close()


def test_a_given_plan_of_one_session_takes_part_in_no_streams(
    profiled: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "could_pay", lambda *given: True)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["x", "v"], ["c"], pads=[1] * 4),
        helper.make_node("Add", ["a", "c"], ["y"]),
    ]
    graph, built = ModelGraph(convolving(nodes)), list[ModelPlan]()
    kernels = Convolutions(graph, source=SLOW)

    def build(plan: ModelPlan) -> Executor:
        built.append(plan)
        return Executor(graph, plan, kernels.load, threads=2)

    given = inside(graph, kernels.candidates)
    choosing.choose(graph, {}, PLACE, build, FEED, 2, 0.0, given=given).executor.close()
    assert [plan.inside for plan in built] == ["", "onnxruntime"]
