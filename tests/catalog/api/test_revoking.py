"""Revoking by REST, and how clients hear of it."""

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from catalog.best import revoked
from catalog.best.withdrawing import withdraw
from catalog.models import Best, Implementation


def test_an_approver_revokes_and_the_best_falls_back(api_with, make_key, body, put):
    put(64, "eager", 1.0, spread=0)
    gone = put(64, "cpp", 2.0).implementation
    api = api_with(make_key("lookup", "approve"))
    response = api.post(f"implementations/{gone.pk}/revoke", {"reason": "reads past its input"})
    assert response.status_code == 200
    assert response.json()["revoked_reason"] == "reads past its input"
    assert response.json()["revoked_at"]
    revoked.forget()
    answer = api.post("lookup", body(64)).json()
    assert answer["results"][0]["best"]["route"] == "eager"
    assert answer["revoked"] == [gone.artifact.sha256]
    assert answer["entry_life_s"] == 300
    assert "revoked_all" not in answer


def test_one_operator_asked_for_tells_it_too(api, put, target):
    put(64, "eager", 1.0)
    key = Best.objects.get().operator.key
    answer = api.get(f"operators/{key}/best", target=target.key).json()
    assert (answer["revoked"], answer["entry_life_s"]) == ([], 300)


def test_too_many_to_list(api, body, put, monkeypatch):
    monkeypatch.setattr(revoked, "MOST", 0)
    put(64, "cpp", 2.0)
    withdraw(Implementation.objects.all(), "no licence")
    answer = api.post("lookup", body(65)).json()
    assert (answer["revoked"], answer["revoked_all"]) == ([], True)


@pytest.mark.parametrize(
    "document", [{}, {"reason": ""}, {"reason": " "}, {"reason": "x" * 301}, {"reason": None}]
)
def test_a_reason_is_needed(api, put, document):
    number = put(64, "cpp", 2.0).implementation.pk
    response = api.post(f"implementations/{number}/revoke", document)
    assert response.status_code == 400
    assert response.json()["where"] == "reason"
    assert not Implementation.objects.exclude(revoked_at=None).exists()


def test_a_key_that_may_only_look_up_may_not(api_with, make_key, put):
    number = put(64, "cpp", 2.0).implementation.pk
    api = api_with(make_key("lookup", "operate"))
    assert api.post(f"implementations/{number}/revoke", {"reason": "no"}).status_code == 403


def test_what_is_not_there_or_not_ours_is_404(api, put, organisation):
    from catalog.models import Organisation

    other = Organisation.objects.create(name="other")
    hidden = put(64, "secret", 2.0, scope=f"org:{other.pk}", owner=other).implementation.pk
    for number in (hidden, 10**9, "9" * 19):
        assert api.post(f"implementations/{number}/revoke", {"reason": "no"}).status_code == 404
    assert not Implementation.objects.exclude(revoked_at=None).exists()


@pytest.fixture
def told(api, body):
    """``told("0")``: what a lookup that says so is told: artifacts, whether there are more, what next."""

    def ask(since):
        revoked.forget()
        answer = api.post("lookup", body(65, revoked_since=since)).json()
        return set(answer["revoked"]), answer.get("revoked_all", False), answer["revoked_until"]

    return ask


def revoke(published, ago_s=0):
    """Revoked so long ago; gives its artifact."""
    row = published.implementation
    withdraw(Implementation.objects.filter(pk=row.pk), "wrong")
    Implementation.objects.filter(pk=row.pk).update(revoked_at=timezone.now() - timedelta(seconds=ago_s))
    return row.artifact.sha256


def test_who_was_away_for_days_is_told_of_all_since_and_of_each_once(put, told):
    first = revoke(put(64, "cpp", 2.0), 40 * 86400)
    second = revoke(put(66, "cpp", 2.0, candidate={"n": 2}), 20 * 86400)
    said, more, until = told("0")
    assert said == {first, second} and not more
    assert told(until)[0] == set(), "it was told"
    month_ago = str(int((time.time() - 30 * 86400) * 1e6))
    assert told(month_ago)[0] == {second}
    third = revoke(put(67, "cpp", 2.0, candidate={"n": 3}))
    assert told(until)[0] == {third}


def test_many_come_in_turns_also_those_of_one_moment(put, told, monkeypatch):
    monkeypatch.setattr(revoked, "MOST", 2)
    all_of_them = {revoke(put(70 + n, "cpp", 2.0, candidate={"n": n}), 86400) for n in range(7)}
    Implementation.objects.update(revoked_at=timezone.now() - timedelta(days=1))
    found, since, more, turns = set(), "0", True, 0
    while more and turns < 10:
        said, more, since = told(since)
        assert len(said) <= 2
        found, turns = found | said, turns + 1
    assert found == all_of_them and turns == 4
    assert told(since)[:2] == (set(), False)


def test_a_clock_that_was_wrong_means_from_the_beginning(put, told):
    gone = revoke(put(64, "cpp", 2.0), 86400)
    tomorrow = str(int((time.time() + 86400) * 1e6))
    said, _, until = told(tomorrow)
    assert said == {gone} and until < tomorrow, "the next one is told by the right clock"


def test_nobody_is_told_of_what_is_anothers(put, told, tenant):
    revoke(put(64, "secret", 2.0, scope=f"org:{tenant.pk}", owner=tenant), 86400)
    assert told("0")[0] == set()


def test_who_asks_often_costs_no_statement(api, body, put, told, django_assert_max_num_queries):
    put(64, "cpp", 2.0)
    until = told("0")[2]
    with django_assert_max_num_queries(100) as without:
        api.post("lookup", body(64))
    with django_assert_max_num_queries(len(without)):
        assert api.post("lookup", body(64, revoked_since=until)).status_code == 200


@pytest.mark.parametrize("since", ["", "-1", "yesterday", 5, None, "9" * 17, "1-", ["0"]])
def test_what_no_answer_said_is_refused(api, body, since):
    response = api.post("lookup", body(64, revoked_since=since))
    assert response.status_code == (200 if since is None else 400)
    assert since is None or response.json()["where"] == "revoked_since"
