"""Addresses of pages, cached by the process: Django searches its URL table for each, which for a list of
hundreds takes as long as its cells."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.urls import get_script_prefix, reverse

_KEPT = 4096


def address(name: str, *arguments: Any) -> str:
    """``reverse(name, args=arguments)``; the arguments can be hashed."""
    return _found(get_script_prefix(), name, arguments)


@lru_cache(maxsize=_KEPT, typed=True)
def _found(prefix: str, name: str, arguments: tuple[Any, ...]) -> str:
    return reverse(name, args=arguments)
