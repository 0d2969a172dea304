"""Refusals are pages with the way on; and nobody is led to one by a link."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import urlsplit

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
            yield parts.path


@pytest.mark.parametrize(("role", "of"), [("viewer", "tenant"), ("viewer", "host"), ("billing", "tenant")])
def test_no_link_leads_to_a_refusal(catalogue: Factory, role: str, of: str) -> None:
    gallery(catalogue)
    bills(catalogue, days=2)
    organisation = catalogue.organisation if of == "host" else Organisation.objects.get(name="Tenant Works")
    client = member_client(organisation, role)
    led: dict[str, tuple[str, str]] = {}  # one link to each view is enough
    for path in page_paths().values():
        answer = client.get(path)
        if answer.status_code != 200 or not answer.headers["Content-Type"].startswith("text/html"):
            continue
        for href in links_of(answer.content.decode()):
            try:
                led.setdefault(resolve(href).view_name or href, (href, path))
            except Resolver404:
                pytest.fail(f"{path} leads to {href}, which is nowhere")
    assert len(led) > 15
    refused = {
        f"{path} → {href}": client.get(href).status_code
        for href, path in led.values()
        if client.get(href).status_code in (403, 404, 405)
    }
    assert not refused
