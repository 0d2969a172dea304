"""What the service is held against, each served by the same web server: a bare WSGI reply, and empty views.

``BENCH_REPLY`` names a file with the answer that all of them give: the same bytes, with the same headers.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_REPLY = json.loads(Path(os.environ["BENCH_REPLY"]).read_text())
_BODY = _REPLY["body"].encode()
_HEADERS = [(name, value) for name, value in _REPLY["headers"]]


def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """Nothing is looked at, nothing is counted."""
    start_response("200 OK", _HEADERS)
    return [_BODY]


def _django() -> Any:
    from django.conf import settings
    from django.http import HttpResponse
    from django.urls import re_path

    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="bench",
        MIDDLEWARE=[],
        INSTALLED_APPS=["rest_framework"],
        REST_FRAMEWORK={
            "DEFAULT_AUTHENTICATION_CLASSES": [],
            "DEFAULT_PERMISSION_CLASSES": [],
            "UNAUTHENTICATED_USER": None,
        },
    )
    import django

    django.setup()
    from django.core.wsgi import get_wsgi_application
    from rest_framework.request import Request
    from rest_framework.views import APIView

    class Empty(APIView):
        def get(self, request: Request, rest: str = "") -> HttpResponse:
            return HttpResponse(_BODY, content_type="application/json")

    globals()["urlpatterns"] = [re_path("^api/(?P<rest>.*)$", Empty.as_view())]
    return get_wsgi_application()


if os.environ.get("BENCH_DRF"):
    drf = _django()
