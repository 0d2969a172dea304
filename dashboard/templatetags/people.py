"""What the account menu offers."""

from __future__ import annotations

from django import template

from catalog.models import Organisation
from catalog.viewing import Viewer

register = template.Library()
MOST = 200


@register.simple_tag(takes_context=True)
def organisations_to_choose(context: template.Context) -> list[tuple[int | str, str]]:
    """(number, name) of the organisations that somebody may look at; ``""`` is all of them, for the host."""
    request = context.get("request")
    viewer: Viewer | None = getattr(request, "viewer", None)
    if viewer is None or (not viewer.sees_all and len(viewer.roles) < 2):
        return []
    rows = Organisation.objects.order_by("-host", "name")
    if not viewer.sees_all:
        rows = rows.filter(pk__in=viewer.roles)
    found: list[tuple[int | str, str]] = list(rows.values_list("pk", "name")[:MOST])
    if len(found) < 2:
        return []
    return [("", "All"), *found] if viewer.sees_all else found
