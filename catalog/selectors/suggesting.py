"""What somebody may be about to type into a search for operators."""

from __future__ import annotations

from itertools import islice

from catalog.models import Standing
from catalog.search import Words
from catalog.selectors import listing

MOST, MOST_OPERATORS = 8, 4


def suggestions(text: str) -> list[str]:
    """Whole texts, the likeliest first: the last word completed as a type of operator, an element type or a
    route; then operators that are found by it."""
    before, _, last = text.lower().rpartition(" ")
    op_types, dtypes = listing.kinds()
    words = [name for name, _ in op_types] + dtypes
    if last.startswith("r"):
        routes = Standing.objects.order_by("route").values_list("route", flat=True).distinct()
        words += [f"route:{name}" for name in routes]
    completed = [word for word in words if last and word.lower().startswith(last) and word.lower() != last]
    said = [f"{before} {word}".strip() for word in islice(completed, MOST - MOST_OPERATORS)]
    if text.strip():
        found = listing.narrowed(Words.of(text)).order_by("-pk").values_list("summary", flat=True)
        said += found[:MOST_OPERATORS]
    return list(dict.fromkeys(said))
