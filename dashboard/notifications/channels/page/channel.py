"""The inbox: what is told there stands there, and leaves by nothing."""

from __future__ import annotations

from dashboard.notifications.channels.base import Channel

NAME = "page"


class Page(Channel):
    name, label = NAME, "This dashboard"
