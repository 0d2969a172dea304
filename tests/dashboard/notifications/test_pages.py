"""The inbox, subscriptions and devices, as a browser without JavaScript meets them."""

import re

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from catalog.registry import default_organisation
from dashboard.notifications.find.gathering import gather
from dashboard.notifications.find.notify import notify_test
from dashboard.notifications.models import Notification, PushDevice, Subscription
from tests.dashboard.notifications.receivers import Browser

INBOX, SUBSCRIPTIONS = "/notifications/", "/notifications/subscriptions/"


@pytest.fixture
def client(world):
    client = Client()
    client.force_login(world.person)
    return client


def happen(world, route="halide"):
    world.change(None, world.implementation(route))
    gather()
    return Notification.objects.order_by("-pk")[0]


def test_an_empty_inbox_says_how_to_begin(client):
    page = client.get(INBOX).content.decode()
    assert "Nothing to tell yet" in page


def test_unread_ones_come_first_and_are_counted_on_every_page(world, client):
    world.watch()
    first, second = happen(world, "tvm"), happen(world, "halide")
    Notification.objects.filter(pk=second.pk).update(read_at=second.created_at)
    page = client.get(INBOX).content.decode()
    assert page.index(f'id="notification-{first.pk}"') < page.index(f'id="notification-{second.pk}"')
    assert (
        '<span class="count">1<span class="visually-hidden"> unread</span></span>'
        in client.get("/operators/").content.decode()
    )


def test_pages_of_the_inbox_follow_each_other(world, client, monkeypatch):
    """Unread ones, then read ones, each the newest first: on whichever page the one list ends."""
    monkeypatch.setattr("dashboard.web.paging.PAGE_SIZE", 2)
    world.watch()
    routes = ("eager", "onednn", "mkl", "openblas", "tvm", "halide", "xla")
    numbers = [happen(world, route).pk for route in routes]
    read = {numbers[1], numbers[2], numbers[6]}
    Notification.objects.filter(pk__in=read).update(read_at=timezone.now())
    pages = [client.get(f"{INBOX}?page={page}").content.decode() for page in (1, 2, 3, 4)]
    shown = [[int(pk) for pk in re.findall(r'id="notification-(\d+)"', page)] for page in pages]
    wanted = sorted(numbers, key=lambda pk: (pk in read, -pk))
    assert shown == [wanted[:2], wanted[2:4], wanted[4:6], wanted[6:]]
    assert "5–6 of 7 notifications" in pages[2]


def test_opening_one_reads_it_and_leads_to_what_it_is_about(world, client):
    world.watch()
    row = happen(world)
    answer = client.get(f"/notifications/{row.pk}/")
    assert (answer.status_code, answer["Location"]) == (302, row.path)
    assert client.get(row.path).status_code == 200
    row.refresh_from_db()
    assert row.read_at is not None


def test_one_or_all_can_be_marked_as_read(world, client):
    world.watch()
    rows = [happen(world, route) for route in ("eager", "tvm", "halide")]
    answer = client.post(
        "/notifications/read/", {"notification": rows[0].pk, "next": "/notifications/?show=unread"}
    )
    assert answer["Location"] == "/notifications/?show=unread"
    assert Notification.objects.filter(read_at=None).count() == 2
    client.post("/notifications/read/", {"all": "1", "next": "https://evil.example.com/"})
    assert Notification.objects.filter(read_at=None).count() == 0


def test_nobody_leaves_for_another_site(world, client):
    for target in (
        "https://evil.example.com/",
        "//evil.example.com/",
        "javascript:alert(1)",
        "/\\evil.example.com",
    ):
        assert client.post("/notifications/read/", {"all": "1", "next": target})["Location"] == INBOX


def test_filters_are_in_the_url_and_hold_for_the_export(world, client):
    world.watch()
    happen(world)
    world.hit()
    gather()
    page = client.get(f"{INBOX}?event=hit").content.decode()
    assert "served to job train" in page
    assert "first implementation" not in page
    rows = client.get(f"{INBOX}?event=hit&export=json&table=notifications").json()["rows"]
    assert [row["happening"] for row in rows] == ["hit"]
    assert client.get(f"{INBOX}?event=nonsense&show=nonsense&page=-3").status_code == 200


