"""Searching operators by words: one rule for lists, REST and subscriptions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from catalog.models import Operator

MOST_WORDS = 8
_KEY = "o1:"
_HEXADECIMAL = re.compile(r"[0-9a-f]{6,64}")


@dataclass(frozen=True)
class Words:
    """What somebody types to find operators. Every word must be in the summary (which begins with the type),
    or begin the key: written in full (``o1:3f2a…``), or as six or more hexadecimal digits."""

    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Words:
        """The first eight words, whatever their case: keys are lower-case, summaries are compared without."""
        return cls(tuple(text.lower().split()[:MOST_WORDS]))

    def condition(self, operator: str = "") -> Q:
        """As a condition on rows of operators, or on rows that have one in the column ``operator``."""
        column = f"{operator}__" if operator else ""
        found = Q()
        for word in self.words:
            named = {} if word.startswith(_KEY) else {f"{column}summary__icontains": word}
            found &= Q(*named.items(), *_key_of(word, column).items(), _connector=Q.OR)
        return found

    def match(self, operator: Operator) -> bool:
        """Whether one operator (``summary`` and ``key`` loaded) is found."""
        summary = operator.summary.lower()
        return all(
            (not word.startswith(_KEY) and word in summary)
            or any(operator.key.startswith(begin) for begin in _key_of(word).values())
            for word in self.words
        )


def _key_of(word: str, column: str = "") -> dict[str, Any]:
    """How the key would begin, were the word one: none where it cannot be."""
    if word.startswith(_KEY):
        return {f"{column}key__startswith": word}
    return {f"{column}key__startswith": f"{_KEY}{word}"} if _HEXADECIMAL.fullmatch(word) else {}
