"""A shortcut for remembered answers, at the point where granian passes a request on.

granian makes a WSGI environ for each request (with the process's variables), calls the application, and
collects the answer. For a GET ``quickly`` is asked before that, with the request's own part of the environ;
if it has no answer, the request takes the normal way on the same thread. This uses an interface between
granian's own modules: the version is pinned, and a web process does not start if it is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Sent = dict[str, Any]
Runner = Callable[[Any, Sent], Any]
Quickly = Callable[[Sent], tuple[list[tuple[str, str]], bytes] | None]


def lead(application: Any, quickly: Quickly) -> None:
    """Make granian's worker, if this is one, ask ``quickly`` for headers and body of a 200 before it calls
    this WSGI application. Raises RuntimeError for another granian than this was written for."""
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
        # Only the plain way cuts a prefix from addresses, and writes granian's own log of requests.
        if callback is not application or scope_opts.get("url_path_prefix") or access_log_format:
            return run

        def take(proto: Any, sent: Sent) -> Any:
            if (answer := quickly(sent)) is None:
                return run(proto, sent)
            return proto.response_bytes(200, *answer)

        return take

    granian._wsgi_call_wrap = wrapped  # type: ignore[attr-defined]
