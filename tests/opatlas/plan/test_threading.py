"""How a plan's regions use threads is chosen by measurement, predicted, kept, and changes no result."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import opatlas
from opatlas.graph.normal import ModelGraph
from opatlas.plan import choosing
from opatlas.plan.borders import Borders
from opatlas.plan.choosing import other_threading
from opatlas.plan.plan import ONE, RESTING, SLEEPING, THREADING, ByFramework, InvalidPlan, ModelPlan
from opatlas.plan.predicting import Costs, predicted
from opatlas.plan.said import said_of
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.plan.making import Kernels, assert_same, executor, planned, wanted
from tests.opatlas.plan.standings import the_more_kernels_the_better
from tests.opatlas.session.test_session import FEED, SIZE, kernels_win  # noqa: F401
from tests.tuning.graph.making import model


def chain() -> bytes:
    from onnx import helper

    kinds = ["Tanh", "Add", "Sigmoid", "Add"]
    nodes = [
        helper.make_node(kind, [f"v{at}", *["y"] * (kind == "Add")], [f"v{at + 1}"])
        for at, kind in enumerate(kinds)
    ]
    made = model(nodes, {"v0": (SIZE,), "y": (SIZE,)}, ["v4"])
    made.ir_version = 10
    return made.SerializeToString()


KNOWN = Costs(
    {}, dict.fromkeys(THREADING, 4.0), 0.0, 0.0, 0.0, Borders.of_graph(ModelGraph(chain())), waking_us=50.0
)
CHAIN_FEED = {"v0": FEED["x"], "y": FEED["y"]}


def two_regions() -> tuple[ModelGraph, Kernels, ModelPlan]:
    graph = ModelGraph(chain())
    kernels = Kernels(graph, [1, 3])
    plan = planned(graph, kernels)
    assert [step.by for step in plan.steps].count(ByFramework("onnxruntime")) == 2
    return graph, kernels, plan


def used(plan: ModelPlan) -> list[str]:
    return [step.by.threading for step in plan.steps if isinstance(step.by, ByFramework)]


def test_each_way_gives_what_the_whole_model_gives_and_is_opened_so(monkeypatch: Any) -> None:
    from opatlas.plan import regions

    opened: list[str] = []

    def telling(name: str, make: Any) -> Any:
        def options(threads: int) -> Any:
            opened.append(name)
            return make(threads)

        return options

    for name, make in regions._OPTIONS.items():
        monkeypatch.setitem(regions._OPTIONS, name, telling(name, make))
    graph, kernels, plan = two_regions()
    for way in [plan, *other_threading(plan, KNOWN, 2)]:
        opened.clear()
        assert_same(executor(graph, kernels, way).run(CHAIN_FEED), wanted(chain(), CHAIN_FEED))
        assert opened == used(way)


def test_regions_that_are_shorter_than_waking_get_one_thread() -> None:
    _, _, plan = two_regions()
    known = replace(KNOWN, nodes={0: 60.0, 2: 30.0})  # of which only the second takes less than 50
    assert list(map(used, other_threading(plan, known, 2))) == [[RESTING, RESTING], [SLEEPING, ONE]]
    assert len(other_threading(plan, known, 3)) == 1  # 30 us on three threads are 90 on one: 60 more
    assert other_threading(plan, known, 1) == []
    single = replace(plan, steps=plan.steps[:2])
    assert other_threading(single, known, 2) == []


def test_a_prediction_counts_the_handing_over_of_that_way() -> None:
    _, _, plan = two_regions()
    known = replace(KNOWN, region_us={SLEEPING: 4.0, RESTING: 100.0, ONE: 1.0})
    resting, one = other_threading(plan, known, 2)
    base = predicted(plan, known).predicted_us
    assert base is not None
    assert predicted(resting, known).predicted_us == pytest.approx(base + 2 * 96.0)
    assert predicted(one, known).predicted_us == pytest.approx(base - 2 * 3.0)


def test_a_way_is_json_and_the_usual_one_is_left_out_as_plans_of_before_have_none() -> None:
    _, _, plan = two_regions()
    ways = [plan, *other_threading(plan, KNOWN, 2)]
    assert [ModelPlan.from_json(one.to_json()) for one in ways] == ways
    assert len({said_of(one) for one in ways}) == 3
    assert all("threading" not in step["by"] for step in plan.to_json()["steps"])
    document = plan.to_json()
    document["steps"][0]["by"]["threading"] = "spinning"
    with pytest.raises(InvalidPlan, match="'threading' must be one of sleeping, resting, one"):
        ModelPlan.from_json(document)


@pytest.mark.parametrize(("wins", "way"), [("threads resting", RESTING), ("on one thread", ONE)])
def test_the_fastest_way_is_chosen_and_kept_for_later_sessions(
    publish_add: Any,
    job: Any,
    kernels_win: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    wins: str,
    way: str,
) -> None:
    def standings(runs: Any, seconds: float) -> Any:
        found = the_more_kernels_the_better(runs, seconds)
        [name] = [name for name in runs if wins in name]
        ratios = replace(found[name].ratios, ratio=9.0, low=8.0, high=10.0)
        return found | {name: replace(found[name], ratios=ratios)}

    publish_add()
    monkeypatch.setattr(choosing, "line_up", standings)
    monkeypatch.setattr(choosing, "is_short", lambda step, known, threads: True)
    on_two = partial(other_threading, threads=2)  # what is published is for one
    monkeypatch.setattr(choosing, "other_threading", lambda plan, known, threads: on_two(plan, known))
    with opatlas.Session(chain(), client=job()) as first:
        assert used(first.plan) == [way, way]
        assert_same(first.run(None, CHAIN_FEED), wanted(chain(), CHAIN_FEED))
        chosen = first.plan
    monkeypatch.setattr(choosing, "line_up", lambda runs, seconds: pytest.fail("it was timed again"))
    with opatlas.Session(chain(), client=job()) as second:
        assert second.plan == chosen
        assert_same(second.run(None, CHAIN_FEED), wanted(chain(), CHAIN_FEED))
