"""Rate limits. The API's are counted in this process, since a lookup must not wait for a counter: each of
several web processes grants the whole rate. Password limits are in Django's cache, which Redis shares.

Rates are ``<number>/<s|min|h>`` or ``off``: OPATLAS_RATE_LOOKUP and OPATLAS_RATE_API for each key,
OPATLAS_RATE_ADDRESS for each address, OPATLAS_RATE_REFUSED for answers 401 to one address.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from catalog.models import ApiKey
from catalog.people.addresses import client_address, sender_at
from dashboard.conf import Rate, conf
from dashboard.operation.requests import request_id

if TYPE_CHECKING:
    from rest_framework.views import APIView  # it imports this module by its settings

LOOKUPS = frozenset({"lookup", "operator-best", "artifact", "artifact-file"})
"""Names of the hot-path routes that jobs call."""

UNLIMITED = frozenset({"/healthz", "/readyz", "/metrics"})


class RateWindow:
    """A limit per period and key, in fixed periods of this process's clock."""

    def __init__(self, limit: int, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self.period_s = limit, period_s
        self._clock = clock
        self._lock = threading.Lock()
        self._began = -math.inf
        self._counts: dict[object, int] = {}

    def take(self, key: object) -> float | None:
        """Count one. None where it is within the limit, else the seconds until the next period."""
        now = self._clock()
        with self._lock:
            if now - self._began >= self.period_s:
                self._began, self._counts = now, {}  # whoever came once is not remembered
            count = self._counts.get(key, 0) + 1
            self._counts[key] = count
            return None if count <= self.limit else self._began + self.period_s - now

    def give_back(self, key: object) -> None:
        """Uncount one that is counted elsewhere."""
        with self._lock:
            if self._counts.get(key, 0) > 0:
                self._counts[key] -= 1


@lru_cache(maxsize=64)
def _window(name: str, rate: Rate) -> RateWindow | None:
    return None if rate is None else RateWindow(*rate)


def window(name: str) -> RateWindow | None:
    """The counter of ``rate_lookup`` and its like in the configuration; None where it is off."""
    return _window(name, getattr(conf(), name))


def count_lookup(address: str, key_id: int) -> bool:
    """Count a lookup by its address, then by its key. False: one of the two refuses it, and nothing is
    counted."""
    of_address, of_key = window("rate_address"), window("rate_lookup")
    sender = sender_at(address)
    if of_address is not None and of_address.take(sender) is not None:
        of_address.give_back(sender)
        return False
    if of_key is None or of_key.take(key_id) is None:
        return True
    of_key.give_back(key_id)
    if of_address is not None:
        of_address.give_back(sender)
    return False


def uncount_lookup(address: str, key_id: int) -> None:
    """Undo :func:`count_lookup`: Django counts it."""
    for name, whose in (("rate_address", sender_at(address)), ("rate_lookup", key_id)):
        if (counter := window(name)) is not None:
            counter.give_back(whose)


class KeyThrottle(BaseThrottle):
    """DRF's: each API key has one rate for lookups and one for everything else."""

    _wait_s: float | None = None

    def allow_request(self, request: Request, view: APIView) -> bool:
        key = request.auth
        if not isinstance(key, ApiKey):
            return True
        match = request._request.resolver_match
        name = "rate_lookup" if match is not None and match.url_name in LOOKUPS else "rate_api"
        counter = window(name)
        if counter is None:
            return True
        self._wait_s = counter.take(key.pk)
        if self._wait_s is None:
            return True
        kind = "lookups" if name == "rate_lookup" else "requests"
        raise Throttled(
            self._wait_s,
            f"Too many {kind}: a key may make {counter.limit} in {counter.period_s:.0f} s. "
            f"Try again in {math.ceil(self._wait_s)} s.",
        )

    def wait(self) -> float | None:
        return self._wait_s


class AddressMiddleware:
    """Each address has a rate, and another for requests that are refused for their key."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path_info in UNLIMITED:
            return self.get_response(request)
        address = sender_at(client_address(request))
        counter = window("rate_address")
        if counter is not None and (wait_s := counter.take(address)) is not None:
            return too_many(request, wait_s, "Too many requests from your address.")
        response = self.get_response(request)
        if response.status_code == 401:
            refused = window("rate_refused")
            if refused is not None and (wait_s := refused.take(address)) is not None:
                return too_many(request, wait_s, "Too many requests without a valid key from your address.")
        return response


def too_many(request: HttpRequest, wait_s: float, why: str) -> HttpResponse:
    """429 with Retry-After: JSON below /api/, else a page."""
    whole_s = max(1, math.ceil(wait_s))
    sentence = f"{why} Try again in {_in_words(whole_s)}."
    answer: HttpResponse
    if request.path_info.startswith("/api/"):
        body: dict[str, Any] = {"error": sentence}
        number = getattr(request, "request_id", None) or request_id(request)
        answer = JsonResponse(body | {"request_id": number}, status=429)
    else:
        answer = render(request, "limited.html", {"sentence": sentence}, status=429)
    answer["Retry-After"] = str(whole_s)
    return answer


def _in_words(seconds: int) -> str:
    if seconds < 90:
        return f"{seconds} second{'' if seconds == 1 else 's'}"
    return f"{math.ceil(seconds / 60)} minutes"
