"""Deliveries that are due become messages: what leaves for one person by one channel leaves together."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from dashboard.notifications.models import NotificationDelivery, NotificationMessage

GROUPS_AT_A_TIME = 500

_GROUP = ("user_id", "organisation_id", "channel", "digest")


def bundle(now: datetime) -> int:
    """Gives how many messages were made. Harmless to kill and to run twice: a delivery is put into one
    message by compare-and-swap."""
    made = 0
    for group in _due(now).values_list(*_GROUP).order_by(*_GROUP).distinct()[:GROUPS_AT_A_TIME]:
        which = dict(zip(_GROUP, group, strict=True))
        with transaction.atomic():
            message = NotificationMessage.objects.create(**which, due_at=now)
            if _due(now).filter(**which).update(message=message):
                made += 1
            else:  # somebody else was faster
                message.delete()
    return made


def _due(now: datetime) -> QuerySet[NotificationDelivery]:
    return NotificationDelivery.objects.filter(message=None, due_at__lte=now)
