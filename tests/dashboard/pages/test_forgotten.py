"""A forgotten password: the link by mail, and what it can and cannot do."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from catalog.models import AuditEntry

pytestmark = pytest.mark.django_db
NEW = "a long walk by the sea"


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada", "ada@example.org", "the old one of ada")


def ask(email: str, **headers: str) -> Any:
    return Client(headers=headers).post("/forgotten/", {"email": email}, follow=True)


def link() -> str:
    """The path that the mail leads to: it is sent beside the request."""
    deadline = time.monotonic() + 60
    while not mail.outbox:
        assert time.monotonic() < deadline, "no mail"
        time.sleep(0.01)
    found = re.search(r"^(\S+)(/forgotten/\S+/\S+/)$", str(mail.outbox[-1].body), re.MULTILINE)
    assert found, mail.outbox[-1].body
    assert found[1] == "https://opatlas.example.org"
    return found[2]


@pytest.fixture(autouse=True)
def own_address(configure: Any) -> None:
    configure(url="https://opatlas.example.org")


def test_a_link_by_mail_gives_a_new_password_once(ada: User) -> None:
    before = Client()
    assert before.login(username="ada", password="the old one of ada")
    assert ada.sign_ins.count() == 1  # type: ignore[attr-defined]
    assert b"on its way" in ask("ADA@example.org", host="evil.example.org").content
    path = link()
    assert mail.outbox[0].to == ["ada@example.org"] and "ada" in str(mail.outbox[0].body)

    visitor = Client()
    page = visitor.get(path, follow=True)
    assert b"For ada." in page.content
    form = page.redirect_chain[-1][0]
    refused = visitor.post(form, {"new_password1": "short", "new_password2": "short"})
    assert refused.status_code == 400 and b"at least 10 characters" in refused.content
    done = visitor.post(form, {"new_password1": NEW, "new_password2": NEW}, follow=True)
    assert b"Your password was changed" in done.content
    ada.refresh_from_db()
    assert ada.check_password(NEW)
    assert before.get("/account/").status_code == 302  # logged out
    assert not ada.sign_ins.exists()  # type: ignore[attr-defined]
    assert AuditEntry.objects.filter(action="password.renew", subject="ada").count() == 1

    again = Client().get(path, follow=True)
    assert again.status_code == 404 and b"was used, or is too old" in again.content
    token = path.split("/")[3]
    assert not any(token in f"{one.subject}{one.detail}" for one in AuditEntry.objects.all())


def test_an_unknown_address_is_answered_the_same_and_gets_no_mail(ada: User) -> None:
    known, unknown = ask("ada@example.org"), ask("eve@example.org")
    assert known.content == unknown.content and known.redirect_chain == unknown.redirect_chain
    link()
    assert [one.to for one in mail.outbox] == [["ada@example.org"]]
    wrong = ask("nothing")
    assert wrong.status_code == 400 and b"valid email" in wrong.content


def test_somebody_who_is_switched_off_gets_no_mail(ada: User) -> None:
    User.objects.create_user("bob", "bob@example.org", "the old one of bob", is_active=False)
    ask("bob@example.org")
    ask("ada@example.org")
    link()
    assert [one.to for one in mail.outbox] == [["ada@example.org"]]


def test_without_a_mail_server_it_says_whom_to_ask(ada: User, settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    for answer, status in ((Client().get("/forgotten/"), 200), (ask("ada@example.org"), 409)):
        assert answer.status_code == status
        assert b"Ask an administrator" in answer.content and b"<button" not in answer.content


def test_asking_is_limited_for_each_address(ada: User, configure: Any) -> None:
    configure(login_tries=1)
    client = Client(REMOTE_ADDR="192.0.2.7")
    answers = [client.post("/forgotten/", {"email": "eve@example.org"}).status_code for _ in range(4)]
    assert answers == [302, 302, 302, 429]


def test_the_login_page_leads_there() -> None:
    assert b'href="/forgotten/"' in Client().get("/login/").content
