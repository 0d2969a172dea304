"""A plan that a session asks the service for: of the model's simpler form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import opatlas
from opatlas.client import Client
from opatlas.errors import CallerError
from opatlas.evidence import Ratios
from opatlas.graph.fused import operator_of
from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import ModelProfile
from opatlas.plan import choosing
from opatlas.plan.line_up import TimedInTurns
from opatlas.plan.plan import ByBodies
from opatlas.plan.profiling import profile_in_place
from opatlas.plan.said import WHOLE
from opatlas.session import forms
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.client.test_client import until
from tests.opatlas.load.kernels import ADD
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.session.test_session import FEED, SIZE, adding, kernels_win, looping  # noqa: F401 - a fixture
from tests.tuning.graph.making import model


@pytest.fixture(autouse=True)
def a_worker(uploads_at_once: None) -> None:
    """Plans are made as they are asked for."""


def roundabout() -> bytes:
    """The same sums as :func:`adding`, with what a simpler form has not."""
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Add", ["same", "y"], ["s"]),
        helper.make_node("Tanh", ["s"], ["t"]),
        helper.make_node("Mul", ["one", "one"], ["ones"]),
        helper.make_node("Mul", ["t", "ones"], ["u"]),
        helper.make_node("Add", ["u", "x"], ["z"]),
    ]
    made = model(nodes, {"x": (SIZE,), "y": (SIZE,)}, ["z"], {"one": np.array([1.0], np.float32)})
    made.ir_version = 10
    return bytes(made.SerializeToString())


def test_a_session_asks_for_a_plan_of_the_models_simpler_form(
    publish_add: Any,
    job: Any,
    kernels_win: None,  # noqa: F811
) -> None:
    from catalog.models import Miss, StoredPlan

    publish_add()
    client = job(accepts={"kinds": ["c-abi"]})
    with opatlas.Session(roundabout(), client=client, plan=True, frameworks=()) as session:
        stored = StoredPlan.objects.get()
        assert session.graph.key == stored.key != ModelGraph(roundabout()).key
        assert stored.passes == ["kernels", "fusion", "layout"]
        assert len(session.graph.nodes) < 6 and len(session.plan.kernels) == 2
        assert_same(session.run(None, FEED), wanted(roundabout(), FEED))
    assert Miss.objects.filter(operator__key__in=[one for one, _ in _operators(roundabout())]).exists()
    # Whoever is handed the plan later need not say which form it is of.
    with opatlas.Session(roundabout(), client=client, plan=session.plan, frameworks=()) as again:
        assert again.plan == session.plan


def test_the_service_weighs_kernels_against_onnx_runtime_in_place(
    publish_add: Any,
    job: Any,
    kernels_win: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 10 µs, 20 by the default alone: in this model ONNX Runtime takes less, until that is 5 ms."""
    publish_add()
    client = job(accepts={"kinds": ["c-abi"]})
    for slower, kernels in ((1, 0), (1000, 2)):

        def seen(graph: Any, feed: Any, threads: int, slower: int = slower) -> ModelProfile:
            found = profile_in_place(graph, feed, threads)
            assert found.borders is not None
            return found.in_place(5.0 * slower, found.borders)

        monkeypatch.setattr(forms, "profile_in_place", seen)
        with opatlas.Session(roundabout(), client=client, plan=True, frameworks=()) as session:
            assert len(session.plan.kernels) == kernels
            assert_same(session.run(None, FEED), wanted(roundabout(), FEED))


