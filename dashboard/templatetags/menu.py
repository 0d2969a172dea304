"""The navigation, with the number of kernels that wait for the reader's decision."""

from __future__ import annotations

from typing import Any

from django import template

from catalog.viewing import APPROVE
from dashboard.notifications.alerts.selectors import open_alerts
from dashboard.web.menu import groups_for
from tuning.kernels.selectors import undecided_for

register = template.Library()


@register.simple_tag(takes_context=True)
def menu(context: template.Context) -> list[Any]:
    """Groups of entries for whoever looks."""
    return groups_for(context["request"].viewer)


@register.simple_tag(takes_context=True)
def alerts_firing(context: template.Context) -> int:
    """How many alerts nobody has taken up, of those that the reader sees."""
    known = context.get("alerts_firing")  # a page that says it has counted already
    return int(known) if known is not None else open_alerts(context["request"].viewer).firing


@register.simple_tag(takes_context=True)
def kernels_waiting(context: template.Context) -> int:
    """How many versions wait for the reader's decision; 0 for who decides on none by a role."""
    request = context["request"]
    return undecided_for(request.user) if request.viewer.may(APPROVE) else 0
