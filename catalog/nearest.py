"""What a person who named something unknown probably meant."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

_MOST_NAMED = 20


def meant(missing: str, known: Sequence[str]) -> str:
    """``did you mean tvm?``; without a similar name, the existing ones. The end of a sentence."""
    near = get_close_matches(missing, known, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known[:_MOST_NAMED])}."
