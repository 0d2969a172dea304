"""Every channel, in the order in which people see them."""

from __future__ import annotations

from dashboard.notifications.channels.base import Channel
from dashboard.notifications.channels.email.channel import Email
from dashboard.notifications.channels.page.channel import Page
from dashboard.notifications.channels.push.channel import Push
from dashboard.notifications.channels.webhook.channel import Webhook

CHANNELS: dict[str, Channel] = {one.name: one for one in (Page(), Email(), Webhook(), Push())}
