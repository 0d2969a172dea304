"""The badge of what is unread, and the form that watches something."""

from __future__ import annotations

from typing import Any

from django import template
from django.template.loader import render_to_string
from django.utils.safestring import mark_safe

from catalog.errors import RequestError
from catalog.models import Job, Model, Operator
from dashboard.notifications import selectors
from dashboard.notifications.channels.registry import CHANNELS
from dashboard.notifications.models import Digest, Subscription
from dashboard.notifications.subscribing import begun, happenings_of
from dashboard.notifications.write import subjects

register = template.Library()


@register.simple_tag(takes_context=True)
def unread_count(context: template.Context) -> int:
    """Of whoever looks; nobody has none."""
    user = context["request"].user
    return selectors.unread(user) if user.is_authenticated else 0


@register.inclusion_tag("notifications/_watch.html", takes_context=True)
def watch(
    context: template.Context,
    *,
    operator: Operator | None = None,
    place: Any = None,
    job: Job | None = None,
    model: Model | None = None,
    filters: Any = None,
    service: bool = False,
    account: bool = False,
) -> dict[str, Any]:
    """A button with a small form: watch this operator (in its place), job, model, what a filter finds, the
    service, or what an organisation spends."""
    request = context["request"]
    fields: dict[str, Any] = {}
    placed_key = ""
    try:
        if operator is not None:
            fields = {"subject": "operator", "operator": operator.key}
            about_key = f"operator:{operator.pk}::"
            if place is not None:
                placed_key = f"operator:{operator.pk}:{place.target.pk}:{place.setting.pk}"
            what = "this operator"
        elif job is not None:
            fields, about_key, what = {"subject": "job", "job": job.pk}, f"job:{job.pk}", "this job"
        elif model is not None:
            fields = {"subject": "model", "model": model.pk}
            about_key, what = f"model:{model.pk}", "this model"
        elif service:
            about = subjects.service(request.viewer)
            fields, about_key, what = {"subject": "service"}, about.key, "the service itself"
        elif account:
            about = subjects.account(request.viewer)
            fields, about_key, what = {"subject": "account"}, about.key, "what is spent"
        else:
            asked = {name: getattr(filters, name, "") for name in subjects.FILTERS}
            about = subjects.operators_that(asked)
            fields = {"subject": "filter", **{name: text for name, text in asked.items() if text}}
            about_key, what = about.key, about.title[:1].lower() + about.title[1:]
    except RequestError:  # a filter that finds nothing, such as an unknown target; a service of others
        return {"fields": {}}
    existing = selectors.watched(request.user, request.viewer, [about_key, placed_key])
    return {
        "fields": fields,
        "place": place,
        "what": what,
        "existing": existing,
        "next": request.get_full_path(),
        "csrf_token": context.get("csrf_token"),
        **choices(existing or begun(fields["subject"])),
    }


def choices(existing: Subscription | None) -> dict[str, Any]:
    """The form's boxes, ticked as the subscription has them or as a new one begins."""
    row = existing or begun("filter")
    told = happenings_of(row.subject)
    return {
        "happenings": [(one.value, one.label, getattr(row, f"on_{one.value}")) for one in told],
        "channels": [(one.name, one.label, one.name in row.told_by) for one in CHANNELS.values()],
        "digests": [(one.value, one.label, row.digest == one.value) for one in Digest],
    }


@register.filter
def channel_label(name: str) -> str:
    """A channel as people read it."""
    return CHANNELS[name].label


@register.simple_tag(takes_context=True)
def channel_cards(context: template.Context) -> str:
    """What each channel has to say or to ask beside the subscriptions."""
    request = context["request"]
    return mark_safe(
        "".join(
            render_to_string(one.card, dict(one.card_context(request.user)), request)
            for one in CHANNELS.values()
            if one.card
        )
    )
