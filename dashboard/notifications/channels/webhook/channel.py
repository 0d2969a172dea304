"""Webhooks: handed to the organisation's outbox, which signs, sends, retries and replays."""

from __future__ import annotations

from dashboard.notifications.channels.base import HandingOver
from dashboard.notifications.channels.outcome import SendResult
from dashboard.notifications.channels.webhook import handing_over
from dashboard.notifications.write.letters import Letter


class Webhook(HandingOver):
    name, label = "webhook", "Webhook"
    of_organisation = True
    card = "notifications/channels/_webhook.html"

    def hand_over(self, letter: Letter) -> SendResult:
        return handing_over.send(letter)
