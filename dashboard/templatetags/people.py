"""What the account menu offers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import template
from django.utils.safestring import SafeString

from catalog.models import Organisation
from catalog.viewing import Viewer
from dashboard.web.markup import filled
from dashboard.web.organisations import every_organisation

register = template.Library()
MOST = 200


@register.simple_tag(takes_context=True)
def organisations_to_choose(context: template.Context) -> list[tuple[int | str, str]]:
    """(number, name) of the organisations that somebody may look at; ``""`` is all of them, for the host."""
    request = context.get("request")
    viewer: Viewer | None = getattr(request, "viewer", None)
    if request is None or viewer is None or (not viewer.sees_all and len(viewer.roles) < 2):
        return []
    if not viewer.sees_all:
        own = Organisation.objects.filter(pk__in=viewer.roles).order_by("-host", "name")
        return list(own.values_list("pk", "name")[:MOST])
    every = sorted(every_organisation(request), key=lambda one: not one.host)
    return [("", "All"), *((one.number, one.name) for one in every[:MOST])] if len(every) > 1 else []


@register.simple_tag
def options(choices: Iterable[tuple[Any, str]], chosen: Any) -> SafeString:
    """``<option>`` of each (value, name). Made here and not by a template's loop: a host has hundreds."""
    made = (
        filled('<option value="{}"{}>{}</option>', value, _SELECTED if value == chosen else "", name)
        for value, name in choices
    )
    return SafeString("".join(made))


_SELECTED = SafeString(" selected")
