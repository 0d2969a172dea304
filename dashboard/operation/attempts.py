"""Limits on tries of passwords, and of pages that a guesser would try: by account and address."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.core.cache import caches
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse

from catalog.people.addresses import client_address, sender_at
from dashboard.conf import conf
from dashboard.operation.limits import too_many

logger = logging.getLogger(__name__)

LOGINS = frozenset({"login", "admin:login"})
GUARDED = frozenset({"password", "forgotten", "renew", "invited", "member-invite", "admin:password_change"})
"""Routes whose POSTs are all counted for each address."""

LOGGED_IN, WRONG = "You have tried to log in too often.", "You have tried this too often."


@dataclass(frozen=True)
class AttemptLimit:
    """So many within a period."""

    name: str
    limit: int
    period_s: int


def rules() -> dict[str, AttemptLimit]:
    """OPATLAS_LOGIN_TRIES failures of one account from one address in 15 minutes; six times as many from one
    address, and twenty times as many of one account from wherever: nobody locks others out cheaply."""
    tries = conf().login_tries
    return {
        "both": AttemptLimit("both", tries, 900),
        "address": AttemptLimit("address", tries * 6, 900),
        "account": AttemptLimit("account", tries * 20, 900),
        "page": AttemptLimit("page", tries * 3, 600),
    }


class AttemptsMiddleware:
    """Answers 429 before a view sees a password, after too many failures."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        match = request.resolver_match
        if request.method != "POST" or match is None:
            return None
        if match.view_name in LOGINS:
            wait_s = max((_wait_s(*one) for one in _of_login(request, _name(request))), default=0.0)
            return too_many(request, wait_s, LOGGED_IN) if wait_s > 0 else None
        if match.view_name in GUARDED:
            rule, key = rules()["page"], f"{match.view_name} {sender_at(client_address(request))}"
            wait_s = _wait_s(rule, key)
            if wait_s > 0:
                return too_many(request, wait_s, WRONG)
            _count(rule, key)
        return None


@receiver(user_login_failed)
def _failed(
    sender: object, credentials: dict[str, Any], request: HttpRequest | None = None, **kwargs: object
) -> None:
    if request is not None:
        for rule, key in _of_login(request, str(credentials.get("username", ""))):
            _count(rule, key)


@receiver(user_logged_in)
def _succeeded(
    sender: object, request: HttpRequest | None = None, user: Any = None, **kwargs: object
) -> None:
    """A correct password resets the account's count, but not the address's: otherwise one account would open
    all others."""
    if request is not None and user is not None:
        both = _of_login(request, user.get_username())[0]
        _cached(lambda cache: cache.delete(_key(*both)))


def _of_login(request: HttpRequest, name: str) -> list[tuple[AttemptLimit, str]]:
    address, of = sender_at(client_address(request)), rules()
    account = name.strip().casefold()
    return [
        (of["both"], f"{account} {address}"),
        (of["address"], address),
        (of["account"], account),
    ]


def _name(request: HttpRequest) -> str:
    return request.POST.get("username", "")


def _key(rule: AttemptLimit, key: str) -> str:
    # Names can be long and strange; and a cache need not hold who tried.
    return f"attempts:{rule.name}:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _count(rule: AttemptLimit, key: str) -> None:
    name, now = _key(rule, key), time.time()

    def add(cache: Any) -> None:
        # The period begins with the first failure; its end is kept beside the count.
        if cache.add(f"{name}:until", now + rule.period_s, rule.period_s):
            cache.set(name, 0, rule.period_s)
        try:
            cache.incr(name)
        except ValueError:  # it ran out between the two
            cache.set(name, 1, rule.period_s)

    _cached(add)


def _wait_s(rule: AttemptLimit, key: str) -> float:
    """Seconds to wait; 0 if none."""
    name = _key(rule, key)
    found = _cached(lambda cache: cache.get_many([name, f"{name}:until"])) or {}
    if int(found.get(name, 0)) < rule.limit:
        return 0.0
    return max(0.0, float(found.get(f"{name}:until", 0.0)) - time.time())


def _cached(use: Callable[[Any], Any]) -> Any:
    """In the shared cache, or in this process's own while that is away: never without."""
    try:
        return use(caches["default"])
    except Exception as error:  # whatever a cache's library raises
        logger.warning("The cache does not answer (%s): attempts are counted in this process.", error)
        return use(caches["local"])
