"""Parts of pages that htmx asks for again and again, and that are sent only when they changed.

An answer that replaced what people look at every two seconds would close what they opened and lose where they
scrolled to. So every part carries a digest of what it shows; who asks with the same one gets 204, no content.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.cache import patch_vary_headers
from django.utils.safestring import SafeString, mark_safe

# Relative times and the form's tokens differ in every rendering: they are no news.
_NO_NEWS = re.compile(r'(?<=">)[^<]*(?=</time>)|name="csrfmiddlewaretoken" value="[^"]*"')


class Part:
    """A rendered part. ``every_s``: how often to ask again; None where nothing moves any more."""

    def __init__(
        self, request: HttpRequest, template: str, context: dict[str, Any], *, path: str, every_s: int | None
    ) -> None:
        body = render_to_string(template, context, request)
        self.digest = hashlib.sha256(f"{every_s}{_NO_NEWS.sub('', body)}".encode()).hexdigest()[:16]
        wrapping = {"body": mark_safe(body), "digest": self.digest, "path": path, "every_s": every_s}
        self.html: SafeString = render_to_string("parts/_live.html", wrapping)
        self._unchanged = request.GET.get("seen") == self.digest

    def response(self) -> HttpResponse:
        """The answer to htmx."""
        answer = HttpResponse(status=204) if self._unchanged else HttpResponse(self.html)
        patch_vary_headers(answer, ["HX-Request"])
        return answer
