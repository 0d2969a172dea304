"""HTML of values, as Django's ``conditional_escape`` and ``format_html`` make it, without their look for
translations that are yet to come: a page has thousands of cells, and no text of ours is lazy."""

from __future__ import annotations

from html import escape
from typing import Any

from django.utils.safestring import SafeString


def escaped(value: Any) -> SafeString:
    """Safe text as it is, anything else escaped."""
    if type(value) is SafeString:
        return value
    return value.__html__() if hasattr(value, "__html__") else SafeString(escape(str(value)))


def filled(text: str, *values: Any) -> SafeString:
    """``text``, which is markup, with values in its ``{}``, escaped."""
    return SafeString(text.format(*map(escaped, values)))
