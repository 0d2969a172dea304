"""Revoking by REST, and how clients hear of it."""

import pytest

from catalog.best import revoked
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
    from catalog.best.withdrawing import withdraw

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
