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

CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str | None:
    """The browser's path: OPATLAS_CHROMIUM, or the first of the usual names that is installed."""
    given = os.environ.get("OPATLAS_CHROMIUM")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return given or next((path for name in names if (path := shutil.which(name))), None)


def until(page: Any, expression: str, timeout_s: float = 20.0) -> None:
    """Wait until an expression holds in a page. Playwright's own waiting evaluates text within the page,
    which the content security policy forbids."""
    deadline = time.monotonic() + timeout_s
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"waited in vain for {expression}"
        page.wait_for_timeout(50)


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
