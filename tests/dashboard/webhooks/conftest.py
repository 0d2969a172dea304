"""Receivers, endpoints and a clock that can be moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.dashboard.webhooks.receiver import Receiver, receiving


@pytest.fixture
def receiver(configure: Any) -> Iterator[Receiver]:
    """A local receiver to which the service may send."""
    with receiving() as one:
        configure(webhooks_allow=(one.address,))
        yield one


@pytest.fixture
def endpoint(receiver: Receiver, organisation: Any) -> Any:
    """An endpoint of the receiver that subscribes to everything; ``.secret`` is the text of its secret."""
    from dashboard.webhooks import endpoints

    row, secret = endpoints.create(organisation, receiver.url)
    row.secret = secret
    return row


class Clock:
    def __init__(self) -> None:
        self.shift = timedelta()

    def now(self) -> datetime:
        return timezone.now() + self.shift

    def forward(self, **by: float) -> None:
        self.shift += timedelta(**by)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of retries and rotations: ``clock.forward(hours=24)``."""
    moved = Clock()
    monkeypatch.setattr("dashboard.webhooks.clock.now", moved.now)
    return moved


@pytest.fixture
def send(organisation: Any) -> Callable[..., Any]:
    """``send("a")`` writes an event about a best under the key ``a``."""
    from dashboard.webhooks.sending import send as write

    return lambda key, kind="best.changed", **data: write(organisation, kind, data, key=key)


@pytest.fixture
def deliver() -> Callable[[], None]:
    """The courier's chore, and the end of what it began."""
    from dashboard.webhooks import delivering

    def run() -> None:
        delivering.deliver()
        delivering._deliverer().wait(60)

    return run
