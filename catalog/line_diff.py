"""A unified diff of two texts, in a time that is bounded whatever they say. PURE."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

CONTEXT = 3
MOST_COMPARED = 600
"""Lines that are compared one with another: difflib's time grows faster than their square if they repeat. If
more differ, all old ones are shown before all new ones."""
_HUNK = re.compile(r"@@ -(\d+)(.*?) \+(\d+)(.*) @@")


def unified_diff(before: Sequence[str], after: Sequence[str], old_name: str, new_name: str) -> list[str]:
    """As :func:`difflib.unified_diff`; empty where they are the same."""
    if before == after:
        return []
    begin = _common(zip(before, after, strict=False))
    most = min(len(before), len(after)) - begin
    end = min(most, _common(zip(reversed(before), reversed(after), strict=False)))
    first = max(0, begin - CONTEXT)
    old = before[first : len(before) - end + CONTEXT if end else None][: len(before) - first]
    new = after[first : len(after) - end + CONTEXT if end else None][: len(after) - first]
    if max(len(before), len(after)) - begin - end > MOST_COMPARED:
        old, new = before[begin : len(before) - end], after[begin : len(after) - end]
        hunk = f"@@ -{_range(begin, len(old))} +{_range(begin, len(new))} @@"
        return [
            f"--- {old_name}",
            f"+++ {new_name}",
            hunk,
            *(f"-{one}" for one in old),
            *(f"+{one}" for one in new),
        ]
    return [
        _HUNK.sub(lambda found: _moved(found, first), line) if line.startswith("@@") else line
        for line in difflib.unified_diff(old, new, old_name, new_name, lineterm="", n=CONTEXT)
    ]


def _common(pairs: Iterator[tuple[str, str]]) -> int:
    count = 0
    for one, other in pairs:
        if one != other:
            break
        count += 1
    return count


def _range(begin: int, lines: int) -> str:
    """As ``diff -u`` writes it: of nothing, the line that it follows."""
    return str(begin + 1) if lines == 1 else f"{begin + 1 if lines else begin},{lines}"


def _moved(found: re.Match[str], lines: int) -> str:
    return f"@@ -{int(found[1]) + lines}{found[2]} +{int(found[3]) + lines}{found[4]} @@"
