"""Extreme numbers and texts, as JSON and as forms have them, and where in a document they can stand."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

NUMBERS = (
    "0", "1e-300", "1e300", "-1", "-1e300", "NaN", "Infinity", "-Infinity", "9223372036854775807",
    "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1" + "0" * 400, "1" * 5000,
)  # fmt: skip
"""As JSON has them; the last cannot be read as a whole number at all."""
LONG = 10**6
TEXTS = ("", " ", " " * LONG, "x" * LONG, "\0", "a\0b", "\ud800", "a\udfffb", "１２", "-0", "٣")
SLOWEST_S = 2.0
"""Of the processor, for one answer: a page takes some hundredths of that."""


def drawn(name: str, values: Sequence[str], most: int) -> Sequence[str]:
    """So many of these, others for each name: all of them over all fields."""
    start = zlib.crc32(name.encode("utf-8", "surrogatepass"))
    return [values[(start + 5 * step) % len(values)] for step in range(min(most, len(values)))]


def json_values(name: str, most: int) -> Iterator[str]:
    """As JSON."""
    yield from drawn(name, [*NUMBERS, *map(json.dumps, TEXTS)], most)


def form_values(name: str, most: int, longest: int = 20_000) -> Iterator[str]:
    """As a query string or a form has them."""
    for value in drawn(name, [*NUMBERS, *TEXTS], most):
        yield value[:longest]


def leaves(document: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value of a document, and to each list and object too."""
    if way:
        yield way
    if isinstance(document, dict):
        for name, one in document.items():
            yield from leaves(one, (*way, name))
    elif isinstance(document, list):
        for at, one in enumerate(document[:1]):
            yield from leaves(one, (*way, at))


def with_value(document: Any, way: tuple[Any, ...], value: str) -> str:
    """The document as JSON, with this text in one place."""
    copied = json.loads(json.dumps(document))
    inner = copied
    for step in way[:-1]:
        inner = inner[step]
    inner[way[-1]] = "@@here@@"
    return json.dumps(copied).replace('"@@here@@"', value)
