"""A row that cannot be worked on, between two that can: whichever loop of a round goes over it, the others
are done, it is set aside with its reason, and an alert tells of it. A step that fails
keeps no other from its turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from catalog import steps
from catalog.models import (
    Artifact,
    DeclaredEnvironment,
    Environment,
    Miss,
    MissState,
    StepFailure,
    Target,
)
from catalog.registry import register_environment, register_operator, register_target
from dashboard.notifications.alerts.watching import watch
from dashboard.notifications.models import Alert
from opatlas.identity import parse_operator
from tests.tuning import fakes
from tuning.environments import declaring, rebuilding, revalidation
from tuning.models import Exploration, Revalidated, Revalidation, State, Worker
from tuning.queue import claims, promote, rounds
from tuning.queue.promote import promote_misses, reweigh_asked_again
from tuning.uploads import intake, storage
from tuning.worker import leader

pytestmark = pytest.mark.django_db

INT4 = {"op": "Cast", "attrs": {"to": 22}, "inputs": [{"dtype": "float32", "shape": [4]}]}


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_look_at", {})
    monkeypatch.setattr(steps, "_failed_here", {})


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``breaks(module, "name", at=row)``: a function raises for this row, in whichever place it is given."""

    def patch(module: Any, name: str, at: Any) -> None:
        real = getattr(module, name)

        def broken(*given: Any, **named: Any) -> Any:
            if at in given:
                raise KeyError("a bug")
            return real(*given, **named)

        monkeypatch.setattr(module, name, broken)

    return patch


@pytest.fixture
def explorations(make_exploration: Callable[..., Any]) -> Callable[..., list[Exploration]]:
    return lambda **columns: [make_exploration("Relu", size, **columns) for size in (1, 2, 3)]


def alerts() -> list[str]:
    watch()
    return list(Alert.objects.filter(rule="step_failing", gone_at=None).values_list("text", flat=True))


def told_once(step: str) -> StepFailure:
    """The one row that a step left aside, which an alert tells of."""
    row = StepFailure.objects.get()
    assert row.step == step and row.row and row.said
    (text,) = alerts()
    assert text.startswith(f"1 row is left aside while {step}: ")
    return row


