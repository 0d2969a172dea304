"""Headless Chromium on the live pages: what goes wrong in a page fails its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User

from tests.dashboard.serving import give_session

_LISTEN = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) => {
  window.violations.push(`${event.violatedDirective}: ${event.blockedURI || event.sample}`);
});
"""


@dataclass
class Watched:
    """One browser window, and what went wrong in it."""

    page: Any
    wrong: list[str] = field(default_factory=list)

    def violations(self) -> list[str]:
        """What the content security policy forbade on the page that is open."""
        return list(self.page.evaluate("window.violations || []"))


def open_window(chromium: Any, url: str, **options: Any) -> Watched:
    """A window of its own (cookies, storage) that notes errors, warnings and requests to elsewhere."""
    context = chromium.new_context(base_url=url, **({"reduced_motion": "reduce"} | options))
    context.add_init_script(_LISTEN)
    page = context.new_page()
    page.set_default_timeout(60_000)
    watched = Watched(page)
    page.on(
        "console",
        lambda m: (
            watched.wrong.append(f"{_place(page)}: {m.text}") if m.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: watched.wrong.append(f"{_place(page)}: {error}"))
    host = urlsplit(url).netloc
    page.on(
        "request",
        lambda r: (
            watched.wrong.append(f"{_place(page)} asked {r.url}")
            if urlsplit(r.url).scheme in ("http", "https") and urlsplit(r.url).netloc != host
            else None
        ),
    )
    return watched


def _place(page: Any) -> str:
    return urlsplit(page.url).path


@pytest.fixture
def window(chromium: Any, live_server: Any) -> Iterator[Callable[..., Watched]]:
    """``window("ada")``: a window in which somebody is logged in; in the end nothing went wrong in any."""
    opened: list[Watched] = []

    def make(name: str = "", **options: Any) -> Watched:
        watched = open_window(chromium, live_server.url, **options)
        opened.append(watched)
        if name:
            give_session(watched.page.context, live_server.url, name)
        return watched

    yield make
    wrong = [line for watched in opened for line in watched.wrong]
    for watched in opened:
        watched.page.context.close()
    assert not wrong


@pytest.fixture
def admin(transactional_db: None) -> User:
    return User.objects.create_superuser("admin", password="admin")
