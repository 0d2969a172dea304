"""Addresses of pages that open something by themselves: they are written down nowhere."""

from __future__ import annotations

import re

_SECRET_LINKS = re.compile(r"(/(?:invited|forgotten|notifications/unsubscribe)/)[^\s?#\"'<>\\]+")


def without_secret_links(text: str) -> str:
    """A text whose links open nothing any more: who has one of an invitation or a new password has the
    account. It keeps which page it was."""
    return _SECRET_LINKS.sub(r"\1…", text)
