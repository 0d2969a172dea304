"""Two lanes for granian's requests: one thread answers what is remembered, others do the rest.

Python runs one thread at a time, and handing that right from thread to thread takes longer than a remembered
answer. So granian is started with one thread for Python, which gives all requests out: what ``quickly``
answers (nothing is read or waited for) it answers itself, and everything else, a slow page and a body that
is still on its way too, is left to threads of our own.

granian hands a request on as ``proto``, through which any thread may answer at any time, and the request's
own part of a WSGI environ. That is an interface between its own modules: the version is pinned, and a web
process does not start where it is gone.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

logger = logging.getLogger(__name__)

THREADS = 32
"""For all that may be slow."""

Sent = dict[str, Any]
Runner = Callable[[Any, Sent], Any]
Quickly = Callable[[Sent], tuple[list[tuple[str, str]], bytes] | None]


def lead(application: Any, quickly: Quickly) -> None:
    """Let granian's worker, where this is one, run this WSGI application in two lanes. Raises RuntimeError
    where it is another granian than this was written for."""
    granian = sys.modules.get("granian.server.mp")
    if granian is None:  # another web server, or none: it is a WSGI application like any
        return
    plainly: Callable[..., Runner] | None = getattr(granian, "_wsgi_call_wrap", None)
    if plainly is None:
        raise RuntimeError(
            "This granian hands requests on in another way: install the version that is pinned."
        )

    def wrapped(callback: Any, scope_opts: dict[str, Any], access_log_format: Any = None) -> Runner:
        run = plainly(callback, scope_opts, access_log_format)
        if callback is not application:
            return run
        # Only the plain way cuts a prefix from addresses, and writes granian's own log of requests.
        is_plain = bool(scope_opts.get("url_path_prefix") or access_log_format)
        return Lanes(run, None if is_plain else quickly).take

    granian._wsgi_call_wrap = wrapped  # type: ignore[attr-defined]


class Lanes:
    """Of one process; ``run`` answers anything, on one of ``threads``."""

    def __init__(self, run: Runner, quickly: Quickly | None, threads: int = THREADS) -> None:
        self._run, self._quickly = run, quickly
        self._waiting: SimpleQueue[tuple[Any, Sent]] = SimpleQueue()
        for number in range(threads):
            threading.Thread(target=self._work, name=f"lane-{number}", daemon=True).start()

    def take(self, proto: Any, sent: Sent) -> None:
        """A request: answered when this returns, or later."""
        if self._quickly is not None and (answer := self._quickly(sent)) is not None:
            proto.response_bytes(200, *answer)
        else:
            self._waiting.put((proto, sent))

    def _work(self) -> None:
        while True:
            proto, sent = self._waiting.get()
            try:
                self._run(proto, sent)
            except BaseException:  # a thread that ends would be missing for ever
                logger.exception("a request failed")
                proto.response_bytes(500, [], b"")  # nothing, where the answer has begun
            del proto, sent
