"""Events reach receivers: signed, once or more, and never for ever."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from typing import Any

import pytest
from django.core import mail
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone
from standardwebhooks import Webhook, WebhookVerificationError

from catalog.models import AuditEntry, Membership, Organisation, Role, StepFailure
from dashboard.webhooks import delivering, endpoints, guard, retention
from dashboard.webhooks.models import Attempt, Delivery, Endpoint, Message, Secret
from dashboard.webhooks.sending import send as write
from tests.dashboard.webhooks.conftest import Clock
from tests.dashboard.webhooks.receiver import Receiver, answering, plain, receiving

pytestmark = pytest.mark.django_db(transaction=True)
Run = Callable[[], None]


def test_signature_verifies_with_the_official_library(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run
) -> None:
    message = send("a", operator="o1:5f", speedup="1,5× – schön")
    deliver()
    (got,) = receiver.got
    document = Webhook(endpoint.secret).verify(got.body, got.headers)
    assert document["type"] == "best.changed" and document["data"]["speedup"] == "1,5× – schön"
    assert document["timestamp"].endswith("Z")
    assert got.headers["webhook-id"] == message.public_id
    assert got.headers["content-type"] == "application/json"
    with pytest.raises(WebhookVerificationError):
        Webhook(endpoint.secret).verify(got.body.replace("1,5", "2,5"), got.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + "A" * 44).verify(got.body, got.headers)
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.tries) == ("delivered", 1)
    attempt = Attempt.objects.get()
    assert (attempt.status, attempt.error) == (200, "") and attempt.duration_ms > 0


def test_a_name_that_turns_to_the_inside_after_it_was_saved_is_not_sent_to(
    organisation: Any, send: Any, deliver: Run, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding, with a resolver of our own: public at first, this machine from then on."""
    answers, reached = [["203.0.114.7"]], []

    def resolve(host: str, port: int) -> list[str]:
        assert (host, port) == ("hooks.example.com", 8080)
        return answers[-1]

    def connect(address: Any, timeout: float) -> socket.socket:
        reached.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(guard, "resolve", resolve)
    monkeypatch.setattr(guard.socket, "create_connection", connect)
    configure(webhooks_allow=())
    endpoints.create(organisation, "http://hooks.example.com:8080/")
    send("a")
    deliver()
    answers.append(["203.0.114.7", "127.0.0.1"])
    send("b")
    deliver()
    assert reached == [("203.0.114.7", 8080)]
    assert [one.error for one in Attempt.objects.order_by("pk")] == [
        "The connection was refused.",
        "The host hooks.example.com is not a public one: nothing is sent to it.",
    ]


