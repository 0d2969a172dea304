"""One search over everything, and the navigation: for each reader what the reader may open."""

from __future__ import annotations

import re
from itertools import product

from django.test import Client

from catalog.models import Job, Organisation, Role
from catalog.people.keys import create_api_key
from catalog.people.own_keys import scopes_within
from catalog.viewing import MAY
from tests.conftest import Api
from tests.dashboard.factory import Factory
from tests.dashboard.kernels import gallery
from tests.dashboard.people import member_client


def found(client: Client, q: str) -> list[tuple[str, str]]:
    """(kind, title) of what is found."""
    answer = client.get("/find/", {"q": q})
    assert answer.status_code == 200
    return [(one.kind, one.title) for one in answer.context["findings"]]


def test_operators_jobs_kernels_pages_and_actions_are_found(pages: Client, catalogue: Factory) -> None:
    gallery(catalogue)
    job = Job.objects.order_by("pk")[0]
    assert ("job", job.name) in found(pages, job.name[:6])
    assert {kind for kind, _ in found(pages, "conv 64x64")} == {"operator"}
    assert ("kernel", "softmax-avx2") in found(pages, "softmax")
    assert found(pages, "audit") == [("page", "Audit log")]
    assert found(pages, "tariff") == [("page", "Prices")]
    assert found(pages, "openapi") == [("page", "The whole API")]
    assert ("action", "Submit a kernel") in found(pages, "submit")
    assert found(pages, "nothing like this at all") == []
    part = pages.get("/find/", {"q": "audit"}, headers={"HX-Request": "true"}).content.decode()
    assert "Audit log" in part and "<html" not in part


def test_nobody_finds_what_is_another_organisations(catalogue: Factory) -> None:
    stranger = member_client(Organisation.objects.create(name="a stranger"), "viewer")
    mine = Job.objects.order_by("pk")[0]
    assert not [title for kind, title in found(stranger, mine.name) if kind in ("job", "model")]
    assert found(stranger, "audit") == found(stranger, "tariff") == []


def test_who_sets_prices_is_the_same_by_page_search_and_rest(organisation: Organisation) -> None:
    tenant = Organisation.objects.create(name="Tenant")
    for owner, role in product((organisation, tenant), Role):
        allowed = owner == organisation and role in (Role.BILLING, Role.ADMIN)
        client = member_client(owner, role)
        assert client.get("/billing/prices/new/").status_code == (200 if allowed else 403), role
        assert (("page", "Prices") in found(client, "tariff")) == allowed, role
        assert (("action", "New price") in found(client, "new price")) == allowed, role
        scopes = scopes_within(MAY[role])
        key = create_api_key(owner, role, scopes)[1]
        assert (Api(key).get("billing/rules").status_code == 200) == allowed, role


def test_the_navigation_has_four_groups_says_how_many_kernels_wait_and_marks_one_page(
    pages: Client, catalogue: Factory
) -> None:
    gallery(catalogue)
    page = pages.get("/").content.decode()
    nav = page[page.index('aria-label="Main"') : page.index("</nav>")]
    assert re.findall(r'class="nav-title"[^>]*>([^<]+)<', nav) == [
        "Catalogue", "Work", "Money", "Administration",
    ]  # fmt: skip
    assert re.search(r'Kernels<span class="unread"><span class="count">\d+<', nav)
    marked = re.compile(r'href="([^"]+)" aria-current="(page|true)"><svg')
    for path, sections in (
        ("/", [("/", "page")]),
        ("/billing/ledger/", [("/billing/ledger/", "page")]),
        ("/billing/prices/", [("/billing/", "true")]),
        ("/compare/", [("/environments/", "true")]),
        ("/definitions/", []),
    ):
        assert marked.findall(pages.get(path).content.decode().split("</nav>")[0]) == sections, path
    viewer = member_client(Organisation.objects.create(name="readers"), "viewer").get("/").content.decode()
    assert "wait for your decision" not in viewer and "Money" not in viewer.split("</nav>")[0]
