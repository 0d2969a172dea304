"""What leaves the service arrives: in a real mailbox, at a real push service, in the webhooks' outbox."""

import json
import re
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.core import mail as django_mail
from django.test import Client
from django.utils import timezone
from py_vapid import Vapid02
from standardwebhooks.webhooks import Webhook

from catalog.models import Membership, Organisation, StepFailure
from dashboard.notifications import delivering
from dashboard.notifications.channels.outcome import RETRY_S
from dashboard.notifications.channels.push import devices, vapid
from dashboard.notifications.channels.push import sending as push
from dashboard.notifications.delivering import deliver
from dashboard.notifications.find.gathering import gather
from dashboard.notifications.find.notify import notify_test
from dashboard.notifications.models import (
    Notification,
    NotificationDelivery,
    NotificationMessage,
    PushDevice,
    Subscription,
)
from dashboard.notifications.subscribing import end
from dashboard.notifications.write import letters
from dashboard.notifications.write.bundling import bundle
from dashboard.webhooks import delivering as webhooks_delivering
from dashboard.webhooks import endpoints
from dashboard.webhooks.models import Endpoint
from dashboard.webhooks.models import Message as WebhookMessage
from opatlas.conf import Misconfigured
from tests.dashboard.notifications.receivers import Browser, mail_server, push_service


@pytest.fixture
def mailbox(settings, configure):
    with mail_server() as (box, port):
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_TIMEOUT = "127.0.0.1", port, 5
        settings.EMAIL_HOST_USER = settings.EMAIL_HOST_PASSWORD = ""
        settings.EMAIL_USE_TLS = False
        configure(url="https://map.example.com")
        yield box


@pytest.fixture
def service(configure):
    with push_service() as server:
        configure(webhooks_allow=(f"127.0.0.1:{server.server_port}",))
        yield server


def happen(world, route="halide", ratio=2.1):
    world.change(None, world.implementation(route, ratio))
    gather()


def due(when=None):
    """As if the time had come."""
    NotificationDelivery.objects.update(due_at=when or timezone.now() - timedelta(seconds=1))
    NotificationMessage.objects.filter(state="waiting").update(due_at=timezone.now() - timedelta(seconds=1))


def test_a_mail_arrives_with_a_sentence_an_address_and_a_way_out(world, mailbox):
    world.watch(channels=("email",))
    happen(world)
    assert deliver() == 1
    (mail,) = mailbox.mails
    assert mailbox.recipients == [["ada@example.com"]]
    sentence = (
        "MatMul 512 by 512, 512 by 512 float32: halide is its first implementation, 2.1 times the default "
        "(PyTorch eager)."
    )
    assert mail["Subject"].strip() == sentence
    text = mail.get_content()
    assert sentence in text
    assert f"https://map.example.com/operators/{world.operator.key}/" in text
    assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert re.fullmatch(
        r"<https://map\.example\.com/notifications/unsubscribe/\S+/>", mail["List-Unsubscribe"].strip()
    )
    assert mail.get_content_type() == "text/plain"


def test_a_digest_collects_what_was_told_into_one_mail_when_its_time_comes(world, mailbox):
    world.watch(channels=("email",), digest="daily")
    for route in ("eager", "tvm", "halide"):
        happen(world, route)
    world.hit(7)
    gather()
    assert deliver() == 0
    assert mailbox.mails == []
    waits = NotificationDelivery.objects.values_list("due_at", flat=True)
    assert len(waits) == 4
    assert all(0 < (at - timezone.now()).total_seconds() <= 24 * 3600 for at in waits)
    assert all(at.hour == 7 and at.minute == 0 for at in waits)
    due()
    assert deliver() == 1
    (mail,) = mailbox.mails
    assert mail["Subject"].strip().startswith("Opatlas: 4 messages today.")
    text = mail.get_content().replace("\n", " ")
    assert all(f"{route} is" in text for route in ("eager", "tvm", "halide"))
    assert "7 times" in text
    assert deliver() == 0