def test_new_ones_appear_and_are_spoken_without_a_reload(world, client):
    world.watch()
    happen(world, "tvm")
    page = client.get(INBOX)
    digest = page.content.decode().split('hx-vals=\'{"seen": "')[2].split('"')[0]
    same = client.get(f"{INBOX}?seen={digest}", headers={"HX-Request": "true"})
    assert same.status_code == 204
    newest = happen(world, "halide")
    answer = client.get(f"{INBOX}?seen={digest}", headers={"HX-Request": "true"}).content.decode()
    assert f'id="notification-{newest.pk}"' in answer
    assert f'hx-swap-oob="innerHTML:#notification-news">{newest.text}</p>' in answer


def test_the_badge_is_sent_only_when_it_changed(world, client):
    notify_test(world.watch())
    assert client.get("/notifications/unread/?seen=1").status_code == 204
    assert "1<span" in client.get("/notifications/unread/?seen=0").content.decode()


def test_somebody_elses_cannot_be_seen_opened_read_changed_or_ended(world, client):
    one = world.watch(world.stranger)
    row = notify_test(one)
    assert f"notification-{row.pk}" not in client.get(INBOX).content.decode()
    assert client.get(f"/notifications/{row.pk}/").status_code == 404
    client.post("/notifications/read/", {"notification": row.pk})
    client.post("/notifications/read/", {"all": "1"})
    row.refresh_from_db()
    assert row.read_at is None
    for path in ("", "end/", "test/"):
        assert client.post(f"{SUBSCRIPTIONS}{one.pk}/{path}").status_code == 404
    assert Subscription.objects.filter(pk=one.pk).exists()


@pytest.mark.parametrize("what", ["operator", "job", "model", "filter"])
def test_the_watch_form_of_each_page_works(world, client, what):
    world.factory.implement(world.operator)
    job = world.factory.job("train", [world.operator])
    model = world.factory.model("net", [world.operator])
    path = {
        "operator": reverse("operator", args=[world.operator.key]),
        "job": reverse("job", args=[job.pk]),
        "model": reverse("model", args=[model.pk]),
        "filter": "/operators/?op_type=MatMul&q=512",
    }[what]
    page = client.get(path).content.decode()
    assert 'action="/notifications/subscriptions/new/"' in page
    form = page.split('action="/notifications/subscriptions/new/"')[1].split("</form>")[0]
    fields = dict(part.split('" value="')[0:2] for part in form.split('type="hidden" name="')[1:])
    fields = {name: value.split('"')[0] for name, value in fields.items()}
    answer = client.post(
        "/notifications/subscriptions/new/", {**fields, "event": ["explored"], "channel": ["page"]}
    )
    assert answer.status_code == 302
    row = Subscription.objects.get()
    assert (row.subject, row.organisation, row.user) == (what, world.home, world.person)
    assert [one.value for one in row.happenings] == ["explored"]
    page = client.get(path).content.decode()
    assert "Watching" in page
    if what == "filter":
        assert row.filters == {"q": "512", "op_type": "MatMul"}


def test_watching_again_changes_how_and_makes_no_second_one(world, client):
    for events in (["hit"], ["withdrawn", "explored"]):
        client.post(
            "/notifications/subscriptions/new/",
            {"subject": "operator", "operator": world.operator.key, "event": events, "channel": ["page"]},
        )
    assert [one.value for one in Subscription.objects.get().happenings] == ["explored", "withdrawn"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "Say what to watch"),
        ({"subject": "operator", "operator": "o1:none"}, "No operator has this key."),
        ({"subject": "job", "job": "99"}, "You have no job 99."),
        ({"subject": "job", "job": "x" * 40}, "You have no job 0."),
        ({"subject": "filter", "method": "magic"}, "method is one of"),
        ({"subject": "filter", "q": "a\x00b"}, "q is one line"),
        ({"subject": "filter", "q": "matmul", "event": ["magic"]}, "Choose what to be told of"),
        ({"subject": "filter", "q": "matmul", "channel": []}, "Choose how to be told"),
        ({"subject": "filter", "q": "matmul", "digest": "yearly"}, "digest is one of"),
    ],
)
def test_what_cannot_be_watched_is_refused_in_one_sentence(client, given, said):
    form = {"event": ["hit"], "channel": ["page"], **given}
    page = client.post("/notifications/subscriptions/new/", form, follow=True).content.decode()
    assert said in page
    assert not Subscription.objects.exists()


