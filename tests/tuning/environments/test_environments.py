"""Environments: which one counts, measuring again when another is declared, and going back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from django.db.models.functions import Now

from catalog.models import Best, BestChange, DeclaredEnvironment, Implementation, Measurement, Miss, Target
from catalog.registry import register_environment
from opatlas.identity.operator import canonical_json
from tests.tuning.fakes import FakeRoute
from tuning.environments import declaring, revalidation
from tuning.environments.declaring import NotDeclared, declare
from tuning.models import Exploration, Revalidated, Revalidation, Stage, State, Trial, Worker
from tuning.queue.promote import promote_misses
from tuning.queue.rounds import ask_for_round, begin_rounds

pytestmark = pytest.mark.django_db

Workers = Callable[..., Any]


def quick(version: str, *offers: dict[str, Any]) -> FakeRoute:
    """A route whose candidates behave as given, installed in a version."""
    return FakeRoute("quick", offers=offers or ({"ratio": 2.0},), installed={"fakes": version})


def version(number: str) -> Any:
    return register_environment({"fakes": number})


def winner() -> tuple[str, float, str]:
    best = Best.objects.select_related("implementation__environment").get(rank=0)
    environment = best.implementation.environment.versions["fakes"]
    return best.route, round(best.ratio_to_default, 2), environment


def verdicts() -> dict[str, str]:
    return dict(Revalidated.objects.values_list("route", "verdict"))


@pytest.fixture(autouse=True)
def one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker closes connections that have grown old; here it would close the test's transaction."""
    monkeypatch.setattr("tuning.worker.process.close_old_connections", lambda: None)
    declaring._missing_since.clear()


@pytest.fixture
def explored(make_miss: Callable[..., Any], worker_with: Workers) -> Callable[..., Any]:
    """``explored(quick("1"))``: an operator, explored by a worker of that version, which goes on living."""

    def explore(*routes: Any, **options: Any) -> Any:
        make_miss()
        worker = worker_with(*routes, name="old", **options)
        worker.run_until_idle()
        assert Exploration.objects.get().state == State.DONE
        return worker

    return explore


def stop(worker: Any) -> None:
    Worker.objects.filter(name=worker.name).update(stopped_at=Now())


@pytest.fixture
def target(target_row: Target) -> Target:
    return target_row


def test_declaring_serves_on_and_asks_for_a_round_of_that_route(explored, target) -> None:
    explored(quick("1"))
    row = declare(target, "quick", version("2"), "anna")
    assert winner() == ("quick", 2.0, "1")
    exploration = Exploration.objects.get()
    assert exploration.pending_routes == "quick"
    assert "fakes 1 became fakes 2" in exploration.round_reason
    assert (row.before, row.after, row.asked_by) == (version("1"), version("2"), "anna")
    assert str(revalidation.report(row)) == "0 re-measured, 0 better, 0 worse, 0 failed, 1 waiting"
    assert declare(target, "quick", version("2"), "anna") is None


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(3.0, "better"), (1.4, "worse"), (2.005, "same"), (0.5, "worse")]
)
def test_new_evidence_replaces_the_old_better_or_worse(explored, worker_with, target, ratio, verdict) -> None:
    explored(quick("1"))
    row = declare(target, "quick", version("2"), "anna")
    newer = worker_with(quick("2", {"ratio": ratio}), name="new")
    # The held candidate is tried again under the new version, where it does as well as it can there.
    Implementation.objects.filter(route="quick").update(candidate={"ratio": ratio})
    newer.run_until_idle()
    assert revalidation.settle() == 1
    assert verdicts() == {"quick": verdict}
    best = Best.objects.get(route="quick")
    assert (best.implementation.environment, round(best.ratio_to_default, 3)) == (version("2"), ratio)
    assert (best.rank == 0) == (ratio > 1)
    row.refresh_from_db()
    assert row.finished_at is not None
    assert str(revalidation.report(row)).startswith("1 re-measured")
    assert not Exploration.objects.get().pending_routes


