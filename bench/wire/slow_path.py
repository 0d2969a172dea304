"""``python -m bench.wire.slow_path``: one GET through Django, its time by part, in turns as it was served
before pages' middleware, negotiation and rows of each request were spared it, and as it is served now.

Each part is a function that is timed from outside; what is within another is counted there alone. Timing
takes a microsecond a part.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from io import BytesIO
from types import SimpleNamespace
from typing import Any

ROUNDS, TURNS = 250, 8
PARTS = {
    "authentication": ("catalog.api.authentication", "ApiKeyAuthentication.authenticate"),
    "negotiation": ("catalog.api.endpoint", "RestView.perform_content_negotiation"),
    "parsing": ("catalog.api.lookup_json", "parse_best"),
    "target and setting": ("catalog.api.lookup", "_Asking._place"),
    "the operator's row": ("catalog.selectors.known", "operator"),
    "bests": ("catalog.lookup.lookups", "find_bests"),
    "terms": ("dashboard.billing.charging", "Billing.concerns"),
    "journal": ("catalog.usage.recording", "journal.append_line"),
    "serialising": ("catalog.api.lookup", "best_text"),
    "revocations": ("catalog.api.lookup", "revocations"),
    "rest of the view": ("rest_framework.views", "APIView.dispatch"),
}
OTHER = "middleware and handler"
WHOLE = "all, untimed"
SQL = "of all this, SQL"

Application = Callable[[Any, Any], Any]
Ask = Callable[[Application], None]
Way = Callable[[], AbstractContextManager[Application]]


class Stopwatch:
    """Seconds by part; of nested ones the inner has its own."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = [0.0]

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self.seconds[name] = self.seconds.get(name, 0.0) + took - self._inner.pop()
            self._inner[-1] += took

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            with self.part(name):
                return call(*given, **named)

        return timed


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    import django

    django.setup()
    ask = prepared()
    ways = {"before": before, "now": now}
    found: dict[str, dict[str, float]] = {name: {} for name in ways}
    for _ in range(TURNS):
        for name, way in ways.items():
            for part, us in timed(ask, way).items():
                found[name][part] = found[name].get(part, 0.0) + us / TURNS
    parts = {part: {name: round(found[name].get(part, 0.0), 1) for name in ways} for part in found["now"]}
    print(json.dumps(parts))


def timed(ask: Ask, way: Way) -> dict[str, float]:
    """Microseconds of one request, untimed and by part."""
    with way() as application:
        for _ in range(50):
            ask(application)
        began = time.perf_counter()
        for _ in range(ROUNDS):
            ask(application)
        untimed_us = (time.perf_counter() - began) / ROUNDS * 1e6
        watch, sql = Stopwatch(), [0.0]
        from django.db import connection

        with ExitStack() as stack:
            for name, (module, dotted) in PARTS.items():
                stack.enter_context(_watched(watch, name, module, dotted))
            stack.enter_context(connection.execute_wrapper(_counting(sql)))
            for _ in range(ROUNDS):
                with watch.part(OTHER):
                    ask(application)
    parts = {name: took / ROUNDS * 1e6 for name, took in watch.seconds.items()}
    return {WHOLE: untimed_us, **parts, SQL: sql[0] / ROUNDS * 1e6}


@contextmanager
def _watched(watch: Stopwatch, name: str, module: str, dotted: str) -> Iterator[None]:
    *owners, last = dotted.split(".")
    owner = import_module(module)
    for one in owners:
        owner = getattr(owner, one)
    with _set(owner, last, watch.around(name, getattr(owner, last))):
        yield


@contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    """For as long as a ``with`` lasts; a class that only inherits it does so again after that."""
    own = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, own) if own is not None else delattr(owner, name)


@contextmanager
def now() -> Iterator[Application]:
    """As it is served, with nothing remembered of answers."""
    from django.core.wsgi import get_wsgi_application

    from catalog.lookup.recalls import recalls
    from dashboard.operation.front import Front

    yield Front(get_wsgi_application(), recalls, 0)


@contextmanager
def before() -> Iterator[Application]:
    """Every middleware for every request, DRF's own negotiation, and rows read each time."""
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.test import override_settings
    from django.utils.module_loading import import_string
    from rest_framework.views import APIView

    from catalog.api.endpoint import RestView
    from dashboard.project import for_pages

    def all_of_it(name: str) -> str:
        if not name.startswith(for_pages.__name__):
            return name
        whole = import_string(name).__bases__[-1]
        return f"{whole.__module__}.{whole.__qualname__}"

    with ExitStack() as stack:
        stack.enter_context(override_settings(MIDDLEWARE=[all_of_it(name) for name in settings.MIDDLEWARE]))
        for name in ("perform_content_negotiation", "allowed_methods"):
            stack.enter_context(_set(RestView, name, getattr(APIView, name)))
        yield get_wsgi_application()


def _counting(seconds: list[float]) -> Callable[..., Any]:
    def run(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            seconds[0] += time.perf_counter() - began

    return run


def prepared() -> Ask:
    """A catalogue of 1,000, and one request after another."""
    from django.core.management import call_command

    from bench.seed import implementations as synthetic
    from catalog.models import Operator
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation, register_setting, register_target
    from dashboard.operation import limits
    from opatlas import identity

    call_command("migrate", verbosity=0)
    hardware = identity.detect_target()
    target, setting = register_target(hardware), register_setting(identity.default_setting(hardware))
    for _ in synthetic.seed(1_000, [], target, setting):
        pass
    key = create_api_key(default_organisation(), "bench", ["lookup"])[1]
    operator = Operator.objects.values_list("key", flat=True)[0]
    unlimited: Any = SimpleNamespace(rate_lookup=(10**9, 60), rate_address=(10**9, 60), rate_api=(10**9, 60))
    limits.conf = lambda: unlimited

    def ask(application: Application) -> None:
        environ = {
            "REQUEST_METHOD": "GET",
            "SCRIPT_NAME": "",
            "PATH_INFO": f"/api/v1/operators/{operator}/best",
            "QUERY_STRING": f"target={target.key}&job=bench",
            "HTTP_HOST": "127.0.0.1",
            "HTTP_AUTHORIZATION": f"Bearer {key}",
            "REMOTE_ADDR": "127.0.0.1",
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "wsgi.url_scheme": "http",
            "wsgi.input": BytesIO(),
        }
        said: list[str] = []
        answer = application(environ, lambda status, headers, *more: said.append(status))
        b"".join(answer)
        assert said == ["200 OK"], said

    return ask


if __name__ == "__main__":
    main()
