"""Web servers of the bench, started as ``make run`` starts one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dashboard.run.stack import ROOT, UP_S, free_port

WITHOUT_LIMITS = {f"OPATLAS_RATE_{name}": "1000000000/min" for name in ("LOOKUP", "ADDRESS", "API")}
"""Counted all the same, and never used up."""


@contextmanager
def serving(application: str, environment: Mapping[str, str], processes: int = 1) -> Iterator[str]:
    """The address of a web server of so many processes, eight threads each."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "granian", "--interface", "wsgi", "--host", "127.0.0.1"),
        *("--port", str(port), "--workers", str(processes), "--blocking-threads", "8", "--no-ws"),
        *("--log-level", "error", application),
    ]
    server = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/healthz")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except urllib.error.HTTPError:
            return  # it answers
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"{url} did not answer within {UP_S:.0f} s.")


def kept_reply(url: str, key: str, path: Path) -> dict[str, str]:
    """An answer of the service in a file, and what tells ``bench.wire.bare`` of it."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        body = answer.read()
        left_out = ("server", "date", "connection", "transfer-encoding")  # the web server's own
        headers = [pair for pair in answer.headers.items() if pair[0].lower() not in left_out]
    path.write_text(json.dumps({"body": body.decode(), "headers": headers}))
    return {"BENCH_REPLY": str(path)}
