"""Refusals are pages with the way on; and nobody is led to one by a link."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.urls import Resolver404, resolve

from catalog.models import Organisation
from tests.dashboard.billing.making import bills
from tests.dashboard.examples import page_paths
from tests.dashboard.factory import Factory
from tests.dashboard.kernels import gallery
from tests.dashboard.people import member_client


def page_of(client: Client, status: int, method: str, path: str) -> str:
    answer = getattr(client, method)(path)
    assert answer.status_code == status, path
    return answer.content.decode()


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("get", "/nothing/like/this/", 404, "There is nothing at this address"),
        ("get", "/operators/o1:nope/", 404, "There is nothing at this address"),
        ("get", "/audit/", 403, "Only administrators see the audit log."),
        ("get", "/queues/weight/", 405, "takes what a form sends"),
        ("post", "/methods/", 405, "This page takes no POST."),
    ],
)
def test_a_refusal_is_a_page_with_the_navigation(
    reader: Client, method: str, path: str, status: int, said: str
) -> None:
    page = page_of(reader, status, method, path)
    assert said in page and 'aria-label="Main"' in page
    assert "matches the given query" not in page


def test_a_form_without_its_token_is_told_what_to_do(db: None) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(member_user())
    page = page_of(client, 403, "post", "/account/sessions/end/")
    assert "load the page anew" in page and 'aria-label="Main"' in page


def member_user():  # type: ignore[no-untyped-def]
    from django.contrib.auth.models import User

    return User.objects.create_user("ada", password="x")


def test_who_is_not_logged_in_sees_no_navigation(db: None) -> None:
    page = page_of(Client(), 404, "get", "/nothing/like/this/")
    assert "There is nothing at this address" in page and 'aria-label="Main"' not in page


def links_of(page: str) -> Iterator[str]:
    for href in re.findall(r'<a [^>]*href="([^"#][^"]*)"', page):
        parts = urlsplit(unescape(href))
        if not parts.netloc and parts.path.startswith("/") and "export=" not in parts.query:
            yield parts._replace(fragment="").geturl()


def forms_of(page: str, path: str) -> Iterator[str]:
    """Where its forms are sent to; who logs out sees nothing further."""
    for form in re.findall(r'<form [^>]*method="post"[^>]*>', page):
        action = re.search(r'action="([^"]*)"', form)
        sent_to = unescape(action[1]) if action else path
        if sent_to != "/logout/":
            yield sent_to


def kind_of(path: str) -> tuple[str, ...]:
    """The view, and the names of what it is asked: one link of each kind is enough."""
    parts = urlsplit(path)
    return (resolve(parts.path).view_name, *sorted(parse_qs(parts.query)))


@pytest.mark.parametrize(
    ("role", "of"),
    [
        ("billing", "tenant"),  # sees all that a viewer does, and bills
        pytest.param("viewer", "tenant", marks=pytest.mark.nightly),
        pytest.param("viewer", "host", marks=pytest.mark.nightly),
    ],
)
def test_nothing_that_is_offered_is_refused(catalogue: Factory, role: str, of: str) -> None:
    """No link leads to a refusal or to a page that does not know what it is asked; no form is refused."""
    gallery(catalogue)
    bills(catalogue, days=2)
    organisation = catalogue.organisation if of == "host" else Organisation.objects.get(name="Tenant Works")
    client = member_client(organisation, role)
    led: dict[tuple[str, ...], tuple[str, str]] = {}
    sent: dict[tuple[str, ...], tuple[str, str]] = {}
    for path in page_paths().values():
        answer = client.get(path)
        if answer.status_code != 200 or not answer.headers["Content-Type"].startswith("text/html"):
            continue
        html = answer.content.decode()
        for kinds, addresses in ((led, links_of(html)), (sent, forms_of(html, path))):
            for address in addresses:
                try:
                    kinds.setdefault(kind_of(address), (address, path))
                except Resolver404:
                    pytest.fail(f"{path} leads to {address}, which is nowhere")
    assert len(led) > 15 and len(sent) > 5
    refused = [line for href, path in led.values() for line in wrong_with(client.get(href), href, path)]
    refused += [line for to, path in sent.values() for line in wrong_with(client.post(to), to, path)]
    assert not refused, "\n".join(refused)


def wrong_with(answer: Any, address: str, path: str) -> Iterator[str]:
    """Of what a link or an empty form of ``path`` led to. That a form names nothing is no refusal."""
    if answer.status_code in (403, 405) or answer.status_code >= 500:
        yield f"{path} → {address}: {answer.status_code}"
    if answer.request["REQUEST_METHOD"] == "POST":
        if "/login/" in answer.headers.get("Location", ""):
            yield f"{path} → {address} asks for a login"
    elif answer.status_code == 404:
        yield f"{path} → {address}: 404"
    elif not answer.streaming and b"This page has no filter" in answer.content:
        yield f"{path} → {address} asks for what there is not"
