"""Lists come in pages: ``?limit=50&offset=100``, answered with count, next, previous and results."""

from __future__ import annotations

from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request

from catalog.errors import RequestError

MAX_LIMIT = 200
MAX_OFFSET = 10_000_000


class Pages(LimitOffsetPagination):
    """50 rows unless asked for 1 to 200; anything else is refused with a sentence, never guessed at."""

    default_limit = 50
    max_limit = MAX_LIMIT

    def get_limit(self, request: Request) -> int:
        return bounded(request, "limit", self.default_limit, 1, MAX_LIMIT)

    def get_offset(self, request: Request) -> int:
        return bounded(request, "offset", 0, 0, MAX_OFFSET)


def bounded(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number from the query, between its bounds."""
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    # Nineteen digits hold every number that could be meant; more would only be slow to read.
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        raise RequestError(f"{name} must be a whole number from {low} to {high}.", where=name)
    return int(text)
