"""What a page is asked with."""

from __future__ import annotations

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails

from catalog.viewing import Viewer


class ViewerRequest(HttpRequest):
    """A request as middlewares pass it on: who looks (``dashboard.project.middleware``), and what of the page
    htmx asks for. For types only: nothing makes one."""

    viewer: Viewer
    htmx: HtmxDetails
