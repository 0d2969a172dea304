"""Invented samples of sizes."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from dashboard.operation.models import SizeSample

MB, GB = 10**6, 10**9
DISK = "/srv/opatlas"
SIZES = {
    "catalog_usage": (2_400, 21.0), "catalog_jobday": (900, 6.0), "tuning_trial": (700, 3.5),
    "catalog_implementation": (420, 1.2), "catalog_auditentry": (140, 0.9), "billing_ledgerentry": (95, 0.7),
    "webhooks_attempt": (80, 0.0), "catalog_operator": (64, 0.1), "catalog_best": (41, 0.1),
    "notifications_notification": (30, -0.2), "artifact store": (5_200, 14.0), "journal": (12, 0.0),
    "other state": (310, 0.2),
}  # fmt: skip
"""Name → what it took at first, and how it grows a day; in MB."""

FOLDERS = ("artifact store", "journal", "other state")


def sizes(now: datetime, days: int = 35, mark: str = "", small: int = 4) -> None:
    """As many samples, a day apart, with a gap of four days; and some small tables."""
    chance = random.Random(5)
    known = SIZES | {f"app_small{n}": (0.3, 0.0) for n in range(small)}
    rows = []
    for day in range(days):
        if days > 12 and days // 3 <= day < days // 3 + 4:
            continue
        at = now - timedelta(days=days - 1 - day, hours=2)
        free = round((400 - 0.05 * day) * GB)
        for name, (first, a_day) in known.items():
            size = round((first + a_day * day + chance.uniform(-0.3, 0.3)) * MB)
            folder = name in FOLDERS
            rows.append(
                SizeSample(
                    at=at, name=name + mark, bytes=max(size, 8192), rows=None if folder else size // 150,
                    disk=DISK if folder else "", free_bytes=free if folder else None,
                )
            )  # fmt: skip
    SizeSample.objects.bulk_create(rows)
