"""The interface of a channel. A new one is a folder with a class of these few methods, and a line in
``registry``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.urls import URLPattern

from dashboard.notifications.channels.outcome import SendResult
from dashboard.notifications.models import NotificationMessage
from dashboard.notifications.write.letters import Letter


class Channel:
    """A way to people. ``name``: its name in rows, REST and forms (10 characters at most). This base sends
    nothing: a notification is shown on the page."""

    name: str
    label: str
    of_organisation = False
    """Told once to an organisation, however many of its people asked for it."""
    urls: tuple[URLPattern, ...] = ()
    card = ""
    """Its part of the subscriptions page: a template."""

    def why_not(self, user: User) -> str:
        """Why this person cannot choose it yet, and what would be right; empty if nothing is missing."""
        return ""

    def card_context(self, user: User) -> Mapping[str, Any]:
        """The context of ``card``."""
        return {}


class HandingOver(Channel):
    """A channel that puts messages into another queue of the database."""

    def hand_over(self, letter: Letter) -> SendResult:
        """Called in the transaction that marks the message, so that nothing is handed over twice."""
        raise NotImplementedError


@dataclass(frozen=True)
class Errand:
    """Letters that one thread sends. ``send`` takes the time (monotonic seconds) after which it begins
    nothing new, does not use the database, and returns each message's result."""

    letters: Sequence[Letter]
    send: Callable[[float], Mapping[int, SendResult]]


class Sending(Channel):
    """A channel that talks to an external server."""

    def errands(self, letters: Sequence[Letter]) -> list[Errand]:
        """The letters in as many parts as may be sent in parallel; all reading is done here."""
        raise NotImplementedError

    def ended(self, message: NotificationMessage, outcome: SendResult) -> dict[str, object]:
        """Further columns of the message to write after a try."""
        return {}
