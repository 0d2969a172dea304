"""The organisations that a page lets somebody choose from."""

from __future__ import annotations

from typing import NamedTuple

from django.http import HttpRequest

from catalog.models import Organisation


class NamedOrganisation(NamedTuple):
    number: int
    name: str
    host: bool


def every_organisation(request: HttpRequest) -> list[NamedOrganisation]:
    """By name. Read once for a request: the account menu offers them, and pages that filter by them too."""
    found: list[NamedOrganisation] | None = getattr(request, "_organisations", None)
    if found is None:
        rows = Organisation.objects.order_by("name").values_list("pk", "name", "host")
        found = [NamedOrganisation._make(row) for row in rows]
        request._organisations = found  # type: ignore[attr-defined]
    return found
