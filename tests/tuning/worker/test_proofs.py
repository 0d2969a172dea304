"""``available`` means: one tiny operator was built and run in this very sandbox; what failed is not tried."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tuning import fakes
from tests.tuning.fakes import FakeRoute
from tuning.models import Exploration, Stage, Trial, Worker
from tuning.routes.base import Route
from tuning.worker import proofs
from tuning.worker.process import Tools, WorkerProcess
from tuning.worker.proofs import NOT_YET, Proofs

pytestmark = pytest.mark.django_db(transaction=True)

BROKEN = "A tiny Add cannot be built in the sandbox: Unable to create temp directory"


class Provings:
    """Stands in for a laboratory's proofs; ``failing`` names the routes that fail. Counts."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.asked: list[str] = []

    def __call__(self, laboratory: Any, route: Route) -> str:
        self.asked.append(route.name)
        return BROKEN if route.name in self.failing else ""


@pytest.fixture
def proving_worker(target_row: Any, tmp_path: Path, configure: Any) -> Callable[..., WorkerProcess]:
    """``proving_worker(provings, route, …)``: as it is after its start, without threads."""
    configure(home=tmp_path, store=tmp_path / "artifacts")

    def make(provings: Provings, *routes: FakeRoute, start: bool = True) -> WorkerProcess:
        tools = Tools(
            routes=(fakes.EAGER, *routes),  # type: ignore[arg-type]
            default_candidate=lambda o, t, s: (fakes.EAGER, next(fakes.EAGER.candidates(o, t, s, None))),  # type: ignore[arg-type]
            laboratory=fakes.FakeLaboratory,  # type: ignore[arg-type]
            target=lambda: fakes.TARGET,
            prove=provings,
        )
        worker = WorkerProcess("w1", tools)
        worker._enter_when_possible()
        if start:
            worker._warm_up()
            worker._prove_routes(proofs.SLOW)
        return worker

    return make


def told() -> dict[str, tuple[bool, str]]:
    routes = Worker.objects.get().routes
    return {name: (facts["available"], facts["reason"]) for name, facts in routes.items()}


def test_a_route_that_imports_well_and_fails_to_build_is_not_available(
    proving_worker: Any, make_miss: Callable[..., Any]
) -> None:
    worker = proving_worker(Provings("halide"), FakeRoute("halide"), FakeRoute("numpy"))
    assert told() == {"eager": (True, ""), "halide": (False, BROKEN), "numpy": (True, "")}
    assert "halide" not in worker._environments, "what it lacks it does not bring"
    make_miss()
    worker.run_until_idle()
    assert Trial.objects.get(route="halide").detail == f"Not available: {BROKEN}"
    assert list(Trial.objects.filter(route="numpy").values_list("status", flat=True)) == ["ok"]


def test_before_it_is_tried_nothing_is_available(proving_worker: Any) -> None:
    proving_worker(Provings(), FakeRoute("numpy"), start=False)
    assert told() == {"eager": (False, NOT_YET), "numpy": (False, NOT_YET)}


def test_what_is_not_installed_is_not_tried(proving_worker: Any) -> None:
    provings = Provings()
    proving_worker(provings, FakeRoute("tvm", missing="apache-tvm is not installed"))
    assert provings.asked == ["eager"]
    assert told()["tvm"] == (False, "apache-tvm is not installed")


def test_waiting_work_comes_first_and_a_route_is_then_tried_at_its_first_use(
    proving_worker: Any, make_miss: Callable[..., Any]
) -> None:
    provings = Provings("halide")
    make_miss()
    worker = proving_worker(provings, FakeRoute("halide"), FakeRoute("quick", offers=[{"ratio": 2.0}]))
    assert provings.asked == []
    worker.run_until_idle()
    assert sorted(provings.asked) == ["eager", "halide", "quick"], "each once"
    assert told() == {"eager": (True, ""), "halide": (False, BROKEN), "quick": (True, "")}
    assert Exploration.objects.get().state == "done"


