"""A service that is killed where it is told to be: ``python -m tests.opatlas.client.killable PORT``.

Django is imported once; each line of standard input is one order, answered by one line of JSON:

- ``setup``: operators with and without a result, and a key;
- ``serve POINT``: a process that answers, and kills itself (SIGKILL) at that point, if it names one; in the
  place of the one before, of which is told whether it had killed itself;
- ``stop``: that process is killed now;
- ``count``: what was used and missed, in a process that drains the journal.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import tempfile
import time
import wsgiref.handlers
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.opatlas.client.forking import fork

LOADABLE = 1000
DIES_S = 30.0
"""Within which a service that is to be killed at a point is dead, once somebody who asks it was told."""
KNOWN, UNKNOWN = range(100, 160), range(200, 260)


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def at_entry(holder: Any, name: str, when: Callable[..., bool] = lambda *_, **__: True) -> None:
    """Be killed when this function is called (and ``when`` says so of its arguments)."""
    function = getattr(holder, name)

    @functools.wraps(function)
    def killed(*given: Any, **more: Any) -> Any:
        return die() if when(*given, **more) else function(*given, **more)

    setattr(holder, name, killed)


def at_exit(holder: Any, name: str, when: Callable[..., bool] = lambda *_, **__: True) -> None:
    """Be killed when this function returns."""
    function = getattr(holder, name)

    @functools.wraps(function)
    def killed(*given: Any, **more: Any) -> Any:
        made = function(*given, **more)
        return die() if when(*given, **more) else made

    setattr(holder, name, killed)


# ---- where the service is killed ------------------------------------------------------------------------


def before_the_request_is_read() -> None:
    from django.core.servers.basehttp import WSGIRequestHandler

    at_entry(WSGIRequestHandler, "handle")


def before_it_looks_anything_up() -> None:
    import catalog.api.lookup

    at_entry(catalog.api.lookup, "lookup")


def before_the_hits_are_written_down() -> None:
    import catalog.lookup.lookups

    at_entry(catalog.lookup.lookups, "serve")


def after_misses_and_hits_are_written_down() -> None:
    import catalog.api.lookup

    at_exit(catalog.api.lookup, "lookup")


def after_half_of(path: str) -> Callable[[], None]:
    """Headers and half of the first piece of the body have been sent."""

    def arm() -> None:
        write = wsgiref.handlers.BaseHandler.write

        def half(self: Any, data: bytes) -> Any:
            if path not in self.environ["PATH_INFO"]:
                return write(self, data)
            self.bytes_sent = len(data)
            self.send_headers()
            self._write(data[: len(data) // 2])
            self._flush()
            return die()

        wsgiref.handlers.BaseHandler.write = half  # type: ignore[method-assign]

    return arm


def before_a_manifest_is_sent() -> None:
    import catalog.api.artifacts

    at_entry(catalog.api.artifacts.ArtifactView, "get")


def before_uses_are_counted() -> None:
    import catalog.api.reports

    at_entry(catalog.api.reports, "record_report")


def after_uses_are_counted() -> None:
    import catalog.api.reports

    at_exit(catalog.api.reports, "record_report")


POINTS: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        before_the_request_is_read, before_it_looks_anything_up, before_the_hits_are_written_down,
        after_misses_and_hits_are_written_down, before_a_manifest_is_sent, before_uses_are_counted,
        after_uses_are_counted,
    )
} | {
    "after_half_of_the_answer": after_half_of("/lookup"),
    "after_half_of_a_manifest": after_half_of("/artifacts/"),
    "after_half_of_a_file": after_half_of("/files/"),
}  # fmt: skip


# ---- the service ----------------------------------------------------------------------------------------


def serve(port: int, point: str, ready: int) -> None:
    from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler

    from dashboard.wsgi import application

    class Handler(WSGIRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    if point:
        POINTS[point]()
    server = ThreadedWSGIServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.set_app(application)
    os.write(ready, b"!")
    server.serve_forever()


def setup() -> dict[str, Any]:
    from catalog.best.publishing import Publication, publish
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation, register_operator, register_setting, register_target
    from opatlas.evidence import Evidence
    from opatlas.identity import Setting, detect_target
    from opatlas.load.signing import new_key
    from tests.catalog import making
    from tests.opatlas.load.kernels import ADD, add_operator, build

    target, setting = register_target(detect_target()), register_setting(Setting(threads=1))
    for size in KNOWN:
        place = {"operator": register_operator(making.relu(size)), "target": target, "setting": setting}
        publish(making.new_result(place, "torch", 2.0, needs={}))
    with tempfile.TemporaryDirectory() as name:
        folder, operator = Path(name), add_operator(LOADABLE)
        made = build(folder, ADD, operator, threads=1)
        publish(
            Publication(
                operator=register_operator(operator), target=target, setting=setting, route="cpp",
                method="manual", label="add", candidate={}, manifest=made, folder=folder, versions={},
                evidence=Evidence(10.0, 0.1, 20.0, 2.0, 1.98, 2.02),
                signing_key=new_key(folder / "key.pem"),
            )
        )  # fmt: skip
    return {"key": create_api_key(default_organisation(), "test", ["lookup"])[1]}


def count() -> dict[str, Any]:
    from django.db.models import Sum

    from catalog.models import Miss, Usage
    from catalog.usage.draining import drain_journal

    drain_journal()
    rows = Usage.objects.values("operator__key").annotate(total=Sum("calls"))
    missed = list(Miss.objects.values_list("operator__key", "state", "count"))
    return {"used": {row["operator__key"]: row["total"] for row in rows}, "missed": missed}


def forked(work: Callable[[int], Any]) -> tuple[int, int]:
    """Work in a process of its own, which may write into a pipe; gives its number and the pipe's end."""
    reads, writes = os.pipe()
    child = fork()
    if not child:
        try:
            os.close(reads)
            work(writes)
        finally:
            os._exit(1)
    os.close(writes)
    return child, reads


def told(work: Callable[[], Any]) -> Any:
    child, reads = forked(lambda writes: os.write(writes, json.dumps(work()).encode()))
    with os.fdopen(reads, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said)


def is_dead_within(seconds: float, process: int) -> bool:
    """Whether it was killed before anybody here did it."""
    end = time.monotonic() + seconds
    while not (ended := os.waitpid(process, os.WNOHANG))[0] and time.monotonic() < end:
        time.sleep(0.005)
    return bool(ended[0]) and os.WIFSIGNALED(ended[1])


def main(port: int) -> None:
    import django

    django.setup()
    import dashboard.wsgi  # noqa: F401 - imports every view

    serving, deadly = 0, ""
    for line in sys.stdin:
        order, _, point = line.strip().partition(" ")
        answer: Any = {}
        if order in ("serve", "stop") and serving:
            answer = {"was_killed": bool(deadly) and is_dead_within(DIES_S, serving)}
            if not answer["was_killed"]:
                os.kill(serving, signal.SIGKILL)
                os.waitpid(serving, 0)
            serving = 0
        if order == "serve":
            deadly = point
            serving, reads = forked(lambda ready, point=point: serve(port, point, ready))
            with os.fdopen(reads, "rb") as pipe:
                assert pipe.read(1) == b"!"
        if order in ("setup", "count"):
            answer = told({"setup": setup, "count": count}[order])
        print(json.dumps(answer), flush=True)
    if serving:
        os.kill(serving, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]))
