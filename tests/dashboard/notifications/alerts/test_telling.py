"""Receivers are told what becomes of an alert: by PagerDuty's form, by any, and again where they fail."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from catalog.errors import RequestError
from catalog.models import Organisation
from catalog.registry import default_organisation
from catalog.viewing import MAY, Viewer
from dashboard.notifications.alerts import steering
from dashboard.notifications.alerts.steering import AlertOrder
from dashboard.notifications.alerts.watching import watch
from dashboard.notifications.models import Alert
from dashboard.webhooks import delivering, endpoints, signing
from dashboard.webhooks.bodies import body_for
from dashboard.webhooks.models import Delivery, Endpoint, Message
from tests.dashboard.notifications.alerts.conftest import comes_back, time_passes
from tests.dashboard.webhooks.receiver import answering, receiving

pytestmark = pytest.mark.django_db(transaction=True)
KEY = "R0123456789abcdef0123456789abcde"
OPERATOR = Viewer("ann", {}, MAY["operator"])


@pytest.fixture
def receiver(configure):
    with receiving() as one:
        one.answer = answering(202)
        configure(webhooks_allow=(one.address,))
        yield one


@pytest.fixture
def pager(world, receiver) -> Endpoint:
    row, _ = endpoints.create(default_organisation(), receiver.url, form="pagerduty", routing_key=KEY)
    return row


def deliver() -> None:
    Delivery.objects.update(next_try_at=F("began_at"), claimed_until=None)
    delivering.deliver()
    delivering._deliverer().wait(60)


def bodies(receiver) -> list[dict]:
    return [json.loads(one.body) for one in receiver.got]


def test_pagerduty_is_told_that_it_fired_is_seen_to_and_is_over(world, silent, pager, receiver):
    watch()
    deliver()
    alert = Alert.objects.get()
    steering.act(OPERATOR, alert.pk, AlertOrder("acknowledge", "ann"))
    deliver()
    comes_back(silent)
    time_passes(60)
    deliver()
    fired, seen, over = bodies(receiver)
    assert [one["event_action"] for one in (fired, seen, over)] == ["trigger", "acknowledge", "resolve"]
    assert {one["routing_key"] for one in (fired, seen, over)} == {KEY}
    (name,) = {one["dedup_key"] for one in (fired, seen, over)}
    assert name.endswith(f"/alerts/{alert.pk}/")
    assert fired["payload"]["summary"] == alert.text and fired["payload"]["severity"] == "critical"
    assert fired["payload"]["source"] == alert.cause and "payload" not in over


def test_a_trigger_that_comes_late_says_what_holds_by_then(world, silent, pager, receiver):
    """A receiver that was away: what was resolved meanwhile must not page anybody."""
    receiver.answer = answering(503)
    watch()
    deliver()
    assert Delivery.objects.get().state == "pending"
    comes_back(silent)
    time_passes(60)
    receiver.got.clear()
    receiver.answer = answering(202)
    Endpoint.objects.update(failing_since=None)
    deliver()
    assert {one["event_action"] for one in bodies(receiver)} == {"resolve"}
    assert set(Delivery.objects.values_list("state", flat=True)) == {"delivered"}


def test_pagerduty_is_told_of_alerts_alone_and_of_those_it_wants(world, silent, pager, receiver):
    from dashboard.webhooks.sending import send

    assert send(default_organisation(), "hit.served", {}, key="a hit") is None
    Endpoint.objects.update(event_types=["route.failing"])
    watch()
    assert not Message.objects.exists()
    Endpoint.objects.update(event_types=["workers.silent"])
    Alert.objects.all().delete()
    watch()
    steering.act(OPERATOR, Alert.objects.get().pk, AlertOrder("resolve", "ann"))
    deliver()
    assert [one["event_action"] for one in bodies(receiver)][-1] == "resolve"


def test_the_routing_key_is_kept_sealed_and_shown_nowhere(world, pager, client):
    row = Endpoint.objects.get()
    assert KEY not in row.sealed_key and signing.unseal(row.sealed_key) == KEY
    assert KEY not in body_for(pager, endpoints.test(pager))
    endpoints.change(pager, description="on call")
    assert endpoints.routing_key(Endpoint.objects.get()) == KEY  # what is not given stays
    endpoints.change(pager, form="slack")
    assert Endpoint.objects.get().sealed_key == ""


@pytest.mark.parametrize("key", ["", "short", "with spaces in it", "x" * 65, "new\nline-key"])
def test_what_is_no_routing_key_is_refused(world, key):
    with pytest.raises(RequestError, match="routing key"):
        endpoints.create(
            default_organisation(), "https://events.example.com/", form="pagerduty", routing_key=key
        )


def test_another_form_takes_no_routing_key(world):
    with pytest.raises(RequestError, match="Only the form pagerduty"):
        endpoints.create(default_organisation(), "https://events.example.com/", routing_key=KEY)


def test_slack_gets_a_sentence_and_a_program_what_it_is_made_of(world, silent, receiver):
    endpoints.create(default_organisation(), receiver.url, form="slack")
    endpoints.create(default_organisation(), f"{receiver.url}/2")
    watch()
    deliver()
    found = {one.path: json.loads(one.body) for one in receiver.got}
    assert found["/hooks"]["text"].startswith(Alert.objects.get().text)
    assert found["/hooks/2"]["type"] == "workers.silent"
    assert found["/hooks/2"]["data"]["alert"]["severity"] == "critical"


def test_a_tenant_is_told_nothing_of_the_service(world, silent, receiver):
    endpoints.create(world.home, receiver.url)
    watch()
    assert Alert.objects.exists() and not Message.objects.exists()


def test_an_organisations_alert_goes_to_its_own_receivers(world, receiver):
    from datetime import date

    from dashboard.billing.models import Account, LedgerDay

    other = Organisation.objects.create(name="a bystander")
    for organisation, path in ((world.home, "/own"), (other, "/other"), (default_organisation(), "/host")):
        endpoints.create(organisation, f"http://{receiver.address}{path}")
    Account.objects.create(organisation=world.home, currency="EUR", balance_micros=0)
    LedgerDay.objects.create(
        organisation=world.home, day=date.today(), kind="charge", entries=1, amount_micros=-5
    )
    watch()
    deliver()
    assert [(one.path, json.loads(one.body)["type"]) for one in receiver.got] == [("/own", "credit.low")]


def test_mute_tells_receivers_nothing(world, silent, pager, receiver):
    watch()
    deliver()
    steering.act(OPERATOR, Alert.objects.get().pk, AlertOrder("mute", "ann", for_s=60))
    deliver()
    assert len(receiver.got) == 1
    assert Alert.objects.get().muted_until > timezone.now() + timedelta(seconds=50)
