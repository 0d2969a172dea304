"""Kernels for the threads that a stream or an engine has, where these are fewer than the session's."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import helper

import opatlas
from opatlas.evidence import Ratios
from opatlas.identity import Setting
from opatlas.plan import choosing
from opatlas.plan.line_up import TimedInTurns
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.client.test_client import until
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.session.test_session import FEED, SIZE, kernels_win  # noqa: F401 - a fixture
from tests.tuning.graph.making import model

pytestmark = pytest.mark.usefixtures("kernels_win")


def branching() -> bytes:
    """Two chains of additions with what no kernel is known of between, and their product."""
    nodes = []
    for way, between, other in (("a", "Tanh", "x"), ("b", "Sigmoid", "y")):
        nodes += [
            helper.make_node("Add", [other, "y"], [f"{way}0"]),
            helper.make_node(between, [f"{way}0"], [f"{way}1"]),
            helper.make_node("Add", [f"{way}1", "x"], [f"{way}2"]),
        ]
    nodes.append(helper.make_node("Mul", ["a2", "b2"], ["z"]))
    made = model(nodes, {"x": (SIZE,), "y": (SIZE,)}, ["z"])
    made.ir_version = 10
    return bytes(made.SerializeToString())


@pytest.fixture
def streams_win(monkeypatch: pytest.MonkeyPatch) -> None:
    def line_up(runs: Any, seconds: float) -> Any:
        for run in runs.values():
            run()
        ratios = {name: 3.0 if "streams" in name else 1.0 for name in runs}
        return {name: TimedInTurns(name, 9.0, Ratios(one, one, one)) for name, one in ratios.items()}

    monkeypatch.setattr(choosing, "line_up", line_up)


@pytest.fixture
def soon_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A miss is remembered for two seconds otherwise."""
    monkeypatch.setattr("opatlas.client.cache.memory.MISS_LIFE_S", 0.0)


def artifact_of(published: Any) -> str:
    return str(published.implementation.artifact.sha256)


def kernels_of(session: opatlas.Session) -> set[str]:
    return {by.artifact for by in session.plan.kernels}


def asked_on(threads: int) -> set[str]:
    """Operator types of misses that were recorded for so many threads."""
    from catalog.models import Miss

    here = Miss.objects.filter(setting__key=Setting(threads=threads).key)
    return set(here.values_list("operator__op_type", flat=True))


def test_streams_run_by_kernels_for_their_threads_and_ask_for_those_that_lack(
    publish_add: Any, job: Any, streams_win: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = {threads: artifact_of(publish_add(threads=threads)) for threads in (2, 1)}
    client = job(setting=Setting(threads=2))
    with opatlas.Session(branching(), client=client, frameworks=()) as session:
        assert session.plan.stream_count == 2 and kernels_of(session) == {both[1]}
        assert_same(session.run(None, FEED), wanted(branching(), FEED))
        assert_same(session.run(None, FEED), wanted(branching(), FEED))
        assert len(session._executor.artifacts) == 1 and not session._executor.in_one_stream
    # Operators of several nodes are asked for on all threads alone.
    assert {"Add", "Tanh", "Sigmoid", "Mul"} == asked_on(1) < asked_on(2)
    monkeypatch.setattr(choosing, "line_up", lambda runs, seconds: pytest.fail("it was timed again"))
    with opatlas.Session(branching(), client=client, frameworks=()) as session:
        assert session.plan.stream_count == 2 and kernels_of(session) == {both[1]}


def test_where_none_is_known_for_a_streams_threads_the_others_run(
    publish_add: Any, job: Any, streams_win: None, soon_asked_again: None
) -> None:
    made = artifact_of(publish_add(threads=2))
    client = job(setting=Setting(threads=2))
    with opatlas.Session(branching(), client=client, frameworks=()) as session:
        assert session.plan.stream_count == 2 and kernels_of(session) == {made}
        for _ in range(2):
            assert_same(session.run(None, FEED), wanted(branching(), FEED))
        assert len(session._executor.artifacts) == 1
    assert asked_on(1) == {"Add", "Tanh", "Sigmoid", "Mul"}
    # What is found for its threads later is reason to time it again.
    other = artifact_of(publish_add(threads=1))
    with opatlas.Session(branching(), client=client, frameworks=()) as session:
        assert kernels_of(session) == {other}


def test_a_plan_of_the_service_is_tried_in_streams_too(
    publish_add: Any, job: Any, streams_win: None, uploads_at_once: None
) -> None:
    """And what it came to so is told, with a lane for each stream."""
    from catalog.models import PlanMeasured, PlanTimeline

    both = {threads: artifact_of(publish_add(threads=threads)) for threads in (2, 1)}
    client = job(setting=Setting(threads=2), accepts={"kinds": ["c-abi"]})
    with opatlas.Session(branching(), client=client, plan=True, frameworks=()) as session:
        assert session.plan.stream_count == 2 and kernels_of(session) == {both[1]}
        assert_same(session.run(None, FEED), wanted(branching(), FEED))
        told = session.report_timeline(FEED)
        assert told.rows == ("stream 0", "stream 1") and told.waits
        until(lambda: PlanTimeline.objects.filter(plan=session.plan_number).exists())
        measured = PlanMeasured.objects.get(plan=session.plan_number)
        assert measured.chosen and measured.ratio == 3.0


def test_engines_run_kernels_for_their_threads(publish_add: Any, job: Any, soon_asked_again: None) -> None:
    two = artifact_of(publish_add(threads=2))
    client = job(setting=Setting(threads=2))
    engines = opatlas.Engines(2, threads=1)
    with opatlas.Session(branching(), client=client, frameworks=()) as session:
        session.share(engines, "mine")
        assert kernels_of(session) == {two} and asked_on(1) >= {"Add", "Tanh", "Sigmoid", "Mul"}
        assert_same(session.run(None, FEED, deadline_s=60.0), wanted(branching(), FEED))
    one = artifact_of(publish_add(threads=1))
    with opatlas.Session(branching(), client=client, frameworks=()) as session:
        assert kernels_of(session) == {two}
        session.share(engines, "mine")
        assert kernels_of(session) == {one}
        seen = len(engines.waits)
        assert_same(session.run(None, FEED), wanted(branching(), FEED))
        assert len(engines.waits) > seen
        session.share(None)
        assert kernels_of(session) == {two}
        assert_same(session.run(None, FEED), wanted(branching(), FEED))
    engines.close()


def test_who_wants_no_fused_operators_is_asked_for_none_on_fewer_threads_either(job: Any) -> None:
    client = job(setting=Setting(threads=2))
    engines = opatlas.Engines(2, threads=1)
    with opatlas.Session(branching(), client=client, frameworks=(), fusions=0) as session:
        session.share(engines, "mine")
    engines.close()
    assert asked_on(1) == asked_on(2) == {"Add", "Tanh", "Sigmoid", "Mul"}


def test_a_snapshot_is_of_one_setting_and_engines_run_what_it_has(publish_add: Any, job: Any) -> None:
    client = job(setting=Setting(threads=2))
    client.snapshot = object()  # as if it had one: it cannot be asked for other threads
    assert client.for_threads(1) is None
    client.snapshot = None
    other = client.for_threads(1)
    assert other.setting == Setting(threads=1) and other.rest.setting == other.setting
    assert (other.target, other.home, other.accepts) == (client.target, client.home, client.accepts)
    other.close()