def test_quick_routes_are_proved_before_a_contest_opens_and_after_first_results(
    proving_worker: Any, make_miss: Callable[..., Any]
) -> None:
    """Else no compiler opens a contest of a service that was busy from its start."""
    seen: dict[str, list[tuple[int, bool]]] = {}

    class Watching(Provings):
        def __call__(self, laboratory: Any, route: Route) -> str:
            rows = Exploration.objects.order_by("pk").values_list("stage", "opened")
            seen[route.name] = list(rows)
            return super().__call__(laboratory, route)

    make_miss(size=64)
    make_miss(size=128)
    worker = proving_worker(Watching(), FakeRoute("halide"), FakeRoute("inductor"))
    worker.run_until_idle()
    assert seen["halide"] == [(Stage.CONTEST, False)] * 2, "all first results are there, and nobody is opened"
    assert (Stage.CONTEST, True) in seen["inductor"], "a slow one waits for its first use"


def test_a_slow_route_waits_for_its_first_use_or_for_the_end_of_the_work(
    proving_worker: Any, make_miss: Callable[..., Any]
) -> None:
    provings = Provings()
    worker = proving_worker(provings, FakeRoute("inductor", only=frozenset({"Conv"})))
    assert provings.asked == ["eager"] and told()["inductor"] == (False, NOT_YET)
    worker.run_until_idle()
    assert provings.asked == ["eager"], "nothing was done yet: somebody may ask in a moment"
    make_miss()
    worker.run_until_idle()
    assert provings.asked == ["eager", "inductor"] and told()["inductor"] == (True, "")


def remembering(home: Path, tier: str = "T2", fails: bool = False, **installed: str) -> tuple[str, int]:
    """What a new process finds out about one route, and how often it tried it."""
    provings = Provings("tvm") if fails else Provings()
    made = Proofs(home, lambda: None, needed=True)
    made.begin(tier, lambda route: provings(None, route))
    route: Any = FakeRoute("tvm", installed=installed or {"tvm": "1"})
    return made.why_not(route), len(provings.asked)


def test_what_worked_is_remembered_and_what_failed_is_not(tmp_path: Path) -> None:
    assert remembering(tmp_path, fails=True) == (BROKEN, 1)
    assert remembering(tmp_path) == ("", 1)
    assert remembering(tmp_path, fails=True) == ("", 0)


@pytest.mark.parametrize("what", ["versions", "tier", "kernel", "python", "user", "program", "age", "future"])
def test_what_could_have_broken_it_makes_it_be_tried_again(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs, "_machine", proofs._machine.__wrapped__)
    assert remembering(tmp_path) == ("", 1)
    changed: dict[str, str] = {}
    match what:
        case "versions":
            changed = {"tvm": "2"}
        case "tier":
            assert remembering(tmp_path, "T1", fails=True) == (BROKEN, 1)
            return
        case "kernel":
            monkeypatch.setattr(proofs.platform, "release", lambda: "99.0")
        case "python":
            monkeypatch.setattr(proofs.sys, "version", "4.0")
        case "user":
            monkeypatch.setattr(proofs.os, "geteuid", lambda: 4321)
        case "program":
            monkeypatch.setenv("PATH", str(tmp_path))
        case "age" | "future":
            path = tmp_path / "proved_routes.json"
            shift = 8 * 86400 * (1 if what == "future" else -1)
            path.write_text(json.dumps({k: at + shift for k, at in json.loads(path.read_text()).items()}))
    assert remembering(tmp_path, fails=True, **changed) == (BROKEN, 1)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": "b"}', "null"])
def test_a_file_that_is_none_is_as_good_as_no_file(content: str, tmp_path: Path) -> None:
    (tmp_path / "proved_routes.json").write_text(content)
    assert remembering(tmp_path) == ("", 1)
    assert remembering(tmp_path) == ("", 0)


def test_a_failure_is_tried_again_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provings = Provings("tvm")
    made = Proofs(tmp_path, lambda: None, needed=True)
    made.begin("T2", lambda route: provings(None, route))
    route: Any = FakeRoute("tvm")
    assert [made.why_not(route) for _ in range(3)] == [BROKEN] * 3
    assert len(provings.asked) == 1
    provings.failing = ()
    monkeypatch.setattr(proofs, "RETRY_S", 0.0)
    assert made.why_not(route) == "" and len(provings.asked) == 2
