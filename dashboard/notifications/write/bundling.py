"""Deliveries that are due become messages: what leaves for one person by one channel leaves together."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from catalog.steps import each
from dashboard.notifications.models import NotificationDelivery, NotificationMessage

GROUPS_AT_A_TIME = 500

_GROUP = ("user_id", "organisation_id", "channel", "digest")


def bundle(now: datetime) -> int:
    """Gives how many messages were made. Harmless to kill and to run twice: a delivery is put into one
    message by compare-and-swap."""
    groups = _due(now).values_list(*_GROUP).order_by(*_GROUP).distinct()[:GROUPS_AT_A_TIME]

    def bundled(group: tuple[Any, ...]) -> bool:
        which = dict(zip(_GROUP, group, strict=True))
        with transaction.atomic():
            message = NotificationMessage.objects.create(**which, due_at=now)
            made = _due(now).filter(**which).update(message=message) > 0
            if not made:  # somebody else was faster
                message.delete()
        return made

    return sum(each("bundling messages", groups, bundled))


def _due(now: datetime) -> QuerySet[NotificationDelivery]:
    return NotificationDelivery.objects.filter(message=None, due_at__lte=now)