def test_everything_of_one_moment_is_one_mail(world, mailbox):
    world.watch(channels=("email",))
    world.change(None, world.implementation("tvm"))
    world.change(None, world.implementation("halide"))
    gather()
    deliver()
    assert len(mailbox.mails) == 1


def test_who_may_no_longer_know_gets_no_digest(world, mailbox):
    world.watch(channels=("email",), digest="daily")
    world.hit()
    gather()
    Membership.objects.filter(user=world.person).delete()
    due()
    deliver()
    assert mailbox.mails == []
    assert NotificationMessage.objects.get().state == "dropped"


def test_a_mail_server_that_is_away_is_tried_again_later(world, settings):
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_TIMEOUT = "127.0.0.1", 9, 2
    world.watch(channels=("email",))
    happen(world)
    for number, wait_s in enumerate(RETRY_S, start=1):
        before = timezone.now()
        assert deliver() == 0
        took_s = (timezone.now() - before).total_seconds()
        message = NotificationMessage.objects.get()
        assert (message.state, message.tries) == ("waiting", number)
        assert message.error.startswith("The mail server is away:")
        assert -0.001 <= (message.due_at - before).total_seconds() - wait_s <= took_s  # it counts ms
        assert deliver() == 0  # not yet
        due()
    deliver()
    message = NotificationMessage.objects.get()
    assert (message.state, message.tries) == ("failed", len(RETRY_S) + 1)


def test_an_address_that_is_refused_is_not_tried_again_and_others_get_their_mail(world, mailbox):
    other = world.member("grace", world.home)
    for user in (world.person, other):
        world.watch(user, channels=("email",))
    mailbox.refuses = {"ada@example.com"}
    happen(world)
    assert deliver() == 1
    assert mailbox.recipients == [["grace@example.com"]]
    refused = NotificationMessage.objects.get(user=world.person)
    assert (refused.state, refused.error) == ("failed", "The mail server refused the address: 550.")


def test_a_dead_channel_holds_up_no_other(world, settings, service):
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_TIMEOUT = "127.0.0.1", 9, 2
    browser = Browser()
    devices.remember(world.person, devices.PushOffer(**browser.offer(f"{service.origin}/alive")))
    world.watch(channels=("email", "push"))
    happen(world)
    assert deliver() == 1
    assert len(service.posted) == 1
    assert dict(NotificationMessage.objects.values_list("channel", "state")) == {
        "email": "waiting",
        "push": "sent",
    }


def test_a_push_can_be_read_by_its_browser_alone_and_names_the_service(world, service, configure):
    configure(url="https://map.example.com")
    browser, another = Browser(), Browser()
    devices.remember(world.person, devices.PushOffer(**browser.offer(f"{service.origin}/one")))
    world.watch(channels=("push",))
    happen(world)
    assert deliver() == 1
    ((path, headers, body),) = service.posted
    assert path == "/one"
    said = json.loads(browser.read(body))
    assert said["body"].endswith("halide is its first implementation, 2.1 times the default (PyTorch eager).")
    assert said["url"].startswith(f"/operators/{world.operator.key}/")
    assert b"halide" not in body
    with pytest.raises(Exception):  # noqa: B017 - http_ece wraps whatever its cipher raises
        another.read(body)
    assert headers["content-encoding"] == "aes128gcm"
    assert headers["ttl"] == "86400"
    assert Vapid02.verify(headers["authorization"])
    assert vapid.public_key() in headers["authorization"]


def test_a_device_that_is_gone_is_removed_and_the_others_get_theirs(world, service):
    browsers = {name: Browser() for name in ("gone", "lost", "here")}
    for name, browser in browsers.items():
        devices.remember(world.person, devices.PushOffer(**browser.offer(f"{service.origin}/{name}")))
    service.answers = {"/gone": 410, "/lost": 404}
    world.watch(channels=("push",))
    happen(world)
    assert deliver() == 1
    assert [row.endpoint for row in PushDevice.objects.all()] == [f"{service.origin}/here"]
    assert PushDevice.objects.get().last_sent_at is not None


