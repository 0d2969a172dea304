"""A sudden rise of spending is one alert of whoever pays, told by the channels that exist, and explained."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from catalog.models import Membership
from catalog.people.keys import create_api_key
from catalog.viewing import viewer_of
from dashboard.billing import sudden
from dashboard.notifications.alerts.watching import watch
from dashboard.notifications.find.gathering import gather
from dashboard.notifications.models import Alert, AlertDeed, Notification
from dashboard.notifications.write import subjects
from dashboard.webhooks import endpoints
from dashboard.webhooks.models import Message
from tests.dashboard.billing.making import booked
from tests.dashboard.notifications.alerts.conftest import time_passes
from tests.dashboard.people import member_client

pytestmark = pytest.mark.django_db


def usual(world, units: float = 10) -> None:
    for days in range(15, 1, -1):
        booked(world.home, units, timezone.now() - timedelta(days=days))


def alerts():
    return Alert.objects.filter(rule="spend_sudden")


def firing() -> list[str]:
    watch()
    return list(alerts().filter(gone_at=None).values_list("text", flat=True))


def test_a_new_organisation_is_judged_by_the_least_amount_alone(world):
    booked(world.home, 19.99)
    assert firing() == []
    booked(world.home, 1)
    assert firing() == [
        "20.99 EUR were charged within a day, 20.99 of them in the last hour; nothing was charged before."
    ]


def test_who_pays_is_told_and_nobody_else(world, host):
    payer = world.member("payer", world.home)
    Membership.objects.filter(user=payer).update(role="billing")
    world.watch(payer, subjects.account(viewer_of(payer)), events=("spend_sudden",))
    world.watch(host, subjects.service(viewer_of(host)), events=("failing",))
    usual(world)
    booked(world.home, 12)
    assert firing() == []
    booked(world.home, 30)
    (text,) = firing()
    assert text.startswith("42.00 EUR were charged within a day, 42.00 of them in the last hour: 4.2 times a")
    gather()
    told = Notification.objects.get(happening="spend_sudden")
    assert (told.user, told.text) == (payer, text)
    alert = alerts().get()
    assert (alert.organisation, alert.severity, alert.path) == (world.home, "warning", "/billing/ledger/")


def test_what_comes_and_goes_is_one_alert(world, monkeypatch):
    usual(world)
    booked(world.home, 42)
    for _ in range(3):
        assert firing()
        monkeypatch.setattr(sudden, "sudden_spendings", lambda now: iter(()))
        assert firing() == []
        time_passes(300)
        monkeypatch.undo()
    assert firing() and alerts().count() == 1
    deeds = AlertDeed.objects.filter(alert__in=alerts())
    assert list(deeds.values_list("what", flat=True)) == ["fired"]
    monkeypatch.setattr(sudden, "sudden_spendings", lambda now: iter(()))
    watch()
    time_passes(601)
    assert alerts().get().state == "resolved"


def test_the_page_explains_the_charge_and_rest_does_too(world, client):
    key, text = create_api_key(world.home, "night runs", ["lookup", "billing"])
    booked(world.home, 30, operator_key=world.operator.key, job_name="<b>train", key_prefix=key.prefix)
    booked(world.home, 10, operator_key="o1:gone")
    watch()
    alert = alerts().get()
    payer = member_client(world.home, "billing", "paul")
    page = payer.get(f"/alerts/{alert.pk}/").content.decode()
    for said in (
        world.operator.summary,
        "&lt;b&gt;train",
        "night runs",
        "(unnamed)",
        "not noted",
        "75",
        "40.00 EUR",
    ):
        assert said in page, said
    assert f'href="/operators/{world.operator.key}/"' in page and "<b>train" not in page
    assert "<dt>last day</dt>" in page and "<dt>charged" not in page
    rows = payer.get(f"/alerts/{alert.pk}/?export=json&table=jobs").json()["rows"]
    assert [(row["id"], row["micros"]) for row in rows] == [("<b>train", 30_000_000), ("", 10_000_000)]
    bearer = {"headers": {"Authorization": f"Bearer {text}"}}
    facts = client.get(f"/api/v1/alerts/{alert.pk}", **bearer).json()["facts"]
    assert facts["charged_for"]["keys"][0]["name"] == "night runs"


def test_it_is_explained_when_it_fires_and_once_a_minute(world, monkeypatch):
    asked, explain = [], sudden.charged_for
    monkeypatch.setattr(sudden, "charged_for", lambda *given: asked.append(given) or explain(*given))
    for units in (40, 1, 1):
        booked(world.home, units)
        assert firing()
    alert = alerts().get()
    assert len(asked) == 1 and "42.00 EUR" in alert.text and alert.facts["charged_for"]
    Alert.objects.update(seen_at=F("seen_at") - timedelta(minutes=2))
    watch()
    assert len(asked) == 2
    assert sum(line["micros"] for line in alerts().get().facts["charged_for"]["jobs"]) == 42_000_000


def test_a_receiver_that_names_it_is_told(world):
    endpoints.create(world.home, "https://example.com/hook", event_types=["spending.sudden"])
    booked(world.home, 40)
    watch()
    message = Message.objects.get()
    assert (message.event_type, message.data["happening"]) == ("spending.sudden", "spend_sudden")


def test_however_many_charges_there_are_the_rule_takes_as_many_statements(world):
    counts = []
    for _ in range(2):
        booked(world.home, 40, entries=200)
        with CaptureQueriesContext(connection) as queries:
            list(sudden.sudden_spendings(timezone.now()))
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 9