def test_the_held_candidate_is_tried_though_the_route_no_longer_names_it(
    explored, worker_with, target
) -> None:
    explored(quick("1", {"ratio": 2.0, "tuned": True}))
    declare(target, "quick", version("2"), "anna")
    worker_with(quick("2", {"ratio": 1.1}), name="new").run_until_idle()
    revalidation.settle()
    assert winner() == ("quick", 2.0, "2")
    tried = list(Trial.objects.filter(round=1, route="quick").values_list("candidate", flat=True))
    assert {"ratio": 2.0, "tuned": True} in tried and {"ratio": 1.1} in tried


def test_what_fails_under_the_new_environment_is_withdrawn_and_says_so(explored, worker_with, target) -> None:
    explored(quick("1"), FakeRoute("other", offers=[{"ratio": 1.5}]))
    row = declare(target, "quick", version("2"), "anna")
    Implementation.objects.filter(route="quick").update(candidate={"ratio": 2.0, "behave": "wrong"})
    worker_with(
        quick("2", {"behave": "crashed"}), FakeRoute("other", offers=[{"ratio": 1.5}]), name="new"
    ).run_until_idle()
    revalidation.settle()
    assert verdicts() == {"quick": "failed"}
    assert winner()[:2] == ("other", 1.5)
    assert not Best.objects.filter(route="quick").exists()
    change = BestChange.objects.latest("pk")
    assert "quick failed under fakes 2" in change.reason
    found = revalidation.report(row)
    assert str(found) == "1 re-measured, 0 better, 0 worse, 1 failed"
    assert found.rows[0].detail.startswith(("crashed", "wrong_result"))


def test_two_workers_of_different_versions_never_make_a_best_flip(
    explored, worker_with, make_miss, target
) -> None:
    old = explored(quick("1"))
    new = worker_with(quick("2", {"ratio": 5.0}), name="new")
    changes = BestChange.objects.count()
    for _ in range(4):
        for worker in (new, old):
            Exploration.objects.update(pending_routes="quick")
            begin_rounds()
            worker.run_until_idle()
            assert winner() == ("quick", 2.0, "1")
    # Whoever explores what is new: the declared environment leads.
    made = make_miss(size=77)
    promote_misses()
    assert new.run_until_idle() == 0
    assert old.run_until_idle() > 0
    # Of its own the new operator has one or two: a route that has won by now may be in its first slice.
    assert BestChange.objects.exclude(operator=made.operator).count() == changes
    served = {best.implementation.environment for best in Best.objects.all()}
    assert served == {version("1")}


def test_an_undeclared_worker_that_is_alone_keeps_evidence_that_leads_once_declared(
    explored, worker_with, target
) -> None:
    stop(explored(quick("1")))
    Exploration.objects.update(pending_routes="quick")
    new = worker_with(quick("2", {"ratio": 5.0}), name="new")
    new.run_until_idle()
    assert winner() == ("quick", 2.0, "1")
    assert Measurement.objects.filter(ratio_to_default__gt=4.9).exists()
    assert declaring.follow_workers() == 0  # since now; it takes a while
    key = (target.pk, "quick")
    declaring._missing_since[key] -= 31.0
    assert declaring.follow_workers() == 1
    assert DeclaredEnvironment.objects.get(route="quick").environment == version("2")
    new.run_until_idle()
    assert winner() == ("quick", 5.0, "2")
    assert "the service" in Revalidation.objects.get().asked_by
    assert declaring.follow_workers() == 0


def test_the_service_declares_nothing_while_one_worker_still_brings_the_old(explored, worker_with) -> None:
    explored(quick("1"))
    worker_with(quick("2"), name="new")
    for _ in range(2):
        assert declaring.follow_workers() == 0
        assert not declaring._missing_since


def test_by_hand_only(explored, worker_with, configure) -> None:
    stop(explored(quick("1")))
    worker_with(quick("2"), name="new")
    configure(declare_after_s=-1)
    assert declaring.follow_workers() == 0
    assert not declaring._missing_since


def test_rolling_back_restores_at_once_without_a_measurement(explored, worker_with, target) -> None:
    explored(quick("1"))
    declare(target, "quick", version("2"), "anna")
    Implementation.objects.filter(route="quick").update(candidate={"ratio": 1.2})
    worker_with(quick("2", {"ratio": 1.2}), name="new").run_until_idle()
    revalidation.settle()
    assert winner() == ("quick", 1.2, "2")
    measurements = Measurement.objects.count()
    back = declare(target, "quick", version("1"), "anna")
    assert winner() == ("quick", 2.0, "1")
    assert Measurement.objects.count() == measurements
    assert not Exploration.objects.get().pending_routes
    assert str(revalidation.report(back)).endswith("1 restored")
    assert "fakes 2 became fakes 1" in BestChange.objects.latest("pk").reason
    revalidation.settle()
    assert not Revalidation.objects.filter(finished_at=None).exists()


