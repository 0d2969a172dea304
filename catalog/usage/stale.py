"""Marks hours whose rollups differ from the rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from catalog import models
from catalog.upsert import insert_or


def mark_stale(hours: Iterable[datetime]) -> None:
    """Have these hours (UTC, whole) rolled up again; call it in the transaction that changes their rows.

    A mark that is there already is counted up, which locks it: whoever made the hour meanwhile clears only
    the count that it saw, so that what this transaction changes is never left out.
    """
    insert_or(
        models.StaleHour,
        [{"hour": hour, "marks": 1} for hour in sorted(set(hours))],
        unique=["hour"],
        updates={"marks": "old.marks + 1"},
    )
