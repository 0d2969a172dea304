"""What a page is asked with, where it leads back to, and what is said of a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib import messages
from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme
from django_htmx.middleware import HtmxDetails

from catalog.people import audit
from catalog.viewing import Viewer
from opatlas.errors import CallerError


class ViewerRequest(HttpRequest):
    """A request as middlewares pass it on: who looks (``dashboard.project.middleware``), and what of the page
    htmx asks for; and what its page says that the address may ask with (``dashboard.web.asked``). For types
    only: nothing makes one."""

    viewer: Viewer
    htmx: HtmxDetails
    takes: tuple[str, ...]


_LONGEST_PATH = 2000


def number_in(text: str) -> int | None:
    """A row's number as somebody wrote it; None where it is none that a row can have."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def safe_next(request: ViewerRequest, otherwise: str) -> str:
    """Where to go on: what the form names as ``next``, if it is a path of this service."""
    target = request.POST.get("next", "")
    is_path = target.startswith("/") and len(target) <= _LONGEST_PATH
    safe = is_path and url_has_allowed_host_and_scheme(target, {request.get_host()}, request.is_secure())
    return target if safe else otherwise


@contextmanager
def refusals_said(request: HttpRequest) -> Iterator[None]:
    """What the caller cannot have is said on the page that comes next, and is no deed for the audit log."""
    try:
        yield
    except CallerError as error:
        audit.note(request, skip=True)
        messages.error(request, str(error))