def test_a_push_that_failed_is_tried_again_where_it_has_not_arrived(world, service):
    for name in ("well", "ill"):
        devices.remember(world.person, devices.PushOffer(**Browser().offer(f"{service.origin}/{name}")))
    service.answers = {"/ill": 503}
    world.watch(channels=("push",))
    happen(world)
    assert deliver() == 0
    assert NotificationMessage.objects.get().error == "It answered 503."
    service.answers = {}
    due()
    assert deliver() == 1
    assert sorted(path for path, _, _ in service.posted) == ["/ill", "/ill", "/well"]


def test_a_push_service_inside_is_never_sent_to(world, configure):
    configure(webhooks_allow=())
    offer = Browser().offer("https://127.0.0.1/push")
    with pytest.raises(Exception, match="not a public one"):
        devices.remember(world.person, devices.PushOffer(**offer))
    with push_service() as server:
        values = {**Browser().offer(f"{server.origin}/x"), "user": world.person, "endpoint_sha256": "0" * 64}
        PushDevice.objects.create(**values)
        world.watch(channels=("push",))
        happen(world)
        assert deliver() == 0
        assert server.posted == []
    assert "not" in NotificationMessage.objects.get().error


def test_without_a_device_a_push_fails_with_a_sentence(world):
    world.watch(channels=("push",))
    happen(world)
    assert deliver() == 0
    message = NotificationMessage.objects.get()
    assert (message.state, message.error) == ("failed", "No phone or browser takes messages yet.")


def test_a_webhook_goes_into_the_outbox_once_for_an_organisation(world):
    Endpoint.objects.create(organisation=world.home, url="https://hooks.example.com/x")
    for user in (world.person, world.member("grace", world.home)):
        world.watch(user, channels=("webhook",))
    happen(world)
    assert deliver() == 2
    sent = WebhookMessage.objects.get()
    assert (sent.organisation, sent.event_type) == (world.home, "best.changed")
    assert sent.data["operator"] == world.operator.key
    assert sent.data["facts"]["ratio"] == 2.1
    assert sent.data["text"].endswith("2.1 times the default (PyTorch eager).")


@pytest.mark.django_db(transaction=True)
def test_a_webhook_arrives_signed(world, configure):
    """All the way: gathered, handed over, sent by the webhooks' own chore."""
    with push_service() as receiver:
        configure(webhooks_allow=(f"127.0.0.1:{receiver.server_port}",))
        _, secret = endpoints.create(world.home, f"{receiver.origin}/hook")
        world.watch(channels=("webhook",))
        happen(world)
        deliver()
        webhooks_delivering.deliver()
        webhooks_delivering._deliverer().wait(60)
        ((path, headers, body),) = receiver.posted
    assert path == "/hook"
    said = Webhook(secret).verify(body, headers)
    assert said["type"] == "best.changed"
    assert said["data"]["text"].endswith(
        "halide is its first implementation, 2.1 times the default (PyTorch eager)."
    )


def test_without_an_endpoint_a_webhook_fails_with_a_sentence(world):
    world.watch(channels=("webhook",))
    happen(world)
    deliver()
    assert NotificationMessage.objects.get().error == "The organisation has no webhook endpoint for this."


def test_a_crash_between_gathering_and_delivering_loses_nothing(world, mailbox, monkeypatch):
    world.watch(channels=("email",))
    happen(world)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(delivering, "_outcomes", _killed)  # claimed, not sent
        deliver()
    assert NotificationMessage.objects.get().claimed_until is not None
    assert deliver() == 0  # it is still the other courier's
    NotificationMessage.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    assert deliver() == 1
    assert len(mailbox.mails) == 1


