"""Words of foreign code: error texts, build logs, what it prints. This is the one place where they come in.

Whatever a child answers or prints is its kernel's (or compiler's) own words: nobody has checked them. They
are kept for people, shortened and without characters that would act on a terminal or hide what is written
(control characters, marks of direction, invisible ones); pages escape them and say whose they are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

MOST_CHARACTERS = 4000
MOST_LOG_CHARACTERS = 16_000
_KEPT = "\n\t"


def plain(text: str, most: int = MOST_CHARACTERS) -> str:
    """``text`` without control and format characters, at most ``most`` characters of it."""
    text = text[: 2 * most].replace("\r\n", "\n").replace("\r", "\n")
    return "".join(one for one in text if one in _KEPT or unicodedata.category(one)[0] != "C")[:most]


def plain_answer(body: Mapping[str, Any], most: int = MOST_CHARACTERS) -> dict[str, Any]:
    """A child's answer with every text in it made plain."""
    return {key: plain(value, most) if isinstance(value, str) else value for key, value in body.items()}
