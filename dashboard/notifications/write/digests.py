"""When messages leave. By their arguments, and one setting: the hour of the daily digest."""

from __future__ import annotations

from datetime import datetime, timedelta

from dashboard.conf import conf
from dashboard.notifications.models import Digest


def due_at(digest: Digest, now: datetime) -> datetime:
    """When what is told now leaves: at once, at the next full hour, or at the next daily digest's hour."""
    if digest == Digest.AT_ONCE:
        return now
    hour = now.replace(minute=0, second=0, microsecond=0)
    if digest == Digest.HOURLY:
        return hour + timedelta(hours=1)
    today = hour.replace(hour=conf().digest_hour)
    return today if today > now else today + timedelta(days=1)