def test_evidence_of_another_candidate_alone_does_not_take_the_held_ones_seat(
    explored, worker_with, target
) -> None:
    """An undeclared worker tried something poor; what is held was never measured there."""
    stop(explored(quick("1", {"ratio": 2.0, "tuned": True})))
    Exploration.objects.update(pending_routes="quick")
    worker_with(quick("2", {"ratio": 1.1}), name="new").run_until_idle()
    declare(target, "quick", version("2"), "anna")
    assert winner() == ("quick", 2.0, "1")
    assert verdicts() == {"quick": "waiting"}


def test_rolling_back_before_it_was_measured_leaves_nothing_open(explored, target) -> None:
    explored(quick("1"))
    first = declare(target, "quick", version("2"), "anna")
    declare(target, "quick", version("1"), "anna")
    first.refresh_from_db()
    assert first.superseded
    assert winner() == ("quick", 2.0, "1")
    revalidation.settle()
    assert not Revalidation.objects.filter(finished_at=None).exists()
    assert not Revalidated.objects.filter(verdict="waiting").exists()


def test_only_who_brings_the_new_environment_measures_for_it(explored, worker_with, target) -> None:
    old = explored(quick("1"))
    declare(target, "quick", version("2"), "anna")
    assert old.run_until_idle() == 0
    assert Exploration.objects.get().state == State.QUEUED
    assert worker_with(quick("2"), name="new").run_until_idle() > 0
    revalidation.settle()
    assert winner() == ("quick", 2.0, "2")


def test_a_round_that_was_run_without_the_new_environment_is_asked_for_again(explored, target) -> None:
    explored(quick("1"))
    declare(target, "quick", version("2"), "anna")
    # As if a worker had claimed it before it could know: the round ends with evidence of the old version.
    Exploration.objects.update(pending_routes="", state=State.DONE)
    assert revalidation.settle() == 0
    assert Exploration.objects.get().pending_routes == "quick"
    assert winner() == ("quick", 2.0, "1")


def test_where_the_route_makes_the_default_everything_is_measured_against_the_new_one(
    explored, worker_with, target
) -> None:
    explored(quick("1"))
    row = declare(target, "eager", version("2"), "anna")
    assert Exploration.objects.get().pending_routes == "eager,quick"
    begin_rounds()
    assert Exploration.objects.get().stage == Stage.FIRST
    newer = worker_with(
        quick("1", {"ratio": 2.0}), name="new", default=FakeRoute("eager", installed={"fakes": "2"})
    )
    newer.run_until_idle()
    revalidation.settle()
    assert verdicts() == {"eager": "same", "quick": "same"}
    assert set(Best.objects.values_list("measurement__default_environment__digest", flat=True)) == {
        version("2").digest
    }
    row.refresh_from_db()
    assert row.finished_at is not None
    back = declare(target, "eager", version("1"), "anna")
    assert str(revalidation.report(back)) == "0 re-measured, 0 better, 0 worse, 0 failed, 2 restored"
    assert set(Best.objects.values_list("measurement__default_environment__digest", flat=True)) == {
        version("1").digest
    }


def test_evidence_against_an_undeclared_default_does_not_lead(explored, worker_with, target) -> None:
    stop(explored(quick("1")))
    Exploration.objects.update(pending_routes="quick")
    other = FakeRoute("eager", installed={"fakes": "2"})
    worker_with(quick("1", {"ratio": 9.0}), name="new", default=other).run_until_idle()
    assert Measurement.objects.filter(ratio_to_default__gt=8.9).exists()
    assert winner() == ("quick", 2.0, "1")


def test_a_dead_exploration_does_not_keep_it_open_and_serves_on(explored, target) -> None:
    explored(quick("1"))
    row = declare(target, "quick", version("2"), "anna")
    Exploration.objects.update(state=State.DEAD)
    revalidation.settle()
    row.refresh_from_db()
    assert row.finished_at is not None
    assert verdicts() == {"quick": "failed"}
    assert winner() == ("quick", 2.0, "1")


