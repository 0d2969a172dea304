"""How many statements a page asks the database, the same at every try."""

from __future__ import annotations

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from dashboard.billing import rules
from tuning.queue import rates


def statements_of(client: Client, path: str, *, again: bool = False) -> int | None:
    """Those of one GET, its session's and user's included; None for an address that only takes POST. What is
    cached once a process is not counted: the page is opened before, unless that was done (``again``)."""
    if not again and client.get(path).status_code == 405:
        return None
    rules.forget()  # read every half second, by whichever page comes then: by each that needs them, here
    rates.forget()
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(path)
        b"".join(answer) if answer.streaming else answer.content
    assert answer.status_code in (200, 302, 402), f"{path} answered {answer.status_code}"
    return len(queries)