def test_a_plan_that_errs_too_much_gives_way_to_one_of_exact_kernels(
    publish_add: Any,
    job: Any,
    kernels_win: None,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By a hundred thousandth, which is close enough to be no other result."""
    from catalog.models import StoredPlan
    from tuning.planning import kept_plan

    publish_add(source=ADD.replace("x[i] + y[i]", "1.00001f * (x[i] + y[i])"))
    client = job(accepts={"kinds": ["c-abi"]})
    with opatlas.Session(roundabout(), client=client, plan=True, frameworks=()) as session:
        assert "times as much as ONNX Runtime against float64, and at most 2 times is allowed" in caplog.text
        first, second = (kept_plan(one).plan for one in StoredPlan.objects.order_by("pk"))
        assert len(first.kernels) == 2 and not second.kernels
        assert session.plan_number == StoredPlan.objects.latest("pk").pk and not session.plan.kernels
        assert_same(session.run(None, FEED), wanted(roundabout(), FEED))
    # A plan that is handed over is not asked for again.
    with opatlas.Session(roundabout(), client=client, plan=first, frameworks=()) as session:
        assert not session.plan.kernels and StoredPlan.objects.count() == 2


def test_how_a_run_by_the_plan_went_is_told_and_found_from_the_models_page(
    publish_add: Any,
    job: Any,
    kernels_win: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of what was chosen or not: it is the plan's run, never another's."""
    from catalog.models import Model, PlanTimeline, StoredPlan
    from tuning import planning
    from tuning.timelines import kept_timeline

    publish_add()
    client = job(accepts={"kinds": ["c-abi"]})
    key = ModelGraph(roundabout()).key
    with opatlas.Session(roundabout(), client=client, plan=True, frameworks=()) as session:
        stored = StoredPlan.objects.get(pk=session.plan_number)
        assert stored.original == key
        told = session.report_timeline(FEED)
        assert [one.by for one in told.boxes] == [step.by.said for step in session.plan.steps]
        until(lambda: PlanTimeline.objects.filter(plan=stored).exists())
        kept = kept_timeline(PlanTimeline.objects.get(plan=stored))
        assert kept.to_json() == told.to_json()
        engines = opatlas.Engines(1, session.threads)
        session.share(engines, "mine")
        shared = session.report_timeline(FEED)
        assert shared.rows == ("engine 0",) and shared.waits and {one.model for one in shared.boxes} == {""}
        engines.close()
    place = {"target": stored.target, "setting": stored.setting}
    model = Model.objects.create(organisation=stored.organisation, structure_key=key, **place)
    assert planning.plans_of_model(model).get() == stored
    monkeypatch.setattr(choosing, "line_up", the_default_wins)
    with opatlas.Session(roundabout(), client=client, plan=True, frameworks=()) as session:
        assert not session.plan.kernels
        assert "cpp add" in {one.by for one in session.report_timeline(FEED).boxes}
    with (
        opatlas.Session(roundabout(), client=client, frameworks=()) as session,
        pytest.raises(CallerError, match="no plan of the service"),
    ):
        session.report_timeline(FEED)


def test_several_nodes_of_a_loops_body_run_by_one_kernel(
    publish_add: Any,
    publish_all: Any,
    job: Any,
    kernels_win: None,  # noqa: F811
) -> None:
    """A sum and its tail, in each of five rounds: 10 µs by a kernel in C, 100 µs each apart."""
    graph = ModelGraph(looping())
    inner = graph.nodes[0].bodies[0].graph
    both = operator_of(inner, (0, 1), inner.nodes[1].outputs).operator
    publish_all([found.operator for found, _ in graph.operators().values()])
    source = ADD.replace('opatlas_abi.h"', 'opatlas_abi.h"\n#include <math.h>')
    publish_add(source=source.replace("x[i] + y[i]", "tanhf(x[i] + y[i])"), operator=both)
    client = job(accepts={"kinds": ["c-abi"]})
    with opatlas.Session(looping(), client=client, plan=True, frameworks=()) as session:
        [kernel] = session.plan.kernels
        assert kernel.operator == both.key
        [step] = session.plan.steps
        assert isinstance(step.by, ByBodies) and [len(one.nodes) for one in step.by.plans[0].steps] == [2]
        for feed in (FEED, {name: -value for name, value in FEED.items()}):
            assert_same(session.run(None, feed), wanted(looping(), feed))
        assert len(session._executor.artifacts) == 1 and not session._executor.fallen_back
        # One that is revoked in a running session gives way to its nodes.
        session._executor._program.drop(session._executor.artifacts)
        assert_same(session.run(None, FEED), wanted(looping(), FEED))
        assert not session._executor.artifacts


def the_default_wins(runs: Any, seconds: float) -> Any:
    """In place of ``line_up``."""
    slower = {one: TimedInTurns(one, 9.0, Ratios(0.5, 0.4, 0.6)) for one in runs}
    return slower | {WHOLE: TimedInTurns(WHOLE, 4.5, Ratios(1.0, 1.0, 1.0))}


def _operators(data: bytes) -> list[Any]:
    graph = ModelGraph(data)
    return [(found[0].operator.key, found) for found in graph.operators().values()]


def test_without_a_service_it_goes_on_without_a_plan(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Client(offline=True, cache=tmp_path) as client,
        opatlas.Session(adding(), client=client, plan=True, frameworks=()) as session,
    ):
        assert session.standings == () and "There is no plan of the service" in caplog.text
        assert_same(session.run(None, FEED), wanted(adding(), FEED))
