"""Revoking: what was served falls back to what has been measured, and never leads again."""

from datetime import timedelta

import pytest
from django.utils import timezone

from catalog.best import revoked
from catalog.best.seats import ScopedPlace
from catalog.best.withdrawing import restore_places, set_aside, withdraw
from catalog.errors import RequestError
from catalog.models import Best, BestChange, DeclaredEnvironment, Implementation, Miss
from catalog.registry import register_environment
from tests.catalog import making


def winner():
    return Best.objects.get(rank=0)


def rows(published):
    return Implementation.objects.filter(pk=published.implementation.pk)


def declare(target, route, **versions):
    DeclaredEnvironment.objects.update_or_create(
        target=target, route=route, defaults={"environment": register_environment(versions)}
    )


def test_the_best_falls_back_to_the_next_of_its_route_and_history_says_why(put):
    put(64, "eager", 1.0, spread=0)
    second = put(64, "cpp", 1.5, candidate={"kernel": "a"})
    first = put(64, "cpp", 2.0, candidate={"kernel": "b"})
    assert winner().implementation == first.implementation
    assert withdraw(rows(first), "it reads past its input") == 1
    assert (winner().route, winner().implementation) == ("cpp", second.implementation)
    assert winner().median_us == second.measurement.median_us
    change = BestChange.objects.latest("pk")
    assert (change.before, change.after) == (first.implementation, second.implementation)
    assert "it reads past its input" in change.reason


def test_a_route_with_nothing_left_loses_its_seat_and_another_route_wins(put):
    put(64, "eager", 1.0, spread=0)
    gone = put(64, "cpp", 2.0)
    withdraw(rows(gone), "no licence")
    assert list(Best.objects.values_list("route", "rank")) == [("eager", 0)]
    assert BestChange.objects.latest("pk").after.route == "eager"


def test_where_nothing_is_left_the_miss_waits_to_be_explored_again(
    ask, put, django_capture_on_commit_callbacks
):
    ask(64)
    only = put(64, "eager", 1.0)
    assert Miss.objects.get().state == "explored"
    with django_capture_on_commit_callbacks() as callbacks:
        withdraw(rows(only), "wrong beyond 2^31")
    assert not Best.objects.exists()
    assert Miss.objects.get().state == "waiting"
    assert len(callbacks) == 1  # the doorbell
    change = BestChange.objects.latest("pk")
    assert (change.before, change.after) == (only.implementation, None)
    (result,) = ask(64).results
    assert (result.status, result.state) == ("miss", "waiting")


def test_a_revoked_candidate_never_leads_again_in_whatever_environment(put):
    put(64, "eager", 1.0, spread=0)
    withdraw(rows(put(64, "cpp", 2.0)), "no licence")
    for versions in ({"torch": "2.13.0"}, {"torch": "2.14.0"}):
        again = put(64, "cpp", 3.0, versions=versions)
        assert not again.is_route_best
    assert winner().route == "eager"
    assert put(64, "cpp", 1.5, candidate={"kernel": "another"}).is_winner


def test_what_was_revoked_for_one_operator_may_lead_for_another(put):
    put(64, "eager", 1.0, spread=0)
    withdraw(rows(put(64, "cpp", 2.0)), "wrong for this length")
    put(65, "eager", 1.0, spread=0)
    assert put(65, "cpp", 2.0).is_winner


def test_revoking_twice_keeps_the_first_reason_and_writes_no_more_history(put):
    put(64, "eager", 1.0, spread=0)
    gone = put(64, "cpp", 2.0)
    withdraw(rows(gone), "first")
    changes = BestChange.objects.count()
    assert withdraw(rows(gone), "second") == 0
    gone.implementation.refresh_from_db()
    assert gone.implementation.revoked_reason == "first"
    assert BestChange.objects.count() == changes


def test_many_places_are_withdrawn_each_for_itself(put):
    for length in (64, 65, 66):
        put(length, "eager", 1.0, spread=0)
        put(length, "cpp", 2.0)
    assert withdraw(Implementation.objects.filter(route="cpp"), "its author asked for it") == 3
    assert list(Best.objects.values_list("route", flat=True)) == ["eager"] * 3


def test_what_nobody_was_served_is_revoked_without_a_change(put):
    put(64, "cpp", 2.0, candidate={"kernel": "a"})
    slower = put(64, "cpp", 1.2, candidate={"kernel": "b"})
    withdraw(rows(slower), "no licence")
    assert BestChange.objects.count() == 1
    assert Best.objects.count() == 1


