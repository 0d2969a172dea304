"""Large bodies: refused unread, or received few at a time; small requests never notice."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from dashboard.operation.bodies import MOST_BYTES, LargeBodyMiddleware


def ask(middleware: LargeBodyMiddleware, size: int, path: str = "/api/v1/models/") -> Any:
    return middleware(RequestFactory().post(path, b"", "application/json", CONTENT_LENGTH=str(size)))


def test_what_is_larger_than_anything_takes_is_refused_unread() -> None:
    middleware = LargeBodyMiddleware(lambda request: pytest.fail("it was read"))
    answer = ask(middleware, MOST_BYTES + 1)
    assert answer.status_code == 413 and b"larger than 130 MiB" in answer.content


def test_few_large_ones_at_a_time_and_any_number_of_small_ones(configure: Any) -> None:
    configure(large_bodies=2)
    inside, go_on = threading.Semaphore(0), threading.Event()

    def slow(request: Any) -> HttpResponse:
        if int(request.META["CONTENT_LENGTH"]) > 1 << 20:
            inside.release()
            go_on.wait(10)
        return HttpResponse("done")

    middleware = LargeBodyMiddleware(slow)
    threads = [threading.Thread(target=ask, args=(middleware, 2 << 20)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert inside.acquire(timeout=10)
    refused = ask(middleware, 2 << 20)
    assert (refused.status_code, refused["Retry-After"]) == (429, "5")
    assert ask(middleware, 100).content == b"done"
    go_on.set()
    for thread in threads:
        thread.join()
    assert ask(middleware, 2 << 20).content == b"done"
