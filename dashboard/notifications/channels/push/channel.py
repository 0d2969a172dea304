"""Web Push: to every browser that this person allowed it in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.urls import path
from django.utils import timezone

from dashboard.notifications.channels.base import Errand, Sending
from dashboard.notifications.channels.outcome import SendResult
from dashboard.notifications.channels.push import pages, sending, vapid
from dashboard.notifications.models import NotificationMessage, PushDevice
from dashboard.notifications.write.letters import Letter


class Push(Sending):
    name, label = "push", "Phone or browser"
    card = "notifications/channels/_push.html"
    urls = (
        path("notifications/push/", pages.register, name="push-register"),
        path("notifications/push/key/", pages.public_key, name="push-key"),
        path("notifications/push/<int:pk>/forget/", pages.forget, name="push-forget"),
        path("sw.js", pages.service_worker, name="service-worker"),
    )

    def card_context(self, user: User) -> Mapping[str, Any]:
        return {"devices": user.push_devices.order_by("pk"), "public_key": vapid.public_key()}

    def errands(self, letters: Sequence[Letter]) -> list[Errand]:
        devices = _devices({letter.user_id for letter in letters})
        return [_errand(letter, devices.get(letter.user_id, ())) for letter in letters]

    def ended(self, message: NotificationMessage, outcome: SendResult) -> dict[str, object]:
        PushDevice.objects.filter(pk__in=outcome.gone).delete()
        new = set(outcome.reached) - set(message.reached)
        PushDevice.objects.filter(pk__in=new).update(last_sent_at=timezone.now(), error="")
        return {"reached": list(outcome.reached)}


def _errand(letter: Letter, devices: Sequence[sending.Device]) -> Errand:
    return Errand([letter], lambda until: {letter.message_id: sending.send(letter, devices, until)})


def _devices(users: set[int]) -> dict[int, list[sending.Device]]:
    found: dict[int, list[sending.Device]] = {}
    for row in PushDevice.objects.filter(user__in=users).order_by("pk"):
        found.setdefault(row.user_id, []).append(sending.Device(row.pk, row.endpoint, row.p256dh, row.auth))
    return found
