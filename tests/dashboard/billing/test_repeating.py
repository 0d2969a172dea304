"""A charged lookup that is sent again under its Idempotency-Key is charged once."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from catalog.best import revoked, vouching
from catalog.best.damage import note_damage
from catalog.best.withdrawing import withdraw
from catalog.lookup import lookups
from catalog.lookup.repeating import forget_old_answers
from catalog.models import Implementation, KeptAnswer, LookupTally, Miss, Usage
from catalog.people.keys import create_api_key
from catalog.usage.draining import drain_journal
from dashboard.billing import rules
from dashboard.billing.models import Account, LedgerEntry, PriceRule, Purchase
from tests.catalog import making
from tests.conftest import Api
from tests.hostile.conftest import deploy  # noqa: F401


@pytest.fixture
def lookup(api, target, setting):
    """``lookup(64, key="once")`` → the response."""

    def post(*lengths, key=None, by=api, **more):
        body = {
            "target": target.key,
            "setting": setting.key,
            "operators": [{"key": making.relu(length).key} for length in lengths],
        }
        return by.post("lookup", body | more, **({"HTTP_IDEMPOTENCY_KEY": key} if key is not None else {}))

    return post


def charges():
    return LedgerEntry.objects.filter(kind="charge").count()


def test_the_same_request_again_is_answered_as_it_was_and_charged_once(lookup, put, price):
    put(64, "tvm", 2.0, method="compiler")
    put(65, "eager", 1.0)
    price(0.01, method="compiler")
    first = lookup(64, 65, 66, key="once", job="run").json()
    assert [item.get("price", {}).get("amount_micros") for item in first["results"]] == [10_000, None, None]
    again = lookup(64, 65, 66, key="once", job="run")
    assert (again.status_code, again.json()) == (200, first)
    assert lookup(64, 65, 66, key='"once"', job="run").json() == first, "quoted, as the draft has it"
    assert charges() == 1 and Account.objects.get().balance_micros == -10_000
    drain_journal()
    assert sum(row.hits for row in LookupTally.objects.all()) == Usage.objects.count() == 2
    lookup(64, 65, 66, key="another", job="run")
    lookup(64, 65, 66, job="run")
    assert charges() == 3


def test_who_wants_free_answers_alone_is_charged_nothing(lookup, put, price, monkeypatch):
    put(64, "eager", 1.0)
    put(65, "tvm", 2.0, method="compiler")
    price(0.01, method="compiler")
    assert lookup(64, free_only=True).json()["results"][0]["status"] == "hit"
    related = [{"graph": making.relu(66).to_json()}]
    refused = lookup(64, 65, free_only=True, key="once", related=related)
    assert (refused.status_code, refused.json()["where"]) == (409, "operators[1]")
    assert not Miss.objects.exists(), "that is for the lookup that is answered"
    assert lookup(64, 65, free_only=1).json()["where"] == "free_only"
    drain_journal()
    assert charges() == 0 and Usage.objects.count() == 1, "of the first alone"
    # A price that comes while the answer is made.
    with monkeypatch.context() as patch:
        patch.setattr(lookups, "_charged", lambda *_: set())
        assert lookup(64, 65, free_only=True, key="once").status_code == 409
    drain_journal()
    assert charges() == 0 and Usage.objects.count() == 1 and not KeptAnswer.objects.exists()
    assert lookup(64, 65, key="once").status_code == 200 and charges() == 1


def test_it_is_what_was_paid_for_unless_that_was_revoked(lookup, put, price):
    include = ["manifest"]
    paid = put(64, "tvm", 2.0, method="compiler")
    price(0.01, method="compiler")
    first = lookup(64, key="once", include=include).json()
    put(64, "eager", 3.0)  # faster, and free
    assert "price" not in lookup(64, include=include).json()["results"][0]
    again = lookup(64, key="once", include=include).json()
    assert again == first and again["results"][0]["best"]["implementation"] == paid.implementation.pk
    assert again["manifests"].keys() == {paid.implementation.artifact.sha256}
    withdraw(Implementation.objects.filter(pk=paid.implementation.pk), "wrong")
    revoked.forget()
    again = lookup(64, key="once", include=include).json()
    assert again["revoked"] == [paid.implementation.artifact.sha256]
    assert charges() == 1 and "manifests" not in again
    (result,) = again["results"]
    assert (result["status"], result["state"]) == ("miss", "explored") and "revoked" in result["reason"]
    assert paid.implementation.artifact.sha256 not in json.dumps(again["results"])


def test_a_repeat_of_a_free_hit_opens_nothing_longer_than_its_hour(lookup, put, price, credit):
    free, paid = put(64, "tvm", 2.0, method="compiler"), put(65, "eager", 2.0)
    price(0.01, mode="withhold", method="library")
    price(0.0, mode="withhold", method="compiler", tiers=[{"from_hit": 2, "per_hit_micros": 10_000}])
    credit(0.01)
    include = ["manifest"]
    first = lookup(64, 65, key="once", include=include).json()
    assert lookup(64, 65, key="once", include=include).json() == first
    assert len(first["manifests"]) == 2
    Purchase.objects.filter(implementation=free.implementation).update(ends_at=timezone.now())
    again = lookup(64, 65, key="once", include=include).json()
    withheld, same = again["results"]
    assert (withheld["state"], withheld["price"]["amount_micros"]) == ("payment_required", 10_000)
    assert same == first["results"][1] and again["manifests"].keys() == {paid.implementation.artifact.sha256}
    assert free.implementation.artifact.sha256 not in json.dumps(again) and charges() == 2


def test_a_repeat_serves_no_damaged_artifact_either(lookup, put, price):
    paid = put(64, "tvm", 2.0)
    price(0.01)
    assert lookup(64, key="once", include=["manifest"]).json()["results"][0]["status"] == "hit"
    note_damage(paid.implementation.artifact, "kernel.so is another file.")
    vouching.forget()
    assert lookup(64, key="once", include=["manifest"]).json()["results"][0]["status"] == "miss"
    assert charges() == 1


def test_by_get_as_well(api, put, price, target, setting):
    put(64, "tvm", 2.0)
    price(0.01)
    path, place = f"operators/{making.relu(64).key}/best", {"target": target.key, "setting": setting.key}
    api.headers["Idempotency-Key"] = "once"
    first = api.get(path, **place).json()
    assert api.get(path, **place).json() == first and charges() == 1
    assert api.get(path, **place, job="another").status_code == 422


def test_a_head_counts_and_charges_nothing(api, put, price, target, setting):
    put(64, "tvm", 2.0)
    price(0.01)
    path, place = f"/api/v1/operators/{making.relu(64).key}/best", {"target": target.key}
    answer = api.client.head(path, place | {"setting": setting.key}, headers=api.headers)
    assert answer.status_code == 405 and "HEAD" not in answer["Allow"]
    drain_journal()
    assert charges() == 0 and not Usage.objects.exists() and not LookupTally.objects.exists()


def test_another_request_under_the_same_key_is_refused(lookup, put, price):
    put(64, "tvm", 2.0)
    put(65, "eager", 1.0)
    price(0.01, method="library", route="tvm")
    lookup(64, key="once")
    for other in (lookup(65, key="once"), lookup(64, key="once", job="run")):
        assert other.status_code == 422
        assert other.json()["where"] == "Idempotency-Key" and "its own" in other.json()["error"]
    assert charges() == 1


@pytest.mark.parametrize("key", ["", '""', "a b", "ü", "x" * 256, "\t"])
def test_what_is_no_key_is_refused(lookup, put, price, key):
    put(64, "tvm", 2.0)
    price(0.01)
    answer = lookup(64, key=key)
    assert answer.status_code == 400 and "255 visible" in answer.json()["error"]
    assert not charges()
    assert lookup(64, key="x" * 255).status_code == 200


def test_organisations_share_no_keys(lookup, put, price, tenant):
    put(64, "tvm", 2.0)
    price(0.01)
    theirs = Api(create_api_key(tenant, "theirs", ["lookup"])[1])
    lookup(64, key="once")
    assert lookup(64, key="once", by=theirs, job="theirs").status_code == 200
    assert {entry.organisation_id for entry in LedgerEntry.objects.all()} > {tenant.pk}
    assert charges() == 2


def test_after_a_day_it_is_another_request(lookup, put, price):
    put(64, "tvm", 2.0)
    price(0.01)
    lookup(64, key="once")
    KeptAnswer.objects.update(at=timezone.now() - timedelta(hours=25))
    assert lookup(64, key="once").status_code == 200
    assert charges() == 2
    KeptAnswer.objects.update(at=timezone.now() - timedelta(hours=25))
    assert (forget_old_answers(), forget_old_answers()) == (1, 0)


@pytest.mark.parametrize("hours", [-26, 26])
def test_a_node_whose_clock_is_a_day_off_charges_no_repeat_again(lookup, put, price, monkeypatch, hours):
    """Found by chaos: the node that was asked again thought that the answer had been kept for a day."""
    put(64, "tvm", 2.0)
    price(0.01)
    now = timezone.now
    for off in (0, hours, 0):
        moment = now() + timedelta(hours=off)
        monkeypatch.setattr(timezone, "now", lambda moment=moment: moment)
        assert lookup(64, key="once").json()["results"][0]["status"] == "hit"
        forget_old_answers()
    assert charges() == 1


def test_what_another_version_kept_is_another_request(lookup, put, price):
    put(64, "tvm", 2.0)
    price(0.01)
    lookup(64, key="once")
    KeptAnswer.objects.update(answer=[[{"key": making.relu(64).key, "of old": 1}], []])
    for _ in range(2):
        assert lookup(64, key="once").json()["results"][0]["status"] == "hit"
    assert charges() == 2


def test_what_charges_nothing_is_not_kept(lookup, put, price, credit):
    put(64, "tvm", 2.0)
    lookup(64, key="free")
    price(0.01, mode="withhold")
    assert lookup(64, key="held").json()["results"][0]["state"] == "payment_required"
    assert not KeptAnswer.objects.exists()
    credit(1)
    assert lookup(64, key="held").json()["results"][0]["status"] == "hit"


def test_without_prices_a_key_costs_no_statement(lookup, put):
    put(64, "eager", 1.0)

    def statements(**key):
        with CaptureQueriesContext(connection) as queries:
            assert lookup(64, **key).status_code == 200
        return len(queries)

    lookup(64)
    rules.in_force(1)
    assert statements(key="free") == statements()


def test_a_lookup_that_is_killed_anywhere_charges_once_or_not_at_all(deploy):  # noqa: F811
    deployment = deploy()
    told = json.loads(deployment.run("-m", "tests.hostile.paying"))
    assert [one["killed"] for one in told] == [True] * (len(told) - 1) + [False] and len(told) > 4
    assert told[0]["committed"], "the first is killed with its charge committed, and its answer not sent"
    assert not any(one["committed"] for one in told[1:-1]), "the others before"
    assert all(one["charged_micros"] == 1_000 for one in told)
    assert "ok" in deployment.manage("check_ledger")
    (entries,) = deployment.query("SELECT COUNT(*), COUNT(DISTINCT usage_id) FROM billing_ledgerentry")
    assert entries == (len(told), len(told))
    assert deployment.query("SELECT COUNT(*) FROM catalog_usage") == [(len(told),)]


@pytest.mark.django_db(transaction=True)
def test_the_same_request_at_once_is_charged_once(lookup, put, price, api_key):
    from django.db import connections

    put(64, "tvm", 2.0)
    price(0.01)
    start, answers = threading.Barrier(4), []

    def ask():
        start.wait()
        answers.append(lookup(64, key="once", by=Api(api_key)).json())
        connections.close_all()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(answers) == 4 and all(one == answers[0] for one in answers)
    assert charges() == Usage.objects.count() == 1 and PriceRule.objects.count() == 1