def raw_graph(miss: Miss, text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE catalog_operator SET graph = %s WHERE id = %s", [text, miss.operator_id])


def as_int4(miss: Miss) -> None:
    """As a service of before wrote it down."""
    Miss.objects.filter(pk=miss.pk).update(operator=register_operator(parse_operator(INT4)))


@pytest.mark.parametrize(("spoil", "reason"), [
    (as_int4, "It cannot be explored. ONNX packs two int4 elements into a byte"),
    (lambda miss: raw_graph(miss, '{"opset": 99}'), "The service failed at it (KeyError)"),
    (lambda miss: raw_graph(miss, "[]"), "The service failed at it (TypeError)"),
    (lambda miss: raw_graph(miss, '{"inputs": ['), "The service failed at it (JSONDecodeError)"),
], ids=["int4", "another form", "no object", "no JSON"])  # fmt: skip
def test_a_miss_that_cannot_be_decided_about(
    make_miss: Callable[..., Any], live_worker: Any, spoil: Callable[[Miss], None], reason: str
) -> None:
    first, bad, last = (make_miss("Relu", size) for size in (1, 2, 3))
    spoil(bad)
    assert leader.tick("a")
    states = dict(Miss.objects.values_list("pk", "state"))
    assert states == {first.pk: MissState.PROMOTED, bad.pk: "discarded", last.pk: MissState.PROMOTED}
    bad.refresh_from_db(fields=["reason"])
    assert reason in bad.reason and "Traceback" not in bad.reason
    assert Exploration.objects.count() == 2
    told_once("reading a miss's operator")
    assert promote_misses() == 0 and StepFailure.objects.get().failures == 1, "it is not tried again"


def test_a_miss_that_cannot_be_promoted_with_the_others(
    make_miss: Callable[..., Any], live_worker: Any, breaks: Any
) -> None:
    first, bad, last = (make_miss("Relu", size) for size in (1, 2, 3))
    breaks(promote, "_new_exploration", at=bad)
    assert promote_misses() == 2
    states = dict(Miss.objects.values_list("pk", "state"))
    assert states == {first.pk: MissState.PROMOTED, bad.pk: MissState.WAITING, last.pk: MissState.PROMOTED}
    told_once("promoting a miss")


@pytest.mark.parametrize("name", ["decide", "_explorations_of", "quick_ask_of"])
def test_a_fault_of_the_services_own_discards_nobodys_misses(
    name: str, make_miss: Callable[..., Any], live_worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (1, 2, 3):
        make_miss("Relu", size)
    with monkeypatch.context() as patched:
        patched.setattr(promote, name, lambda *_: 1 / 0)
        assert promote_misses() == 0
    assert set(Miss.objects.values_list("state", flat=True)) == {MissState.WAITING}
    StepFailure.objects.update(due_at=timezone.now())
    assert promote_misses() == 3


def test_a_forecast_that_fails_leaves_misses_promoted(
    make_miss: Callable[..., Any], live_worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_miss("Relu", 1)
    monkeypatch.setattr(promote, "first_results_s", lambda *_: 1 / 0)
    assert promote_misses() == 1
    assert Exploration.objects.get().expected_first_at is None
    assert StepFailure.objects.get().step == "forecasting first results"


def test_a_target_that_cannot_be_looked_at(
    make_miss: Callable[..., Any], live_worker: Any, target_row: Target, breaks: Any
) -> None:
    other = register_target(replace(fakes.TARGET, cores=4))
    Target.objects.filter(pk=other.pk).update(served_until=timezone.now() + timedelta(minutes=5))
    Worker.objects.create(name="w4", host="here", pid=2, target=other, last_seen_at=timezone.now())
    make_miss("Relu", 1, target=other)
    make_miss("Relu", 2)
    breaks(promote, "situation_of", at=other)
    assert promote_misses() == 1
    told_once("deciding about a target's misses")


def test_a_lease_that_cannot_be_taken_back(explorations: Any, breaks: Any, monkeypatch: Any) -> None:
    rows = explorations(state=State.RUNNING, lease_owner="x/1", lease_expires_at=timezone.now(), fence=1)
    breaks(claims, "_requeue_or_bury", at=rows[1])
    leader.tick("a")
    assert [Exploration.objects.get(pk=row.pk).state for row in rows] == ["queued", "running", "queued"]
    told_once("putting back an exploration")


def test_a_round_that_cannot_begin(explorations: Any, breaks: Any) -> None:
    rows = explorations(state=State.DONE, pending_routes="eager")
    breaks(rounds, "_first_stage", at=rows[1])
    leader.tick("a")
    assert [Exploration.objects.get(pk=row.pk).state for row in rows] == ["queued", "done", "queued"]
    told_once("beginning an exploration's round")


def test_a_best_that_cannot_be_judged_again(explorations: Any, breaks: Any, target_row: Target) -> None:
    after = register_environment({"fakes": "2"})
    row = Revalidation.objects.create(target=target_row, route="quick", after=after)
    bests = [
        Revalidated.objects.create(
            revalidation=row, exploration=one, route="quick",
            ratio_before=1, ratio_low_before=1, ratio_high_before=1,
        )
        for one in explorations(state=State.DISCARDED)
    ]  # fmt: skip
    breaks(revalidation, "_settle", at=bests[1])
    leader.tick("a")
    said = [Revalidated.objects.get(pk=one.pk).detail.partition(":")[0] for one in bests]
    assert said == ["Its exploration is discarded", "It could not be judged", "Its exploration is discarded"]
    row.refresh_from_db()
    assert row.finished_at is not None
    told_once("judging what was measured again")


def test_a_worker_whose_row_says_what_nobody_reads(
    target_row: Target, live_worker: Worker, monkeypatch: pytest.MonkeyPatch, configure: Any
) -> None:
    """One of a newer version, say: what the others of its target bring is followed all the same."""
    configure(declare_after_s=0.0)
    monkeypatch.setattr(declaring, "_missing_since", {})
    old = Environment.objects.create(digest="gone", versions={})
    DeclaredEnvironment.objects.create(target=target_row, route="eager", environment=old)
    brings = {"eager": {"available": True, "versions": {"fakes": "2"}}}
    Worker.objects.filter(pk=live_worker.pk).update(routes=brings)
    for number, routes in enumerate(
        (["eager"], {"eager": "yes"}, {"eager": {"available": 1, "versions": 7}})
    ):
        Worker.objects.create(
            name=f"new{number}", host="here", pid=2, target=target_row, last_seen_at=timezone.now(),
            routes=routes,
        )  # fmt: skip
    monkeypatch.setattr(declaring, "_check_known", lambda *_: None)
    assert declaring.follow_workers() == 1
    declared = DeclaredEnvironment.objects.get(route="eager").environment
    assert declared == register_environment({"fakes": "2"})


@pytest.mark.parametrize(("work", "loop", "step", "columns"), [
    (rebuilding.ask_for_rebuilds, "_ask_for_rebuild", "asking for an artifact's rebuild", []),
    (rebuilding.settle_rebuilds, "_settle_rebuild", "settling an artifact's rebuild", ["rebuild_asked_at"]),
])  # fmt: skip
def test_an_artifact_that_cannot_be_built_again(
    work: Callable[[], int], loop: str, step: str, columns: list[str], breaks: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    now = timezone.now()
    made = [
        Artifact.objects.create(
            sha256=f"{number}" * 64, kind="recipe", manifest={}, damaged_at=now, **dict.fromkeys(columns, now)
        )
        for number in range(3)
    ]
    monkeypatch.setattr(rebuilding, "_live", lambda: SimpleNamespace(values=lambda _: [a.pk for a in made]))
    seen: list[Artifact] = []

    def see(artifact: Artifact) -> bool:
        seen.append(artifact)
        return True

    monkeypatch.setattr(rebuilding, loop, see)
    breaks(rebuilding, loop, at=made[1])
    assert work() == 2 and seen == [made[0], made[2]]
    told_once(step)


def test_an_uploads_bytes_that_cannot_be_removed(monkeypatch: pytest.MonkeyPatch, breaks: Any) -> None:
    removed: list[int] = []
    monkeypatch.setattr(storage, "kept", lambda: [11, 12, 13])
    monkeypatch.setattr(storage, "remove", removed.append)
    breaks(storage, "remove", at=12)
    intake.sweep()
    assert sorted(removed) == [11, 13]
    told_once("removing an upload's bytes")


def test_what_is_asked_again_and_cannot_be_weighed(make_exploration: Any, breaks: Any) -> None:
    rows = [make_exploration("Relu", size, calls=1) for size in (1, 2, 3)]
    Miss.objects.update(calls=9, last_asked_at=timezone.now())
    breaks(promote, "reweigh", at=rows[1])
    assert reweigh_asked_again(within_s=60) == 2
    told_once("weighing again")


def test_asking_again_reads_no_graph(make_exploration: Any) -> None:
    make_exploration("Relu", 1, calls=1)
    Miss.objects.update(calls=9, last_asked_at=timezone.now())
    raw_graph(Miss.objects.get(), "no JSON")
    assert reweigh_asked_again(within_s=60) == 1


STEPS = (
    "claims.sweep", "promote_misses", "begin_rounds", "settle", "drain_journal", "reweigh_asked_again",
    "follow_workers", "settle_rebuilds", "ask_for_rebuilds", "sweep_uploads", "idle_with_work",
)  # fmt: skip


def ready() -> tuple[str, dict[str, Any]]:
    said = Client().get("/readyz").json()
    return said["status"], said["checks"]["steps"]


@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_the_round_that_fails_every_time(
    name: str, make_miss: Any, live_worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps before and after it are done; the service is not ready, and says what fails; once it works
    again, it is ready."""
    rung: list[Any] = []
    monkeypatch.setattr(leader.bell, "ring", rung.append)
    monkeypatch.setattr(leader, "RARELY_S", -1.0)
    make_miss()
    with monkeypatch.context() as patched:

        def fails(*_: Any, **__: Any) -> Any:
            raise RuntimeError("/srv/opatlas: a bug")

        holder, _, attribute = f"leader.{name}".rpartition(".")
        patched.setattr({"leader": leader, "leader.claims": claims}[holder], attribute, fails)
        for _ in range(steps.LASTS):
            assert leader.tick("a")
        state, check = ready()
        assert state == "degraded" and not check["ok"] and "a bug" not in check["detail"]
        (text,) = alerts()
        assert "3 times in a row: RuntimeError: " in text
        assert StepFailure.objects.get().row == 0
    assert name == "idle_with_work" or rung, "the last step was done"
    assert name == "promote_misses" or Exploration.objects.exists()
    leader.tick("a")
    assert ready()[1]["ok"] and alerts() == []


def test_two_failures_are_no_alert(monkeypatch: pytest.MonkeyPatch, live_worker: Any) -> None:
    monkeypatch.setattr(leader, "begin_rounds", lambda: 1 / 0)
    for _ in range(steps.LASTS - 1):
        leader.tick("a")
    assert ready()[1]["ok"] and alerts() == []


def test_a_turn_that_fails_leaves_the_others_theirs(
    worker_with: Any, make_miss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuning.queue.sharing import Work
    from tuning.worker import turns

    monkeypatch.setattr("tuning.worker.process.close_old_connections", lambda: None)
    worker = worker_with(fakes.FakeRoute("quick", offers=({"ratio": 2.0},)))
    make_miss()
    asked: list[str] = []

    def claim(owner: str, target: int, of: Any) -> Any:
        asked.append(owner)
        raise KeyError("a bug")

    real = turns.waiting
    broken = turns.SingleWork("organisation", None, claim, None, measures=False)  # type: ignore[arg-type]
    monkeypatch.setitem(turns.SINGLES, Work.UPLOAD, broken)
    upload = turns.WorkTurn(0, Work.UPLOAD)
    rest = {**turns.SINGLES}
    rest.pop(Work.UPLOAD)

    def waiting(*given: Any, **named: Any) -> Sequence[Any]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(turns, "SINGLES", rest)
            return [upload, *real(*given, **named)]

    monkeypatch.setattr(turns, "waiting", waiting)
    assert worker.run_until_idle() > 0
    assert len(asked) == 1 and Exploration.objects.get().state == State.DONE
    assert StepFailure.objects.get().step == "taking a turn: upload"
    assert Miss.objects.get().state == MissState.EXPLORED
