"""E-mail: one connection for all that is due."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from django.contrib.auth.models import User
from django.urls import path

from dashboard.notifications.channels.base import Errand, Sending
from dashboard.notifications.channels.email import pages, sending
from dashboard.notifications.channels.email.unsubscribing import NAME
from dashboard.notifications.write.letters import Letter


class Email(Sending):
    name, label = NAME, "E-mail"
    card = "notifications/channels/_email.html"
    urls = (
        path("notifications/address/", pages.address, name="notification-address"),
        path("notifications/unsubscribe/<str:token>/", pages.unsubscribe, name="notification-unsubscribe"),
    )

    def why_not(self, user: User) -> str:
        if user.email:
            return ""
        return "Your account has no e-mail address: add it under Notifications, Subscriptions first."

    def errands(self, letters: Sequence[Letter]) -> list[Errand]:
        return [Errand(letters, partial(sending.send_all, letters))]
