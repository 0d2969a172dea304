"""Notifications and subscriptions over REST, for keys that belong to a person."""

import json

import pytest

from catalog.people.keys import create_api_key
from dashboard.notifications.find.gathering import gather
from dashboard.notifications.find.notify import notify_test
from dashboard.notifications.models import Notification, Subscription
from tests.conftest import Api


class PersonsApi(Api):
    def send(self, method, path, document=None):
        return getattr(self.client, method)(
            f"/api/v1/{path}", json.dumps(document), content_type="application/json", headers=self.headers
        )


@pytest.fixture
def ours(world):
    return PersonsApi(create_api_key(world.home, "ada's", ["lookup"], user=world.person)[1])


def test_a_person_subscribes_is_told_and_reads_it(world, ours):
    made = ours.post("subscriptions/", {"subject": "operator", "operator": world.operator.key})
    assert made.status_code == 201, made.content
    assert made.json()["events"] == ["explored", "best_changed", "withdrawn"]
    assert made.json()["channels"] == ["page"]
    Subscription.objects.update(created_at=world.factory.now)
    world.change(None, world.implementation())
    gather()
    (row,) = ours.get("notifications/", show="unread").json()["results"]
    assert row["event"] == "best_changed"
    assert row["text"].endswith("2.1 times the default (PyTorch eager).")
    assert row["operator"] == world.operator.key
    read = ours.post(f"notifications/{row['id']}/read")
    assert read.json()["read_at"] is not None
    assert ours.get("notifications/", show="unread").json()["count"] == 0
    assert ours.post("notifications/read").json() == {"read": 0}


def test_a_subscription_is_listed_changed_and_ended(world, ours):
    given = {"subject": "filter", "filters": {"op_type": "MatMul"}, "events": ["hit"]}
    pk = ours.post("subscriptions/", given).json()["id"]
    assert ours.post("subscriptions/", given | {"digest": "daily"}).status_code == 200
    changed = ours.send("patch", f"subscriptions/{pk}", {"channels": ["page", "email"]}).json()
    assert (changed["events"], changed["channels"], changed["digest"]) == (
        ["hit"],
        ["page", "email"],
        "daily",
    )
    assert [row["id"] for row in ours.get("subscriptions/").json()["results"]] == [pk]
    assert ours.send("delete", f"subscriptions/{pk}").status_code == 204
    assert ours.get(f"subscriptions/{pk}").status_code == 404


def test_a_key_that_is_nobodys_is_refused(world):
    machine = PersonsApi(create_api_key(world.home, "machine", ["lookup"])[1])
    answer = machine.get("notifications/")
    assert answer.status_code == 403
    assert "belongs to a user" in answer.json()["error"]
    assert machine.post("subscriptions/", {"subject": "filter"}).status_code == 403


def test_another_persons_and_another_organisations_do_not_exist(world, ours):
    theirs = world.watch(world.stranger)
    row = notify_test(theirs)
    own_elsewhere = Subscription.objects.create(
        user=world.person, organisation=world.other, subject="filter", subject_key="x", title="x"
    )
    elsewhere = notify_test(own_elsewhere)
    assert ours.get("notifications/").json()["count"] == 0
    assert ours.get("subscriptions/").json()["count"] == 0
    for number in (row.pk, elsewhere.pk):
        assert ours.post(f"notifications/{number}/read").status_code == 404
    for pk in (theirs.pk, own_elsewhere.pk):
        assert ours.get(f"subscriptions/{pk}").status_code == 404
        assert ours.send("patch", f"subscriptions/{pk}", {"digest": "daily"}).status_code == 404
        assert ours.send("delete", f"subscriptions/{pk}").status_code == 404
    assert not Notification.objects.exclude(read_at=None).exists()


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, 400),
        ([], 400),
        ({"subject": "operator"}, 400),
        ({"subject": "operator", "operator": "o1:none"}, 404),
        ({"subject": "job", "job": 2**63}, 400),
        ({"subject": "job", "job": 77}, 404),
        ({"subject": "model", "model": "x"}, 400),
        ({"subject": "filter", "filters": []}, 400),
        ({"subject": "filter", "filters": {"target": "t1:none"}}, 404),
        ({"subject": "filter", "events": []}, 400),
        ({"subject": "filter", "events": ["magic"]}, 400),
        ({"subject": "filter", "channels": ["smoke"]}, 400),
        ({"subject": "filter", "digest": None}, 400),
        ({"subject": "filter", "filters": {"q": "a\tb\u202e"}}, 400),
        ({"subject": "filter", "filters": {"q": "conv route:tvmm"}}, 400),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(ours, given, status):
    answer = ours.post("subscriptions/", given)
    assert answer.status_code == status, answer.content
    assert answer.json()["error"]
    assert not Subscription.objects.exists()


@pytest.mark.parametrize("asked", [{"show": "all"}, {"event": "magic"}, {"limit": "0"}, {"offset": "-1"}])
def test_a_query_that_is_not_understood_is_refused(ours, asked):
    assert ours.get("notifications/", **asked).status_code == 400
