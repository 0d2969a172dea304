"""Which pages the pictures show, and where each is found: a test compares these with the addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.urls import reverse

BEFORE_LOGIN = {"login": "login", "forgotten": "forgotten"}
PLAIN = {
    "overview": "overview",
    "operators": "operators",
    "definitions": "definitions",
    "explorations": "explorations",
    "models": "models",
    "alerts": "alerts",
    "failures": "failures",
    "queues": "queues",
    "collect": "collect",
    "jobs": "jobs",
    "methods": "methods",
    "environments": "environments",
    "compare": "environments-compare",
    "kernels": "kernels",
    "kernel-submit": "kernel-submit",
    "billing": "billing",
    "ledger": "billing-ledger",
    "prices": "billing-rules",
    "price-new": "billing-rule-new",
    "webhooks": "webhooks",
    "notifications": "notifications",
    "subscriptions": "subscriptions",
    "people": "people",
    "keys": "keys",
    "audit": "audit",
    "growth": "growth",
    "account": "account",
    "own-keys": "own-keys",
    "password": "password",
    "begin": "begin",
    "find": "find",
}
"""Picture → the page's name among the addresses; these pages are there whatever the catalogue has."""

ASKED = {"operators-none": ("operators", "?q=nothing-like-this"), "find": ("find", "?q=conv")}
"""Picture → page and what its address asks for."""


@dataclass(frozen=True)
class Found:
    """A page of one row: a link of the first of the listings that has one leads there.

    ``link`` is a selector; of several links the first with these ``words`` counts, else the first of all,
    or with ``only`` none. ``below`` is what the address goes on with.
    """

    page: str
    listings: tuple[str, ...]
    link: str = "main .row-link"
    words: str = ""
    only: bool = False
    below: str = ""


# A young catalogue lacks some of these rows: then there is no picture.
FOUND = {
    "operator": Found(
        "operator", ("/operators/?sort=-saved&method=compiler", "/operators/?status=hit&sort=-speedup")
    ),
    "operator-missed": Found("operator", ("/operators/?status=waiting",)),
    "operator-code": Found(
        "operator-code",
        ("@operator",),
        "main a[href*='/code/']:not([href*='/raw/']):not([href*='/files/'])",
    ),
    "exploration": Found(
        "exploration", ("/explorations/?state=running&stage=2", "/explorations/?state=running&stage=1")
    ),
    "exploration-new": Found("exploration", ("/explorations/?state=running&stage=0",)),
    "exploration-done": Found("exploration", ("/explorations/?state=done",)),
    "exploration-dead": Found("exploration", ("/explorations/?state=dead",)),
    "model": Found("model", ("/models/",)),
    "upload": Found("upload", ("/models/",), "main .list a", "resnet50-int8", only=True),
    "upload-refused": Found("upload", ("/models/",), "main .list a", "everything-merged", only=True),
    "job": Found("job", ("/jobs/",), "main table a >> nth=-1"),
    "alert": Found("alert", ("/alerts/",)),
    "failure": Found("failure", ("/failures/?sort=-trials",)),
    "kernel": Found("kernel", ("/kernels/",), words="softmax-rows"),
    "kernel-edit": Found("kernel-edit", ("/kernels/",), words="softmax-rows", below="edit/"),
    "kernel-approved": Found("kernel", ("/kernels/",), words="softmax-avx2", only=True),
    "kernel-failed": Found("kernel", ("/kernels/",), words="gelu-tanh", only=True),
    "kernel-version": Found("kernel-version", ("@kernel",), "main a[href*='/v']:not([href*='/raw'])"),
    "billing-of": Found(
        "billing-of", ("/billing/",), "main td a[href*='/billing/organisations/']", "Tenant Works"
    ),
    "charge": Found(
        "billing-entry", ("/billing/ledger/?kind=charge",), "main td a[href^='/billing/ledger/']"
    ),
    "price": Found("billing-rule", ("/billing/prices/",), "main td a", "Hand-written"),
    "webhook": Found("webhook-endpoint", ("/webhooks/",)),
    "delivery": Found("webhook-delivery", ("@webhook",), "main a[href*='/webhooks/deliveries/']"),
    "subscription": Found(
        "subscription", ("/notifications/subscriptions/",), "main td a[href*='/subscriptions/']"
    ),
}
"""Picture → its page. A listing ``@operator`` is the page that the picture of that name shows."""

LEFT_OUT = {
    "invited": "behind a signed link, which only who is invited has",
    "renew": "behind a signed link, which only who forgot a password has",
    "notification-unsubscribe": "behind a signed link in a mail",
    "notification": "leads to what it tells of",
}
"""Pages without a picture, and why."""


def pictured_pages() -> set[str]:
    """Names, among the addresses, of all pages that have a picture where there is such a row."""
    return {*BEFORE_LOGIN.values(), *PLAIN.values(), *(one.page for one in FOUND.values())}


def before_login() -> dict[str, str]:
    """Name → path of what is seen without an account."""
    return {name: reverse(page) for name, page in BEFORE_LOGIN.items()}


def paths_of(page: Any, url: str) -> dict[str, str]:
    """Picture → path of every page that the service at ``url`` can show to who is logged in."""
    paths = {name: reverse(known) for name, known in PLAIN.items()}
    for name, one in FOUND.items():
        for listing in one.listings:
            place = paths.get(listing[1:]) if listing.startswith("@") else listing
            if place and (path := _led(page, url + place, one)):
                paths[name] = path + one.below
                break
    return paths | {name: reverse(known) + query for name, (known, query) in ASKED.items()}


def _led(page: Any, address: str, one: Found) -> str:
    """Where the link on that page leads to; "" where there is none."""
    page.goto(address)
    links = page.locator(one.link)
    named = page.locator(one.link, has_text=one.words) if one.words else links
    chosen = named if named.count() or one.only else links
    return str(chosen.first.get_attribute("href")).partition("#")[0] if chosen.count() else ""
