"""A web server in a thread and a browser to look at it with, for browser tests and screenshots."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

import pytest

from tests.services import NOT_TESTED, MissingProgram

_CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str:
    """The browser's path: OPATLAS_CHROMIUM, or the first of the usual names that is installed."""
    if given := os.environ.get("OPATLAS_CHROMIUM"):
        return given
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if path := shutil.which(name):
            return path
    raise MissingProgram(f"{NOT_TESTED}: Chromium (apt-get install chromium, or set OPATLAS_CHROMIUM)")


@contextmanager
def headless(path: str) -> Iterator[Any]:
    """Playwright's browser of the Chromium at ``path``, closed at the end."""
    from playwright.sync_api import sync_playwright

    # Playwright's synchronous interface runs an event loop in this thread; Django's ORM asks for none.
    with pytest.MonkeyPatch.context() as environment, sync_playwright() as playwright:
        environment.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        browser = playwright.chromium.launch(
            executable_path=path, args=list(_CHROMIUM_FLAGS), timeout=120_000
        )
        try:
            yield browser
        finally:
            browser.close()


def log_in(page: Any, name: str, password: str = "", url: str = "") -> None:
    """In the tests every password is the user's name."""
    page.goto(f"{url}/login/")
    page.fill("[name=username]", name)
    page.fill("[name=password]", password or name)
    page.keyboard.press("Enter")
    page.wait_for_selector("nav[aria-label=Main]")


def give_session(context: Any, url: str, name: str) -> None:
    """Somebody is logged in in this browser context without the form, whose next page is the heaviest."""
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client()
    client.force_login(User.objects.get(username=name))
    cookie = settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": cookie, "value": client.cookies[cookie].value, "url": url}])


def follow(page: Any, what: Any) -> None:
    """Click what leads to another page, and wait until that is whole: a click returns when it begins."""
    with page.expect_navigation():
        what.click()


def until(page: Any, expression: str, timeout_s: float = 60.0) -> None:
    """Wait until an expression holds in a page. Playwright's own waiting evaluates text within the page,
    which the content security policy forbids."""
    deadline = time.monotonic() + timeout_s
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"waited in vain for {expression}"
        page.wait_for_timeout(50)


def copied(page: Any, name: str) -> str:
    """What the button beside it puts into the clipboard, some time after the click."""
    page.evaluate("navigator.clipboard.writeText('')")
    page.locator(f"button[data-copy={name}]").click()
    until(page, "navigator.clipboard.readText()")
    return str(page.evaluate("navigator.clipboard.readText()")).strip()


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Requests are not news here."""


@contextmanager
def serving(application: Any) -> Iterator[str]:
    """Serve a WSGI application on a free port; yields its address."""
    from django.core.servers.basehttp import ThreadedWSGIServer

    server = ThreadedWSGIServer(("127.0.0.1", 0), _Quiet)
    server.set_app(application)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