def test_a_revoked_candidate_is_not_measured_again(explored, target) -> None:
    from catalog.best.withdrawing import withdraw

    explored(quick("1"), FakeRoute("other", offers=[{"ratio": 1.5}]))
    declare(target, "quick", version("2"), "anna")
    withdraw(Implementation.objects.filter(route="quick"), "no licence")
    assert list(revalidation.held_candidates(Exploration.objects.get(), "quick")) == []
    assert Miss.objects.get().state == "explored"


def test_all_of_a_worker_can_be_declared_together(explored, worker_with, target) -> None:
    explored(quick("1"))
    worker_with(quick("2"), name="new", default=FakeRoute("eager", installed={"fakes": "2"}))
    rows = declaring.declare_worker(Worker.objects.get(name="new"), "anna")
    assert [row.route for row in rows] == ["quick", "eager"]
    assert {row.environment for row in DeclaredEnvironment.objects.all()} == {version("2")}
    assert declaring.declare_worker(Worker.objects.get(name="new"), "anna") == []


def test_what_only_an_undeclared_worker_explored_is_served_once_its_versions_are_declared(
    explored, worker_with, make_miss
) -> None:
    stop(explored(quick("1")))
    miss = make_miss(size=77)
    new = worker_with(quick("2"), name="new", default=FakeRoute("eager", installed={"fakes": "2"}))
    new.run_until_idle()
    assert not Best.objects.filter(operator=miss.operator).exists()
    declaring.declare_worker(Worker.objects.get(name="new"), "anna")
    served = dict(Best.objects.filter(operator=miss.operator).values_list("route", "rank"))
    assert served == {"quick": 0, "eager": 1}
    miss.refresh_from_db()
    assert miss.state == "explored"


def test_a_route_that_nobody_knows_is_refused(explored, target) -> None:
    explored(quick("1"))
    with pytest.raises(NotDeclared, match="Nothing is known"):
        declare(target, "qiuck", version("2"), "anna")
    assert not DeclaredEnvironment.objects.filter(route="qiuck").exists()


def test_a_served_candidate_that_turns_out_wrong_is_no_longer_served(explored, worker_with) -> None:
    """The same version, and a check that got stricter, or a kernel that was lucky."""
    worker = explored(quick("1"), FakeRoute("other", offers=[{"ratio": 1.5}]))
    Implementation.objects.filter(route="quick").update(candidate={"ratio": 2.0, "behave": "wrong"})
    implementation = Implementation.objects.get(route="quick")
    digest = hashlib.sha256(canonical_json(implementation.candidate)).hexdigest()
    Implementation.objects.filter(pk=implementation.pk).update(candidate_sha256=digest)
    worker.tools.routes[1].offers = ({"ratio": 2.0, "behave": "wrong"},)
    ask_for_round(Exploration.objects.all(), ["quick"], "looked at again")
    worker.run_until_idle()
    assert winner()[:2] == ("other", 1.5)
    implementation.refresh_from_db()
    assert implementation.failed_reason.startswith("wrong_result")
    assert "failed" in BestChange.objects.latest("pk").reason


def test_a_mishap_is_no_reason_to_stop_serving(explored) -> None:
    worker = explored(quick("1"))
    for behaviour in ("crashed", "noisy", "build_failed"):
        Implementation.objects.filter(route="quick").update(candidate={"ratio": 2.0, "behave": behaviour})
        digest = hashlib.sha256(canonical_json({"ratio": 2.0, "behave": behaviour})).hexdigest()
        Implementation.objects.filter(route="quick").update(candidate_sha256=digest)
        worker.tools.routes[1].offers = ({"ratio": 2.0, "behave": behaviour},)
        ask_for_round(Exploration.objects.all(), ["quick"], "looked at again")
        worker.run_until_idle()
        assert Trial.objects.filter(status=behaviour).exists()
    assert winner()[:2] == ("quick", 2.0)


def test_an_idle_service_looks_for_little(explored, django_assert_max_num_queries) -> None:
    explored(quick("1"))
    with django_assert_max_num_queries(1):
        revalidation.settle()
