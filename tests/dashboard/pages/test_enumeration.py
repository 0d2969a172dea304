"""Nobody learns from an answer, or from how long it took, whether an account is there."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth import hashers
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

pytestmark = pytest.mark.django_db
STRONG = "a-long-walk-in-winter"
NAMES = ("xx-known", "xx-off", "xx-without", "xx-unknown")
_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="[^"]+"')


class Counting(hashers.PBKDF2PasswordHasher):
    """What takes the time of a login: counted, since times under load tell nothing."""

    algorithm = "counting"
    iterations = 1
    hashed = 0

    def encode(self, *args: Any, **options: Any) -> str:
        type(self).hashed += 1
        return super().encode(*args, **options)


@pytest.fixture(autouse=True)
def accounts(settings: Any) -> None:
    settings.PASSWORD_HASHERS = [f"{__name__}.Counting"]
    User.objects.create_user("xx-known", "xx-known@example.org", STRONG)
    User.objects.create_user("xx-off", "xx-off@example.org", STRONG, is_active=False)
    User.objects.create_user("xx-without", "xx-without@example.org")  # no password that could be right


def seen(path: str, body: dict[str, str], name: str) -> tuple[Any, ...]:
    """Status, text without the name that was sent, hashes and statements of one try."""
    client, before = Client(), Counting.hashed
    with CaptureQueriesContext(connection) as queries:
        answer = client.post(path, body)
    reads = [one["sql"].split()[0] for one in queries if one["sql"].startswith("SELECT")]
    text = _TOKEN.sub("", answer.content.decode()).replace(name, "")
    return answer.status_code, answer.get("Location"), text, Counting.hashed - before, len(reads)


@pytest.mark.parametrize("path", ["/login/", "/admin/login/"])
def test_a_login_that_fails_is_the_same_for_every_name(path: str) -> None:
    tries = {seen(path, {"username": name, "password": "wrong"}, name)[:4] for name in NAMES}
    ((status, _, text, hashed),) = tries
    assert (status, hashed) == (200, 1) and "correct" in text


def test_a_right_password_of_an_account_that_is_off_tells_nothing() -> None:
    off = seen("/login/", {"username": "xx-off", "password": STRONG}, "xx-off")
    assert off[:4] == seen("/login/", {"username": "xx-unknown", "password": STRONG}, "xx-unknown")[:4]


def test_a_forgotten_password_is_the_same_for_every_address(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr("dashboard.pages.people.forgotten.Thread.start", lambda self: begun.append("mail"))
    tries = {seen("/forgotten/", {"email": f"{name}@example.org"}, name) for name in NAMES}
    assert len(tries) == 1 and begun == ["mail"]  # only one of them is sent any, beside the request
