"""Every address of the service: pages from the URL resolver, the API from its schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator

LEFT_OUT = ("admin/", "^api/", "api/v1/")
"""Django's own administration (for people of the host with ``is_staff``; it has a test of its own), the
API's answer to unknown addresses, and what the schema describes."""

_ARGUMENT = re.compile(r"<(?:\w+:)?(\w+)>|\{(\w+)\}")


@dataclass(frozen=True)
class Address:
    """One address; ``name`` is how the table of examples calls it: a page's route name, an API's path."""

    name: str
    path: str  # with its arguments' names between < and >, or { and }
    methods: tuple[str, ...]
    api: bool = False

    @property
    def arguments(self) -> list[str]:
        return [page or api for page, api in _ARGUMENT.findall(self.path)]

    def filled(self, arguments: dict[str, Any]) -> str:
        return "/" + _ARGUMENT.sub(lambda m: str(arguments[m[1] or m[2]]), self.path).lstrip("/")


def pages() -> list[Address]:
    """Every page and every address that a page's forms and scripts call."""
    found = []
    for path, pattern in _walk(get_resolver()):
        if not path.startswith(LEFT_OUT):
            found.append(Address(pattern.name or path, path, ("GET", "POST")))
    return found


def api() -> list[Address]:
    """Every path of the schema, with the methods that it describes."""
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]  # type: ignore[no-untyped-call]
    verbs = ("get", "post", "put", "patch", "delete")
    return [
        Address(path.removeprefix("/api/v1/"), path, tuple(v.upper() for v in verbs if v in described), True)
        for path, described in paths.items()
    ]


def undescribed() -> list[str]:
    """Routes below /api/v1/ that the schema leaves out: they would be in no list."""
    described = len(api())
    routes = [path for path, _ in _walk(get_resolver()) if path.startswith("api/v1/")]
    known = {"api/v1/schema/", "api/v1/docs/"}
    return [] if len(set(routes) - known) == described else sorted(set(routes) - known)


def _walk(resolver: URLResolver, before: str = "") -> Iterator[tuple[str, URLPattern]]:
    for one in resolver.url_patterns:
        path = before + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from _walk(one, path)
        else:
            yield path, one