def test_a_subscription_is_changed_tried_out_and_ended(world, client):
    row = world.watch()
    assert row.title in client.get(SUBSCRIPTIONS).content.decode()
    one = f"{SUBSCRIPTIONS}{row.pk}/"
    assert client.get(one).status_code == 200
    client.post(one, {"event": ["hit"], "channel": ["page", "email"], "digest": "daily"})
    row.refresh_from_db()
    assert (row.on_hit, row.on_explored, "email" in row.told_by, row.digest) == (True, False, True, "daily")
    client.post(f"{one}test/")
    assert Notification.objects.get().happening == "test"
    client.post(f"{one}end/")
    assert not Subscription.objects.exists()
    assert client.get(INBOX).status_code == 200


def test_mail_needs_an_address_and_the_page_takes_one(world, client):
    world.person.email = ""
    world.person.save()
    form = {"subject": "operator", "operator": world.operator.key, "event": ["hit"], "channel": ["email"]}
    assert (
        "no e-mail address"
        in client.post("/notifications/subscriptions/new/", form, follow=True).content.decode()
    )
    client.post("/notifications/address/", {"email": "no address"})
    world.person.refresh_from_db()
    assert world.person.email == ""
    client.post("/notifications/address/", {"email": "ada@lovelace.example"})
    client.post("/notifications/subscriptions/new/", form)
    assert "email" in Subscription.objects.get().told_by


def test_a_browser_subscribes_and_is_removed(world, client):
    offer = Browser().offer("https://updates.push.services.mozilla.com/wpush/v2/x")
    agent = "Mozilla/5.0 (Android 16; Mobile; rv:140.0) Gecko/140.0 Firefox/140.0"
    answer = client.post("/notifications/push/", offer, headers={"User-Agent": agent})
    assert (answer.status_code, answer.json()["name"]) == (201, "Firefox on Android")
    client.post("/notifications/push/", offer)
    row = PushDevice.objects.get()
    assert "Firefox on Android" not in client.get(SUBSCRIPTIONS).content.decode()  # the test client came last
    stranger = Client()
    stranger.force_login(world.stranger)
    assert stranger.post(f"/notifications/push/{row.pk}/forget/").status_code == 404
    client.post(f"/notifications/push/{row.pk}/forget/")
    assert not PushDevice.objects.exists()


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"endpoint": "http://push.example.com/x"}, "endpoint"),
        ({"endpoint": "https://10.0.0.1/x"}, "url"),
        ({"endpoint": "https://localhost/x"}, "url"),
        ({"endpoint": ""}, "url"),
        ({"p256dh": "AAAA"}, "p256dh"),
        ({"p256dh": "é"}, "p256dh"),
        ({"auth": "AAAA"}, "auth"),
    ],
)
def test_an_offer_that_nothing_can_be_sent_to_is_refused(client, changes, where):
    offer = Browser().offer("https://push.example.com/x") | changes
    answer = client.post("/notifications/push/", offer)
    assert (answer.status_code, answer.json()["where"]) == (400, where)
    assert not PushDevice.objects.exists()


def test_the_service_worker_is_served_from_the_root_without_a_login(db):
    answer = Client().get("/sw.js")
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/javascript")
    assert (answer["Service-Worker-Allowed"], answer["Cache-Control"]) == ("/", "no-cache")
    assert b"showNotification" in answer.content


def test_the_public_key_is_at_an_address(client):
    key = client.get("/notifications/push/key/").json()["public_key"]
    assert len(key) == 87  # 65 bytes, base64url
    assert key in client.get(SUBSCRIPTIONS).content.decode()


def test_pages_take_no_query_for_each_row(world, client, django_assert_max_num_queries):
    def fill(count):
        for number in range(count):
            operator = world.factory.operator("Relu", f"Relu {Notification.objects.count()} {number} float32")
            from dashboard.notifications.write import subjects

            notify_test(world.watch(about=subjects.operator(operator.key)))

    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    def measure(path):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(path).status_code == 200
        return len(queries)

    fill(2)
    client.get(INBOX)
    few = [measure(path) for path in (INBOX, SUBSCRIPTIONS)]
    fill(20)
    assert [measure(path) for path in (INBOX, SUBSCRIPTIONS)] == few


def test_who_watches_the_whole_service_has_no_organisation(db, django_user_model):
    root = django_user_model.objects.create_superuser("root", "r@example.com", "x")
    default_organisation()
    client = Client()
    client.force_login(root)
    client.post(
        "/notifications/subscriptions/new/", {"subject": "filter", "event": ["hit"], "channel": ["page"]}
    )
    row = Subscription.objects.get()
    assert (row.organisation, row.title) == (None, "Every operator")