def test_after_a_rotation_both_secrets_sign_for_a_day(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run, clock: Clock
) -> None:
    new = endpoints.rotate(endpoint)
    send("a")
    deliver()
    got = receiver.got[-1]
    assert len(got.headers["webhook-signature"].split(" ")) == 2
    for secret in (new, endpoint.secret):
        Webhook(secret).verify(got.body, got.headers)

    clock.forward(hours=24, seconds=1)
    send("b")
    deliver()
    got = receiver.got[-1]
    Webhook(new).verify(got.body, got.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(endpoint.secret).verify(got.body, got.headers)


def test_secrets_are_not_in_the_database(endpoint: Any) -> None:
    sealed = Secret.objects.get().sealed
    assert endpoint.secret.startswith("whsec_") and endpoint.secret not in sealed
    assert endpoint.secret[6:20] not in sealed
    assert endpoints.valid_secrets(endpoint) == [endpoint.secret]


def test_changed_secret_key_opens_with_its_fallback_and_is_said_without(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run, settings: Any
) -> None:
    old, settings.SECRET_KEY = settings.SECRET_KEY, "another" * 10
    send("a")
    deliver()
    assert receiver.got == [] and "rotate it" in Attempt.objects.get().error
    settings.SECRET_KEY_FALLBACKS = [old]
    assert endpoints.valid_secrets(endpoint) == [endpoint.secret]


def test_event_is_told_once_and_only_if_the_transaction_commits(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run
) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        send("lost")
        raise RuntimeError
    assert send("a") is not None
    with transaction.atomic():
        assert send("a") is None
        assert send("b") is not None  # the conflict left the transaction whole
    deliver()
    assert Message.objects.count() == 2 and len(receiver.got) == 2


def test_only_subscribed_types_and_the_own_organisation(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run
) -> None:
    endpoints.change(endpoint, event_types=["credit.added"])
    other = Organisation.objects.create(name="other")
    assert send("a") is None and send("b", kind="credit.added") is not None
    assert write(other, "credit.added", {}, key="b") is None
    deliver()
    assert [json.loads(one.body)["type"] for one in receiver.got] == ["credit.added"]
    with pytest.raises(ValueError):
        send("c", kind="no.such")


def test_failures_are_tried_again_over_three_days_and_then_no_more(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run, clock: Clock
) -> None:
    receiver.answer = answering(500, b"out of order")
    send("a")
    began = clock.now()
    waits: list[timedelta] = []
    while Delivery.objects.get().state == "pending":
        due = Delivery.objects.get().next_try_at
        if due > clock.now():
            waits.append(due - clock.now())
            deliver()  # not yet due: nothing happens
            assert len(receiver.got) == len(waits)
            clock.shift += due - clock.now()
        deliver()
        assert len(receiver.got) < 50
    assert Delivery.objects.get().state == "failed"
    assert timedelta(days=2, hours=23) < clock.now() - began < timedelta(days=3, hours=1)
    assert len(receiver.got) == Attempt.objects.count() == len(waits) + 1 >= 12
    seconds = [wait.total_seconds() for wait in waits]
    assert seconds[0] < 7 and all(a < b for a, b in pairwise(seconds[:8]))
    assert max(seconds) <= 6 * 3600 * 1.2 + 1
    assert len(set(receiver.ids)) == 1
    last = Attempt.objects.last()
    assert last is not None
    assert (last.status, last.error, last.excerpt) == (500, "It answered 500.", "out of order")


def test_receiver_that_comes_back_gets_what_waits(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run, clock: Clock
) -> None:
    receiver.answer = answering(503)
    send("a")
    deliver()
    assert Endpoint.objects.get().failing_since is not None
    receiver.answer = answering(204)
    clock.forward(minutes=1)
    deliver()
    row = Endpoint.objects.get()
    assert Delivery.objects.get().state == "delivered" and row.failing_since is None
    assert row.failures_in_a_row == 0 and len(set(receiver.ids)) == 1 and len(receiver.ids) == 2


def test_retry_after_is_heeded_up_to_an_hour(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run, clock: Clock
) -> None:
    receiver.answer = answering(429, Retry_After="600")
    send("a")
    deliver()
    wait = Delivery.objects.get().next_try_at - clock.now()
    assert timedelta(seconds=590) < wait <= timedelta(seconds=600)
    receiver.answer = answering(429, Retry_After="999999")
    clock.forward(seconds=601)
    deliver()
    wait = Delivery.objects.get().next_try_at - clock.now()
    assert timedelta(minutes=59) < wait <= timedelta(hours=1)


def test_gone_disables_at_once_with_a_notice(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run, administrator: Any, clock: Clock
) -> None:
    administrator.email = "admin@example.com"
    administrator.save()
    Membership.objects.create(user=administrator, organisation=endpoint.organisation, role=Role.ADMIN)
    receiver.answer = answering(410)
    send("a")
    deliver()
    row = Endpoint.objects.get()
    assert row.disabled_at is not None and "410" in row.disabled_reason
    assert Delivery.objects.get().state == "failed"
    assert AuditEntry.objects.get(action="webhook.disable").subject == receiver.url
    assert [one.to for one in mail.outbox] == [["admin@example.com"]] and "410" in mail.outbox[0].body
    send("b")
    clock.forward(hours=1)
    deliver()
    assert len(receiver.got) == 1
    with pytest.raises(endpoints.EndpointRefused, match="enable it first"):
        endpoints.test(row)


def test_three_days_of_failures_disable_and_a_single_message_does_not(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run, clock: Clock
) -> None:
    receiver.answer = answering(500)
    send("a")
    deliver()
    clock.forward(days=3, seconds=1)
    Delivery.objects.update(next_try_at=clock.now())
    deliver()
    assert Endpoint.objects.get().disabled_at is None  # two failures only
    for number in range(4):
        send(f"more {number}")
        deliver()
        clock.forward(seconds=1)
    row = Endpoint.objects.get()
    assert row.disabled_at is not None and "three days" in row.disabled_reason


def test_enabled_again_and_replayed_since(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run, clock: Clock
) -> None:
    send("before")
    deliver()
    clock.forward(minutes=10)
    since = clock.now()
    Message.objects.update(created_at=since - timedelta(minutes=5))
    endpoints.disable(endpoint, "by hand")
    send("missed")
    Message.objects.filter(key="missed").update(created_at=since + timedelta(seconds=1))
    clock.forward(minutes=10)
    deliver()
    assert len(receiver.got) == 1 and Delivery.objects.count() == 1
    row = Endpoint.objects.get()
    with pytest.raises(endpoints.EndpointRefused):
        retention.replay_since(row, since)
    endpoints.enable(row)
    row.refresh_from_db()
    assert retention.replay_since(row, since, failed_only=True) == 0
    assert retention.replay_since(row, since) == 1
    deliver()
    assert len(receiver.got) == 2 and len(set(receiver.ids)) == 2


def test_replay_of_one_message_has_the_same_id(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run
) -> None:
    send("a")
    deliver()
    retention.replay(Delivery.objects.select_related("endpoint").get())
    deliver()
    assert len(receiver.got) == 2 and len(set(receiver.ids)) == 1
    assert receiver.got[0].body == receiver.got[1].body
    assert Delivery.objects.get().state == "delivered" and Attempt.objects.count() == 2


def test_test_goes_to_one_endpoint_alone(
    endpoint: Any, receiver: Receiver, organisation: Any, deliver: Run
) -> None:
    endpoints.create(organisation, receiver.url + "/other")
    endpoints.change(endpoint, event_types=["credit.added"])
    endpoints.test(Endpoint.objects.get(pk=endpoint.pk))
    deliver()
    assert [(one.path, json.loads(one.body)["type"]) for one in receiver.got] == [("/hooks", "endpoint.test")]


def test_delivery_is_claimed_by_one_courier_alone(endpoint: Any, send: Any) -> None:
    send("a")
    pk = Delivery.objects.get().pk
    barrier = threading.Barrier(8)
    won: list[int] = []

    def courier() -> None:
        barrier.wait()
        fence = delivering.claim(pk)
        if fence is not None:
            won.append(fence)
        connection.close()

    threads = [threading.Thread(target=courier) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [1]


def test_claim_of_a_courier_that_died_runs_out(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run
) -> None:
    send("a")
    assert delivering.claim(Delivery.objects.get().pk) == 1
    deliver()
    assert receiver.got == []
    Delivery.objects.update(claimed_until=F("began_at") - timedelta(hours=1))
    deliver()
    assert len(receiver.got) == 1 and Delivery.objects.get().state == "delivered"


def test_dead_endpoints_do_not_hold_up_others(
    receiver: Receiver, organisation: Any, send: Any, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty receivers that hang, and forty messages for each: the healthy one has its own while they do."""
    over = threading.Event()
    with receiving() as dead:
        dead.answer = answering(500)
        configure(webhooks_allow=(receiver.address, dead.address))
        for number in range(20):
            endpoints.create(organisation, f"{dead.url}/{number}", event_types=["hit.served"])
        endpoints.create(organisation, receiver.url, event_types=["credit.added"])
        for number in range(40):
            send(f"dead {number}", kind="hit.served")
        one = delivering.Deliverer()
        one.round()
        one.wait(120)  # now they are known to fail
        assert Endpoint.objects.exclude(failing_since=None).count() >= 8
        monkeypatch.setattr(delivering, "TIMEOUT_S", 120.0)  # none is given up before it is over
        dead.answer = lambda handler: over.wait(120)
        Endpoint.objects.filter(url__startswith=dead.url).update(failing_since=F("created_at"))
        Delivery.objects.update(next_try_at=F("began_at"))
        one.round()
        send("alive", kind="credit.added")
        began = time.monotonic()
        while not receiver.got and time.monotonic() - began < 50:
            one.round()
            time.sleep(0.05)
        assert len(receiver.got) == 1
        over.set()
        one.wait(120)


def test_endpoint_that_vanishes_while_something_is_sent(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run
) -> None:
    send("a")

    def vanish(handler: BaseHTTPRequestHandler) -> None:
        Endpoint.objects.all().delete()
        connection.close()
        plain(handler, 200)

    receiver.answer = vanish
    deliver()
    assert Delivery.objects.count() == 0 and Attempt.objects.count() == 0


def test_old_messages_are_forgotten_but_not_those_on_their_way(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run, clock: Clock
) -> None:
    send("done")
    deliver()
    send("waiting")
    clock.forward(days=31)
    send("new")
    Message.objects.filter(key="new").update(created_at=clock.now())
    retention.forget_old()
    assert set(Message.objects.values_list("key", flat=True)) == {"waiting", "new"}


def test_one_round_brings_a_receiver_that_answers_all_that_waits(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "GO_ON_S", 60.0)
    for number in range(5 * delivering.PER_ENDPOINT):
        send(f"{number}")
    deliver()
    assert len(receiver.got) == len(set(receiver.ids)) == 5 * delivering.PER_ENDPOINT
    assert not Delivery.objects.exclude(state="delivered").exists()


def test_nothing_goes_on_to_a_receiver_that_is_disabled_meanwhile(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "GO_ON_S", 60.0)
    for number in range(5 * delivering.PER_ENDPOINT):
        send(f"{number}")

    def disable(handler: BaseHTTPRequestHandler) -> None:
        endpoints.disable(endpoint, "by hand")
        connection.close()
        plain(handler, 200)

    receiver.answer = disable
    deliver()
    assert len(receiver.got) <= delivering.PER_ENDPOINT


@pytest.mark.parametrize("hours", [-26, 26])
def test_a_wrong_clock_of_a_process_delays_nothing_and_signs_for_now(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """Written, refused and put off by processes whose clocks are a day off: due in seconds all the same."""
    now = timezone.now
    monkeypatch.setattr("django.utils.timezone.now", lambda: now() + timedelta(hours=hours))
    receiver.answer = answering(503)
    send("a")
    deliver()
    assert len(receiver.got) == 1
    Webhook(endpoint.secret).verify(receiver.got[0].body, receiver.got[0].headers)
    row = Delivery.objects.get()
    assert (row.state, row.tries) == ("pending", 1)
    for at in (row.began_at, row.next_try_at, row.message.created_at):
        assert abs(at - now()) < timedelta(minutes=2)


def test_a_chat_room_is_sent_a_sentence_with_a_link(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run
) -> None:
    endpoints.change(endpoint, form="slack")
    send("a", text="tvm <is> now & fastest", url="https://opatlas.example/operators/o1:5f/")
    send("b", kind="ledger.charged", amount_micros=7)
    deliver()
    told = {json.loads(got.body)["text"] for got in receiver.got}
    assert told == {
        "tvm &lt;is&gt; now &amp; fastest <https://opatlas.example/operators/o1:5f/|Open>",
        "Ledger Charged",
    }
    with pytest.raises(Exception, match="The form is one of standard, slack"):
        endpoints.change(endpoint, form="teams")


def test_deliveries_that_cannot_be_begun_do_not_take_the_places_of_others(
    endpoint: Any, send: Any, deliver: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = delivering.claim
    for number in range(delivering.PER_ENDPOINT + 1):
        send(str(number))
    bad = list(Delivery.objects.order_by("next_try_at", "pk").values_list("pk", flat=True))[:-1]

    def claim(pk: int) -> int | None:
        if pk in bad:
            raise KeyError("a bug")
        return real(pk)

    monkeypatch.setattr(delivering, "claim", claim)
    for _ in range(2):
        deliver()
    assert set(Delivery.objects.filter(state="delivered").values_list("message__key", flat=True)) == {
        str(delivering.PER_ENDPOINT)
    }


def test_a_message_that_cannot_be_made_has_had_a_try_and_the_others_arrive(
    endpoint: Any, receiver: Receiver, send: Any, deliver: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be tried again each minute for ever, and nobody would be told."""
    real = delivering.body_for

    def body_for(to: Endpoint, message: Message, key: str) -> str:
        if message.key == "bad":
            raise KeyError("/srv/a bug")
        return real(to, message, key)

    monkeypatch.setattr(delivering, "body_for", body_for)
    for key in ("first", "bad", "last"):
        send(key)
    deliver()
    states = dict(Delivery.objects.values_list("message__key", "state"))
    assert states == {"first": "delivered", "bad": "pending", "last": "delivered"}
    row = Delivery.objects.get(message__key="bad")
    assert row.tries == 1 and row.claimed_until is None and row.next_try_at > timezone.now()
    said = "The service failed at it (KeyError); who runs the service was told."
    assert Attempt.objects.get(delivery=row).error == said
    assert StepFailure.objects.get().step == "making a delivery"
