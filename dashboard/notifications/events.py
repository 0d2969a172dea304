"""An event as a value: read from durable rows, matched with subscriptions, put into words."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from catalog.models import SHARED
from dashboard.notifications.models import Happening


@dataclass(frozen=True)
class Event:
    """One event. ``key`` is its permanent name: nobody is told of it twice. ``scope`` says who may know of
    it; for a hit, ``organisation_id`` does. ``facts`` is plain JSON, from which
    :func:`dashboard.notifications.find.notify.text_of` makes the sentence. ``count``: how many hits it stands
    for."""

    happening: Happening
    key: str
    at: datetime
    operator_id: int | None  # None: it happened to the service
    target_id: int | None = None
    setting_id: int | None = None
    scope: str = SHARED
    organisation_id: int | None = None
    job_id: int | None = None
    method: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    count: int = 1


def stamp(moment: datetime) -> str:
    """A moment within a key: seconds with six digits."""
    return f"{moment.timestamp():.6f}"
