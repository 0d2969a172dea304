"""Rates by key and address, and how often a password may be tried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import caches
from django.test import Client

from catalog.models import AuditEntry
from catalog.people.keys import create_api_key
from dashboard.conf import parse_rate
from dashboard.operation import limits

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    limits._window.cache_clear()
    for cache in caches.all(initialized_only=False):
        cache.clear()
    yield
    limits._window.cache_clear()
    for cache in caches.all(initialized_only=False):
        cache.clear()


def rates(configure: Any, **given: str) -> None:
    configure(**{f"rate_{name}": parse_rate(rate) for name, rate in given.items()})


def test_window_counts_by_key_and_forgets() -> None:
    now = [0.0]
    window = limits.RateWindow(2, 60, lambda: now[0])
    assert [window.take("a"), window.take("a"), window.take("b")] == [None, None, None]
    now[0] = 20
    assert window.take("a") == 40
    now[0] = 60
    assert window.take("a") is None and len(window._counts) == 1


@pytest.mark.parametrize("text", ["", "600", "600/day", "0/min", "-1/s", "x/s", "1.5/s"])
def test_rates_that_are_none_are_said(text: str) -> None:
    with pytest.raises(ValueError, match="A rate is like"):
        parse_rate(text)


def test_key_that_asks_too_often(configure: Any, api: Any, api_with: Any, make_key: Any) -> None:
    rates(configure, api="2/min")
    assert [api.get("operators/").status_code for _ in range(2)] == [200, 200]
    refused = api.get("operators/")
    assert refused.status_code == 429 and 1 <= int(refused["Retry-After"]) <= 60
    assert "may make 2 in 60 s" in refused.json()["error"] and refused.json()["request_id"]
    assert api_with(make_key("lookup")).get("operators/").status_code == 200  # another key has its own rate
    assert api.post("lookup", {}).status_code == 400  # and lookups have theirs


def test_lookups_have_a_rate_of_their_own(configure: Any, api: Any) -> None:
    rates(configure, lookup="1/min")
    assert api.post("lookup", {}).status_code == 400
    refused = api.post("lookup", {})
    assert refused.status_code == 429 and "Too many lookups" in refused.json()["error"]
    assert api.get("operators/").status_code == 200


def test_address_that_asks_too_often(configure: Any) -> None:
    rates(configure, address="2/min")
    one, other = Client(REMOTE_ADDR="10.0.0.1"), Client(REMOTE_ADDR="10.0.0.2")
    assert [one.get("/login/").status_code for _ in range(3)] == [200, 200, 429]
    assert one.get("/api/v1/operators/").json()["error"].startswith("Too many requests from your address")
    assert one.get("/healthz").status_code == 200  # supervisors are never refused
    assert other.get("/login/").status_code == 200


def test_refused_keys_are_counted_and_good_ones_go_on(configure: Any, api: Any, api_with: Any) -> None:
    rates(configure, refused="2/min")
    stranger = api_with("opk_unknown_key")
    assert [stranger.get("operators/").status_code for _ in range(3)] == [401, 401, 429]
    assert api.get("operators/").status_code == 200  # from the same address


def test_forwarded_addresses_are_believed_only_from_known_proxies(configure: Any) -> None:
    rates(configure, address="1/min")
    client = Client(REMOTE_ADDR="10.0.0.1")
    assert client.get("/login/", headers={"X-Forwarded-For": "1.1.1.1"}).status_code == 200
    assert client.get("/login/", headers={"X-Forwarded-For": "2.2.2.2"}).status_code == 429
    configure(proxies=1, proxy_header="X-Forwarded-For")
    for _ in range(2):  # what the client itself wrote stands further left
        answer = client.get("/login/", headers={"X-Forwarded-For": "9.9.9.9, 3.3.3.3"})
    assert answer.status_code == 429
    assert client.get("/login/", headers={"X-Forwarded-For": "9.9.9.9, 4.4.4.4"}).status_code == 200


def test_a_keys_networks_are_those_of_its_user_behind_known_proxies(
    configure: Any, organisation: Any
) -> None:
    _, text = create_api_key(organisation, "job", ["lookup"], addresses=["192.0.2.0/24"])

    def asked(address: str, forwarded: str) -> int:
        headers = {"Authorization": f"Bearer {text}", "X-Forwarded-For": forwarded}
        return Client(REMOTE_ADDR=address).get("/api/v1/operators/", headers=headers).status_code

    # Without proxies nobody is believed.
    assert (asked("192.0.2.9", "10.0.0.1"), asked("10.0.0.1", "192.0.2.9")) == (200, 401)
    configure(proxies=1, proxy_header="X-Forwarded-For")
    assert asked("10.0.0.1", "192.0.2.9") == 200
    assert asked("192.0.2.9", "10.0.0.1") == 401  # the proxy's own address is nobody's
    assert asked("10.0.0.1", "192.0.2.9, 203.0.113.7") == 401  # what the client wrote itself
    configure(proxies=2, proxy_header="X-Forwarded-For")
    assert asked("10.0.0.1", "203.0.113.1, 192.0.2.9, 10.0.0.2") == 200
    assert asked("10.0.0.1", "192.0.2.9") == 401  # it did not come by both


def test_who_did_it_is_the_client_behind_known_proxies(configure: Any) -> None:
    configure(proxies=1, proxy_header="X-Forwarded-For")
    user = User.objects.create_user("ada", password="right")
    client = Client(REMOTE_ADDR="10.0.0.1", headers={"X-Forwarded-For": "9.9.9.9, 192.0.2.9"})
    client.post("/login/", {"username": "ada", "password": "right"})
    assert AuditEntry.objects.get(action="login").address == "192.0.2.9"
    assert user.sign_ins.get().address == "192.0.2.9"  # type: ignore[attr-defined]


def log_in(name: str, password: str, address: str = "10.0.0.1", path: str = "/login/") -> Any:
    client = Client(REMOTE_ADDR=address)
    return client.post(path, {"username": name, "password": password})


def test_wrong_passwords_close_the_door_for_a_while(configure: Any) -> None:
    configure(login_tries=3)
    User.objects.create_user("ada", password="right")
    assert [log_in("ada", "wrong").status_code for _ in range(3)] == [200] * 3
    refused = log_in("ada", "right")
    assert refused.status_code == 429 and 800 < int(refused["Retry-After"]) <= 900
    assert "You have tried to log in too often. Try again in 15 minutes." in refused.content.decode()
    assert log_in("ADA ", "right").status_code == 429  # the same account
    assert log_in("ada", "right", path="/admin/login/").status_code == 429  # and no way round
    assert log_in("ada", "right", address="10.0.0.2").status_code == 302  # nobody locks her out elsewhere


def test_success_starts_afresh(configure: Any) -> None:
    configure(login_tries=3)
    User.objects.create_user("ada", password="right")
    for _ in range(3):
        assert [log_in("ada", "wrong").status_code for _ in range(2)] == [200, 200]
        assert log_in("ada", "right").status_code == 302


def test_many_accounts_from_one_address(configure: Any) -> None:
    configure(login_tries=1)
    answers = [log_in(f"user {number}", "guess").status_code for number in range(7)]
    assert answers == [200] * 6 + [429]
    assert log_in("anybody", "guess", address="10.0.0.2").status_code == 200


def test_one_account_from_many_addresses(configure: Any) -> None:
    configure(login_tries=1)
    answers = [log_in("ada", "guess", address=f"10.0.1.{number}").status_code for number in range(21)]
    assert answers == [200] * 20 + [429]


def test_password_page_is_counted(configure: Any, pages: Client) -> None:
    configure(login_tries=1)
    given = {"old_password": "guess", "new_password1": "x", "new_password2": "y"}
    answers = [pages.post("/password/", given).status_code for _ in range(4)]
    assert answers[3] == 429 and 429 not in answers[:3]
    assert pages.get("/password/").status_code == 200


def test_strange_names_are_counted_too(configure: Any) -> None:
    configure(login_tries=1)
    for name in ("", "x" * 10_000, "\ud800", "a b\tc", "😀"):
        limits._window.cache_clear()
        log_in(name.encode("utf-8", "replace").decode(), "x")


def test_cache_that_is_away_leaves_the_door_guarded(settings: Any, configure: Any) -> None:
    configure(login_tries=2)
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache",
                    "LOCATION": "redis://127.0.0.1:1/0"},
        "local": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "spare"},
    }  # fmt: skip
    assert [log_in("ada", "wrong").status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.services
def test_processes_share_the_count_by_redis(settings: Any, configure: Any, private_redis: Any) -> None:
    configure(login_tries=2)
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache",
                    "LOCATION": private_redis.new_url(), "KEY_PREFIX": "opatlas"},
        "local": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "unused"},
    }  # fmt: skip
    assert [log_in("ada", "wrong").status_code for _ in range(3)] == [200, 200, 429]
    from dashboard.operation.attempts import _key, rules

    assert caches["default"].get(_key(rules()["both"], "ada 10.0.0.1")) == 2


def test_429_is_documented_everywhere() -> None:
    schema = Client().get("/api/v1/schema/?format=json").json()
    operations = [
        (path, method, operation)
        for path, item in schema["paths"].items()
        for method, operation in item.items()
        if operation.get("security")
    ]
    assert len(operations) > 30
    assert [f"{method} {path}" for path, method, one in operations if "429" not in one["responses"]] == []
