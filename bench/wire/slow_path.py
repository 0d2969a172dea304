"""``python -m bench.wire.slow_path``: one GET through Django, its time by part.

Each part is a function that is timed from outside; what is within another is counted there alone. Timing
takes a microsecond a part.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from typing import Any

ROUNDS = 2_000
PARTS = {
    "authentication": ("catalog.api.authentication", "ApiKeyAuthentication.authenticate"),
    "parsing": ("catalog.api.lookup_json", "parse_best"),
    "target and setting": ("catalog.api.lookup_json", "resolve"),
    "the operator's row": ("catalog.selectors.known", "operator"),
    "bests": ("catalog.lookup.lookups", "find_bests"),
    "terms": ("dashboard.billing.charging", "Billing.concerns"),
    "journal": ("catalog.usage.recording", "journal.append_line"),
    "serialising": ("catalog.api.lookup", "best_text"),
    "revocations": ("catalog.api.lookup", "revocations"),
    "rest of the view": ("rest_framework.views", "APIView.dispatch"),
}
OTHER = "middleware and handler"
SQL = "of all this, SQL"


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
    watch = Stopwatch()
    for _ in range(200):
        ask()
    began = time.perf_counter()
    for _ in range(ROUNDS):
        ask()
    untimed_us = (time.perf_counter() - began) / ROUNDS * 1e6
    for name, (module, dotted) in PARTS.items():
        *owners, last = dotted.split(".")
        owner = import_module(module)
        for one in owners:
            owner = getattr(owner, one)
        setattr(owner, last, watch.around(name, getattr(owner, last)))
    sql = [0.0]
    from django.db import connection

    with connection.execute_wrapper(_counting(sql)):
        for _ in range(ROUNDS):
            with watch.part(OTHER):
                ask()
    parts = {name: round(took / ROUNDS * 1e6, 1) for name, took in watch.seconds.items()}
    print(json.dumps({"all, untimed": round(untimed_us, 1), **parts, SQL: round(sql[0] / ROUNDS * 1e6, 1)}))


def _counting(seconds: list[float]) -> Callable[..., Any]:
    def run(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        began = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            seconds[0] += time.perf_counter() - began

    return run


def prepared() -> Callable[[], None]:
    """A catalogue of 1,000, and one request after another."""
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application

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
    limits.conf = lambda: type("Unlimited", (), {"__getattr__": lambda self, name: (10**9, 60)})()
    application: Any = get_wsgi_application()

    def ask() -> None:
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
