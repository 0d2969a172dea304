"""Failed trials are grouped by cause as they are kept, and a cause's candidates are tried again."""

from __future__ import annotations

import pytest

from catalog.errors import RequestError, Unknown
from catalog.models import Organisation
from catalog.viewing import MAY, Viewer
from tests.dashboard.factory import Factory
from tests.tuning.failures.making import failed
from tuning.failures import grouping
from tuning.failures.again import try_again
from tuning.failures.grouping import note_failures
from tuning.models import FailureGroup, FailurePlace
from tuning.queue.permissions import NotAllowed
from tuning.queue.rounds import begin_rounds

pytestmark = pytest.mark.django_db
HOST = Viewer("ann", {}, MAY["operator"])


@pytest.fixture
def factory() -> Factory:
    return Factory()


def test_the_same_words_with_other_numbers_paths_and_addresses_are_one_cause(factory):
    for number in range(3):
        failed(factory, number)
    last = failed(factory, 2, route="halide")
    group = FailureGroup.objects.get()
    assert (group.trials, group.operators, group.routes) == (4, 3, ["halide", "tvm"])
    assert group.latest == last and group.first_at < group.last_at == last.created_at
    assert group.first.exploration.operator.summary == "Relu 0 float32"
    assert FailurePlace.objects.get(exploration=last.exploration).trials == 2


def test_another_status_or_other_words_are_another_cause(factory):
    failed(factory, 1, detail="error 7")
    failed(factory, 1, detail="error 7", status="crashed")
    failed(factory, 1, detail="fault 7")
    assert FailureGroup.objects.count() == 3


@pytest.mark.parametrize("status", ["ok", "slower", "noisy", "unsupported"])
def test_what_is_a_result_is_no_failure(factory, status):
    failed(factory, status=status)
    assert not FailureGroup.objects.exists()


def test_an_organisations_own_failures_are_a_group_of_their_own(factory):
    organisation = Organisation.objects.create(name="private")
    failed(factory, 1)
    failed(factory, 1, scope=f"org:{organisation.pk}", owner=organisation)
    shared, own = FailureGroup.objects.order_by("pk")
    assert (shared.owner, own.owner) == (None, organisation)


def test_tried_again_its_routes_are_contested_in_a_new_round(factory):
    trials = [failed(factory, number) for number in range(3)]
    busy = failed(factory, 9, state="running")
    dead = failed(factory, 10, state="dead")
    group = FailureGroup.objects.get()
    came = try_again(HOST, group.pk, "ann")
    assert (came.asked, came.left) == (4, 1)
    begin_rounds()
    for trial in trials:
        row = trial.exploration
        row.refresh_from_db()
        assert (row.state, row.routes, row.round) == ("queued", "tvm", 1)
        assert row.round_reason == f"failure {group.pk} tried again by ann"
    dead.exploration.refresh_from_db()
    busy.exploration.refresh_from_db()
    assert (dead.exploration.state, busy.exploration.state) == ("queued", "running")
    group.refresh_from_db()
    assert group.again_by == "ann" and group.again_at is not None
    with pytest.raises(RequestError, match="None of these"):
        try_again(HOST, group.pk, "ann")


def test_at_most_so_many_at_a_time(factory, monkeypatch):
    monkeypatch.setattr("tuning.failures.again.MAX_AT_ONCE", 2)
    for number in range(5):
        failed(factory, number)
    group = FailureGroup.objects.get()
    assert [try_again(HOST, group.pk, "ann").asked for _ in range(3)] == [2, 2, 1]


def test_only_who_may_operate_tries_again_and_only_what_they_see(factory):
    tenant, other = (Organisation.objects.create(name=name) for name in ("one", "two"))
    failed(factory, 1)
    failed(factory, 1, scope=f"org:{tenant.pk}", owner=tenant)
    shared, own = FailureGroup.objects.order_by("pk")
    theirs = Viewer("tina", {tenant.pk: MAY["operator"]}, None, tenant.pk)
    strange = Viewer("mallory", {other.pk: MAY["admin"]}, None, other.pk)
    with pytest.raises(NotAllowed):
        try_again(theirs, shared.pk, "tina")
    with pytest.raises(Unknown):
        try_again(strange, own.pk, "mallory")
    assert try_again(theirs, own.pk, "tina").asked == 1
    with pytest.raises(NotAllowed):
        try_again(Viewer("vera", {}, MAY["viewer"]), shared.pk, "vera")


def test_many_at_once_come_to_what_each_comes_to(factory):
    trials = [
        failed(
            factory, number % 3, route=("tvm", "halide")[number % 2], detail=f"{'ab'[number % 2]} {number}"
        )
        for number in range(12)
    ]
    one_by_one = all_of_it()
    FailureGroup.objects.all().delete()
    note_failures(reversed(trials))
    assert all_of_it() == one_by_one and len(one_by_one) == 2


def all_of_it():
    return [
        (group.reason, group.trials, group.operators, group.routes, group.first, group.first_at,
         group.latest, group.last_at, sorted(group.places.values_list("exploration", "trials", "last_at")))
        for group in FailureGroup.objects.order_by("reason")
    ]  # fmt: skip


def test_one_that_was_forgotten_just_then_begins_anew(factory, monkeypatch):
    failed(factory, 1)
    made = FailureGroup.objects.get_or_create
    forgotten = []

    def forgotten_meanwhile(**values):
        found = made(**values)
        if not forgotten:
            forgotten.append(FailureGroup.objects.all().delete())
        return found

    monkeypatch.setattr(grouping.FailureGroup.objects, "get_or_create", forgotten_meanwhile)
    failed(factory, 2)
    assert FailureGroup.objects.get().trials == 1 and forgotten
