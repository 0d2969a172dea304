"""Machine code as its page shows it: function by function, the busiest loop marked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

from catalog.best.machine_code import KeptCode, code_of
from catalog.models import Implementation
from dashboard.web.highlighting import SHOWN_CHARACTERS

MOST_FUNCTIONS = 40
_LOOP = re.compile(r"^; innermost loop: (\d+) instructions, (\d+) of them vector arithmetic$", re.MULTILINE)
_ADDRESS = re.compile(r"^\s*[0-9a-f]+:\s+", re.MULTILINE)
_PLACE = re.compile(r"\b(?:0x)?[0-9a-f]+ (<[^>]*>)")
_DISTANCE = re.compile(r"\+0x[0-9a-f]+>")


@dataclass(frozen=True)
class ShownFunction:
    """One function's lines as HTML. ``vector``: so many of its busiest loop's instructions are vector
    arithmetic; ``is_busiest``: no other function has a loop with as many."""

    name: str
    code: SafeString
    instructions: int
    loops: int
    vector: int
    is_busiest: bool


@dataclass(frozen=True)
class ShownCode:
    """What is kept, its functions as far as they are shown, and how many are not."""

    kept: KeptCode
    functions: Sequence[ShownFunction]
    more: int

    @property
    def busiest(self) -> ShownFunction | None:
        return next((one for one in self.functions if one.is_busiest), None)


def machine_code(row: Implementation) -> ShownCode:
    """Of an implementation with its artifact and its machine code."""
    kept = code_of(row)
    blocks = [block.partition(":\n") for block in kept.text.split("\n\n") if block.strip()]
    shown, room = [], SHOWN_CHARACTERS
    for name, _, body in blocks[:MOST_FUNCTIONS]:
        if room <= 0:
            break
        shown.append((name, body.rstrip("\n")))
        room -= len(body)
    most = max((_vector(body) for _, body in shown), default=0)
    busiest = next((name for name, body in shown if 0 < most == _vector(body)), None)
    found = [_function(name, body, row.pk if name == busiest else None) for name, body in shown]
    return ShownCode(kept, found, len(blocks) - len(found))


def comparable(text: str) -> str:
    """Without addresses: they differ wherever a line before them does."""
    return _DISTANCE.sub(">", _PLACE.sub(r"\1", _ADDRESS.sub("\t", text)))


def _vector(body: str) -> int:
    return max((int(loop[2]) for loop in _LOOP.finditer(body)), default=0)


def _function(name: str, body: str, number: int | None) -> ShownFunction:
    """``number``: what its busiest loop's anchor is called by, where no function has a busier one."""
    most, anchored = _vector(body), number is None
    html = list[SafeString]()
    for line in body[:SHOWN_CHARACTERS].splitlines():
        loop = _LOOP.match(line)
        if loop is None:
            html.append(conditional_escape(line))
        elif anchored or int(loop[2]) < most:
            html.append(format_html('<span class="c1">{}</span>', line))
        else:
            anchored = True
            html.append(format_html('<span class="c1" id="loop-{}">{}</span>', number, line))
    instructions = sum(1 for line in body.splitlines() if _ADDRESS.match(line))
    code = mark_safe("\n".join(html))  # each line was escaped
    return ShownFunction(name, code, instructions, len(_LOOP.findall(body)), most, number is not None)
