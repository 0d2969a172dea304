"""The WSGI entry point."""

import gc
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

from catalog.alive import beat

gc.disable()  # what is imported stays: looking for garbage in it would be a quarter of the start
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
_answer = get_wsgi_application()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Django's, and each answer is a sign of life: whoever supervises asks /healthz, and counts any."""
    answer = _answer(environ, start_response)
    beat("web")
    return answer


get_resolver().url_patterns  # noqa: B018 - imports every view, for which the first request would wait
gc.freeze()
gc.enable()
if waits_on := os.environ.get("OPATLAS_WAITS_ON"):
    # A pipe of the process that started this one, which prepares the database meanwhile: it ends when that is
    # done. A web server that is started again finds it ended.
    Path(f"/dev/fd/{waits_on}").read_bytes()
