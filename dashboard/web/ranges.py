"""The time range that a page's URL asks for."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest

from catalog.errors import RequestError
from catalog.timerange import TimeRange, parse_range

DEFAULT = "7d"
"""Of every page, as of REST."""


def range_of(request: HttpRequest, default: str = DEFAULT) -> TimeRange:
    """What the URL asks for; what it cannot mean is said on the page, and the default is shown."""
    try:
        return parse_range(request.GET, default)
    except RequestError as refused:
        messages.warning(request, f"{refused} Shown are the last {default}.")
        return parse_range({}, default)
