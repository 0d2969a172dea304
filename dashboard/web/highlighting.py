"""Schedules and sources, highlighted."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.safestring import SafeString, mark_safe
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

SHOWN_CHARACTERS = 60_000
"""Longer code is cut on pages: generated kernels reach megabytes, and nobody reads those in a browser."""


@dataclass(frozen=True)
class Code:
    """Highlighted HTML, the language it was taken for, and how many characters were left out."""

    html: SafeString
    language: str
    cut: int


def highlighted(text: str, language: str = "") -> Code:
    """``text`` as HTML; Pygments escapes it. ``language``: a lexer's name, where it is known."""
    language = language or language_of(text)
    lexer = get_lexer_by_name(language, stripnl=False)
    html = highlight(text[:SHOWN_CHARACTERS], lexer, HtmlFormatter(nowrap=True))
    return Code(mark_safe(html), language, max(len(text) - SHOWN_CHARACTERS, 0))


def language_of(text: str) -> str:
    """The Pygments lexer that suits what routes write: JSON recipes, TVMScript, C, C++, LLVM, assembly."""
    head = text.lstrip()[:2000]
    if head.startswith(("{", "[")):
        return "json"
    if head.startswith("; ModuleID") or "\ndefine " in head or "target triple" in head:
        return "llvm"
    if "#include" in head or "void " in head or 'extern "C"' in head:
        return "cpp" if "std::" in text or "template" in head else "c"
    if "import " in head or "def " in head or "@T." in head or "@I." in head:
        return "python"
    return "gas" if "\t.text" in head else "text"