def test_a_crash_after_sending_sends_the_same_mail_under_the_same_name(world, mailbox, monkeypatch):
    world.watch(channels=("email",))
    happen(world)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(delivering, "_end", _killed)
        deliver()
    NotificationMessage.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    deliver()
    first, second = mailbox.mails
    assert first["Message-ID"] == second["Message-ID"]
    assert NotificationMessage.objects.get().state == "sent"


def test_a_webhook_is_handed_over_once_whatever_crashes(world, monkeypatch):
    Endpoint.objects.create(organisation=world.home, url="https://hooks.example.com/x")
    world.watch(channels=("webhook",))
    happen(world)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(delivering, "_end", _killed)  # after the outbox was written, in its transaction
        deliver()
    assert not WebhookMessage.objects.exists()
    NotificationMessage.objects.update(claimed_until=None)
    assert deliver() == 1
    assert WebhookMessage.objects.count() == 1


def _killed(*args, **kwargs):
    raise KeyboardInterrupt


def test_two_couriers_bundle_and_claim_each_message_once(world):
    world.watch(channels=("email", "push"))
    happen(world)
    now = timezone.now()
    assert bundle(now) == 2
    assert bundle(now) == 0
    first = delivering._claim("email", now)
    assert len(first) == 1
    assert delivering._claim("email", now) == []


def test_what_is_unsubscribed_before_it_leaves_does_not_leave(world, mailbox):
    one = world.watch(channels=("email",), digest="hourly")
    happen(world)
    bundle(timezone.now() + timedelta(hours=2))
    Subscription.objects.filter(pk=one.pk).update(told_by=["page"])
    due()
    deliver()
    assert mailbox.mails == []


def test_an_ended_subscription_leaves_nothing_waiting(world):
    one = world.watch(channels=("page", "email"), digest="daily")
    happen(world)
    end(one)
    assert not NotificationDelivery.objects.exists()
    assert Notification.objects.get().subscription is None  # the inbox keeps what was told


def test_a_test_message_goes_by_every_channel_at_once(world, mailbox, service):
    devices.remember(world.person, devices.PushOffer(**Browser().offer(f"{service.origin}/one")))
    one = world.watch(channels=("page", "email", "push"), digest="daily")
    notify_test(one)
    assert deliver() == 2
    assert mailbox.mails[0]["Subject"].strip().startswith("A test for MatMul")
    assert len(service.posted) == 1


def test_a_round_ends_in_time_and_leaves_the_rest_untried(world, service):
    devices.remember(world.person, devices.PushOffer(**Browser().offer(f"{service.origin}/one")))
    world.watch(channels=("push",))
    happen(world)
    assert deliver(budget_s=-1) == 0
    message = NotificationMessage.objects.get()
    assert (message.state, message.tries, message.claimed_until) == ("waiting", 0, None)
    began = time.monotonic()
    assert deliver() == 1
    assert time.monotonic() - began < push.TIMEOUT_S


def test_the_service_has_one_key_that_only_it_can_read(configure, tmp_path):
    configure(home=tmp_path)
    first = vapid.public_key()
    file = Path(tmp_path) / vapid.FILE
    assert file.stat().st_mode & 0o777 == 0o600
    vapid._key.cache_clear()
    assert vapid.public_key() == first
    assert list(tmp_path.iterdir()) == [file]


def test_old_messages_are_forgotten(world, mailbox):
    world.watch(channels=("email",), events=("best_changed",))
    happen(world)
    deliver()
    long_ago = timezone.now() - timedelta(days=91)
    Notification.objects.update(created_at=long_ago)
    NotificationMessage.objects.update(ended_at=long_ago)
    delivering.forget(timezone.now())
    assert not NotificationMessage.objects.exists()
    assert not Notification.objects.exists()


