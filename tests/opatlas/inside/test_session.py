"""Kernels of a served catalogue inside the session of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import opatlas
import opatlas.session.session  # before anything of it is replaced
from opatlas.client.loading import failing
from opatlas.evidence import Ratios
from opatlas.plan import choosing
from opatlas.plan.line_up import TimedInTurns
from opatlas.session import forms
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.client.test_client import until
from tests.opatlas.load.kernels import FAILS_LATER
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.session.test_session import FEED, adding, counted


def inside_wins(
    runs: Mapping[str, Callable[[], object]], seconds: float, **bounds: int
) -> dict[str, TimedInTurns]:
    """In place of ``line_up``: on a busy host anybody may win."""
    found = {}
    for name, run in runs.items():
        run()
        ratio = 2.0 if "inside" in name else 1.0
        found[name] = TimedInTurns(name, 10.0 / ratio, Ratios(ratio, 0.9 * ratio, 1.1 * ratio))
    return found


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(graph: Any, feed: Any, threads: int) -> dict[Any, float]:
        return dict.fromkeys([*range(9), *graph.operators()], 99e3)

    monkeypatch.setattr(choosing, "line_up", inside_wins)
    monkeypatch.setattr(choosing, "node_times", slow)
    monkeypatch.setattr(choosing, "foretold_us", lambda run: 99e3)
    monkeypatch.setattr(forms, "profile_in_place", counted)
    monkeypatch.setattr(failing, "_went_well", set())


def test_a_plan_of_the_service_runs_inside_where_that_is_faster_and_the_service_is_told(
    publish_add: Any, job: Any, inside: None, uploads_at_once: None
) -> None:
    from catalog.models import PlanMeasured

    publish_add()
    with opatlas.Session(adding(), client=job(), plan=True, frameworks=()) as session:
        assert session.plan.inside and len(session.plan.kernels) == 2
        assert_same(session.run(None, FEED), wanted(adding(), FEED))
        until(PlanMeasured.objects.exists)
        told, mine = PlanMeasured.objects.get(), session.standings[-1]
        assert (told.plan_us, told.ratio, told.chosen) == (mine.median_us, 2.0, True)


def test_a_plan_with_kernels_inside_is_chosen_remembered_and_lets_go_of_what_is_revoked(
    publish_add: Any, job: Any, inside: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from catalog.best import revoked
    from catalog.best.withdrawing import withdraw
    from catalog.models import Implementation

    published = publish_add()
    with opatlas.Session(adding(), client=job()) as session:
        assert session.plan.inside == "onnxruntime" and len(session.plan.kernels) == 2
        last = session.standings[-1]
        assert last.said == "2 kernels inside ONNX Runtime" and last.predicted_us is not None
        for _ in range(3):
            assert_same(session.run(None, FEED), wanted(adding(), FEED))
        assert [row.by for row in session.breakdown(FEED)] == ["cpp add", "ONNX Runtime", "cpp add"]
    monkeypatch.setattr(choosing, "line_up", lambda runs, seconds: pytest.fail("it was timed again"))
    client = job()
    with opatlas.Session(adding(), client=client) as session:
        assert session.plan.inside and not session.standings
        assert_same(session.run(None, FEED), wanted(adding(), FEED))
        withdraw(Implementation.objects.filter(pk=published.implementation.pk), "it was found to be wrong")
        revoked.forget()  # a process of the service knows it within a second
        session._ask_at = 0.0  # some minutes later
        session.run(None, FEED)
        until(lambda: session.plan.kernels[0].artifact in client.revoked)
        assert_same(session.run(None, FEED), wanted(adding(), FEED))
        assert not session._executor.artifacts


def test_a_kernel_that_fails_inside_is_told_and_runs_in_no_further_session(
    publish_add: Any, job: Any, inside: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = publish_add(source=FAILS_LATER.replace(">= 3", ">= 60"))
    client, told, failed = job(), list[Any](), failing.FailureWatch.failed

    def tell(watch: failing.FailureWatch, *what: str) -> None:
        told.append(what)
        failed(watch, *what)

    monkeypatch.setattr(failing.FailureWatch, "failed", tell)
    with opatlas.Session(adding(), client=client, check_runs=0) as session:
        assert session.plan.inside and published.implementation.pk
        for _ in range(70):
            assert_same(session.run(None, FEED), wanted(adding(), FEED))
        assert not session._executor.artifacts and not session._executor.fallen_back
    assert told == [("run", "KernelFailed", "the kernel failed: the third call is one too many")]
    with opatlas.Session(adding(), client=client) as session:  # which the machine knows
        assert not session._executor.artifacts
        assert_same(session.run(None, FEED), wanted(adding(), FEED))
