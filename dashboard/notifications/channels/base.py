"""What a channel is. A new one is a folder with a class of these few methods, and a line in ``registry``."""

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
    """A way to people. ``name`` is what rows, REST and forms call it (10 characters at most).

    As it stands nothing leaves by it: a notification is shown where somebody looks (the page).
    """

    name: str
    label: str
    of_organisation = False
    """Told once to an organisation, however many of its people asked for it."""
    urls: tuple[URLPattern, ...] = ()
    card = ""
    """Its part of the subscriptions page: a template."""

    def why_not(self, user: User) -> str:
        """Why this person cannot choose it yet, and what would be right; empty where nothing is missing."""
        return ""

    def card_context(self, user: User) -> Mapping[str, Any]:
        """What ``card`` shows."""
        return {}


class HandingOver(Channel):
    """A channel whose messages go into another queue of the database."""

    def hand_over(self, letter: Letter) -> SendResult:
        """Called in the transaction that marks the message, so that nothing is handed over twice."""
        raise NotImplementedError


@dataclass(frozen=True)
class Errand:
    """Letters that one thread sends. ``send`` takes the time (monotonic seconds) after which nothing new is
    begun, asks no database, and says for each message what came of it."""

    letters: Sequence[Letter]
    send: Callable[[float], Mapping[int, SendResult]]


class Sending(Channel):
    """A channel that talks to somebody else's server."""

    def errands(self, letters: Sequence[Letter]) -> list[Errand]:
        """The letters in as many parts as may be sent side by side; what must be read is read here."""
        raise NotImplementedError

    def ended(self, message: NotificationMessage, outcome: SendResult) -> dict[str, object]:
        """What more to write down of a try: columns of the message."""
        return {}
