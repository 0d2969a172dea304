"""The same words find the same operators wherever somebody may look for them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.utils import timezone

from catalog.models import Operator
from dashboard.notifications.events import Event
from dashboard.notifications.find.matching import OperatorFilter
from dashboard.notifications.models import Happening
from tests.dashboard.factory import Factory

CONV, GELU, MATMUL = "Conv 1×64×56×56", "MatMul+Gelu 128×768", "MatMul 512×512, deadbeef"
QUERIES = {
    "": {CONV, GELU, MATMUL},
    "matmul": {GELU, MATMUL},
    "MatMul gelu": {GELU},
    "gelu MATMUL": {GELU},
    "512 conv": set(),
    "56×56": {CONV},
    "conv2d(56, 56)": {CONV},
    "gelu [128, 768]": {GELU},
    "512*512": {MATMUL},
    "{conv}": {CONV},
    "{CONV}": {CONV},
    "{conv:.10}": {CONV},
    "{conv_digits:.12}": {CONV},
    "{CONV_DIGITS:.12} 64": {CONV},
    "{conv_digits:.12} matmul": set(),
    "{conv_digits:.4}": set(),  # too short to be a key's
    "deadbeef": {MATMUL},
    "o1:": {CONV, GELU, MATMUL},
    "100%": set(),
    "Conv_1": set(),
    "conv conv conv conv conv conv conv conv matmul": {CONV},  # the ninth word is one too many
}


@pytest.fixture
def operators(db: None) -> dict[str, Operator]:
    """Three operators, each with a miss and an exploration."""
    factory = Factory()
    factory.mark = ""
    made = {summary: factory.operator(summary.split()[0], summary) for summary in (CONV, GELU, MATMUL)}
    digits = "0123456789abcdef" * 4
    for number, row in enumerate(made.values()):
        row.key = f"o1:{digits[number + 3 :]}{digits[: number + 3]}"
        row.save()
        factory.miss(row, "waiting")
        factory.explore(row, "queued")
    return made


@pytest.mark.parametrize(("query", "expected"), QUERIES.items())
def test_every_search_finds_the_same(
    query: str, expected: set[str], operators: dict[str, Operator], api: Any, pages: Any
) -> None:
    key = operators[CONV].key
    names = {"conv": key, "CONV": key.upper(), "conv_digits": key[3:], "CONV_DIGITS": key[3:].upper()}
    words = query.format(**names)

    def of_page(address: str, column: str) -> set[str]:
        exported = pages.get(address, {"q": words, "export": "json"}).getvalue()
        return {row[column] for row in json.loads(exported)["rows"]}

    found = {
        "the list": of_page("/operators/", "summary"),
        "explorations": of_page("/explorations/", "summary"),
        "the collect queue": of_page("/queues/collect/", "summary"),
        "REST": {row["summary"] for row in api.get("operators/", q=words).json()["results"]},
        "subscriptions": _told_of(words, operators),
    }
    assert found == dict.fromkeys(found, expected)


def _told_of(words: str, operators: dict[str, Operator]) -> set[str]:
    asked = OperatorFilter.of({"q": words}, {})
    return {
        summary
        for summary, row in operators.items()
        if asked.passes(row, Event(Happening.EXPLORED, "e", timezone.now(), row.pk))
    }


def test_what_is_typed_is_completed(operators: dict[str, Operator], pages: Any) -> None:
    def suggested(text: str) -> list[str]:
        html = pages.get("/operators/", {"q": text, "suggest": "1"}).content.decode()
        return re.findall(r'value="([^"]*)"', html)

    assert suggested("con") == ["Conv", CONV]
    assert suggested("56x56 con") == ["56x56 Conv", CONV]
    assert suggested("512x512") == [MATMUL]
    assert suggested("nothing-like-this") == suggested("") == []