def test_a_reason_is_needed(put):
    with pytest.raises(RequestError, match="reason"):
        withdraw(rows(put(64, "cpp", 2.0)), "  ")
    assert not Implementation.objects.exclude(revoked_at=None).exists()


def test_the_fall_back_is_evidence_of_the_declared_environment(put, target):
    declare(target, "tvm", tvm="0.28")
    put(64, "eager", 1.0, spread=0)
    put(64, "tvm", 3.0, candidate={"n": 1}, versions={"tvm": "0.27"}, may_lead=False)
    put(64, "tvm", 1.3, candidate={"n": 2}, versions={"tvm": "0.28"})
    best = put(64, "tvm", 2.0, candidate={"n": 3}, versions={"tvm": "0.28"})
    withdraw(rows(best), "miscompiled")
    assert winner().implementation.candidate == {"n": 2}


def test_evidence_against_another_default_does_not_come_back(put, target):
    declare(target, "eager", torch="2.14")
    put(64, "eager", 1.0, spread=0, versions={"torch": "2.14"})
    old = {"default_route": "eager", "default_versions": {"torch": "2.13"}}
    new = {"default_route": "eager", "default_versions": {"torch": "2.14"}}
    put(64, "tvm", 2.5, candidate={"n": 1}, **old)
    put(64, "tvm", 1.2, candidate={"n": 2}, may_lead=False, **new)
    best = put(64, "tvm", 3.0, candidate={"n": 3}, **new)
    withdraw(rows(best), "miscompiled")
    assert winner().implementation.candidate == {"n": 2}


def test_what_failed_is_set_aside_until_new_evidence_says_otherwise(put):
    put(64, "eager", 1.0, spread=0)
    broken = put(64, "tvm", 2.0)
    assert set_aside(rows(broken), "wrong result: off by 3") == 1
    assert winner().route == "eager"
    assert put(64, "tvm", 2.0).is_winner
    broken.implementation.refresh_from_db()
    assert (broken.implementation.failed_at, broken.implementation.failed_reason) == (None, "")


def test_restoring_seats_what_the_stored_evidence_knows(put, target):
    declare(target, "tvm", tvm="0.27")
    put(64, "eager", 1.0, spread=0)
    old = put(64, "tvm", 2.0, versions={"tvm": "0.27"})
    declare(target, "tvm", tvm="0.28")
    put(64, "tvm", 1.5, versions={"tvm": "0.28"})
    assert winner().ratio_to_default == 1.5
    declare(target, "tvm", tvm="0.27")
    assert restore_places([ScopedPlace.of(old.implementation)], {"tvm"}, "rolled back") == 1
    assert (winner().implementation, winner().ratio_to_default) == (old.implementation, 2.0)
    assert "rolled back" in BestChange.objects.latest("pk").reason


def test_what_was_revoked_lately_is_told_to_those_who_may_know(put, organisation):
    shared = put(64, "cpp", 2.0)
    private = put(64, "secret", 3.0, scope="org:77", owner=organisation)
    old = put(65, "cpp", 2.0)
    withdraw(Implementation.objects.all(), "no licence")
    Implementation.objects.filter(pk=old.implementation.pk).update(
        revoked_at=timezone.now() - timedelta(seconds=revoked.ENTRY_LIFE_S + revoked.MARGIN_S + 1)
    )
    told = revoked.revocations(["shared"])
    assert told.artifacts == (shared.implementation.artifact.sha256,)
    assert private.implementation.artifact.sha256 in revoked.revocations(["shared", "org:77"]).artifacts


def test_what_was_revoked_lately_costs_one_statement_a_second(put, django_assert_num_queries):
    withdraw(rows(put(64, "cpp", 2.0)), "no licence")
    with django_assert_num_queries(1):
        for _ in range(50):
            assert len(revoked.revocations(["shared"]).artifacts) == 1


def test_too_many_to_list_means_all(put, monkeypatch):
    monkeypatch.setattr(revoked, "MOST", 2)
    for length in (64, 65, 66):
        put(length, "cpp", 2.0)
    withdraw(Implementation.objects.all(), "no licence")
    assert revoked.revocations(["shared"]) == revoked.Revocations(all=True)


def test_a_place_is_what_a_row_competes_for(put):
    published = put(64, "eager", 1.0)
    assert ScopedPlace.of(published.implementation) == ScopedPlace.of(winner())
    assert making.row_counts()["Best"] == 1