def test_a_host_without_an_organisation_uses_the_hosts_webhooks(world, django_user_model):
    host = Organisation.objects.filter(host=True).first() or Organisation.objects.create(name="us", host=True)
    Endpoint.objects.create(organisation=host, url="https://hooks.example.com/x")
    root = django_user_model.objects.create_superuser("root", "root@example.com", "x")
    world.watch(root, channels=("webhook",))
    happen(world)
    assert deliver() == 1
    assert WebhookMessage.objects.get().organisation == host


def _link(mail):
    return re.search(r"<https://map\.example\.com(/\S+)>", mail["List-Unsubscribe"])[1]


def test_one_click_ends_the_mails_of_that_subscription_without_a_login(world, mailbox):
    one = world.watch(channels=("page", "email"))
    other = world.watch(about=_job(world), channels=("email",))
    happen(world)
    deliver()
    link = _link(mailbox.mails[0])
    client = Client(enforce_csrf_checks=True)
    page = client.get(link)
    assert page.status_code == 200
    assert b"End these mails?" in page.content
    one.refresh_from_db()
    assert "email" in one.told_by  # looking ends nothing
    answer = client.post(link, "List-Unsubscribe=One-Click", content_type="application/x-www-form-urlencoded")
    assert answer.status_code == 200
    one.refresh_from_db()
    other.refresh_from_db()
    assert (one.told_by, "email" in other.told_by) == (["page"], True)
    happen(world, "tvm")
    deliver()
    assert len(mailbox.mails) == 1
    assert client.post(link, {"all": "1"}).status_code == 200
    other.refresh_from_db()
    assert "email" not in other.told_by


def _job(world):
    from catalog.viewing import viewer_of
    from dashboard.notifications.write import subjects

    return subjects.job(viewer_of(world.person), world.job("quiet").pk)


@pytest.mark.django_db
def test_a_link_that_is_not_ours_does_nothing():
    answer = Client().post("/notifications/unsubscribe/forged:token/")
    assert answer.status_code == 404
    assert b"This link does not work" in answer.content


def test_without_a_mail_server_mails_are_kept_as_files(tmp_path, settings):
    from dashboard.project.mailing import mail_settings

    for name, value in mail_settings("", tmp_path / "mail").items():
        setattr(settings, name, value)
    django_mail.send_mail("subject", "kept", None, ["a@example.com"])
    (file,) = (tmp_path / "mail").iterdir()
    assert "kept" in file.read_text()


def test_a_mail_servers_url_is_taken_apart(tmp_path):
    from dashboard.project.mailing import mail_settings

    found = mail_settings("submission://me:p%40ss@mail.example.com", tmp_path)
    assert (found["EMAIL_HOST"], found["EMAIL_PORT"], found["EMAIL_USE_TLS"]) == (
        "mail.example.com",
        587,
        True,
    )
    assert (found["EMAIL_HOST_PASSWORD"], found["EMAIL_TIMEOUT"]) == ("p@ss", 10)
    with pytest.raises(Misconfigured, match="begins with one of"):
        mail_settings("ftp://mail", tmp_path)


def test_a_message_that_cannot_be_written_has_had_a_try_and_the_others_arrive(world, mailbox, monkeypatch):
    people = [world.person, *(world.member(name, world.home) for name in ("bob", "carol"))]
    for person in people:
        world.watch(person, channels=("email",))
    happen(world)
    real = letters._letter

    def breaks(message, rows, welcome):
        if message.user == people[1]:
            raise KeyError("said")
        return real(message, rows, welcome)

    monkeypatch.setattr(letters, "_letter", breaks)
    assert deliver() == 2
    assert sorted(mailbox.recipients) == [["ada@example.com"], ["carol@example.com"]]
    row = NotificationMessage.objects.get(user=people[1])
    assert (row.state, row.tries, row.claimed_until) == ("waiting", 1, None)
    assert row.error.startswith("The service failed at it (KeyError)")
    assert StepFailure.objects.get().row == row.pk
