"""What grows, counted again from the samples by every pair of them."""

from __future__ import annotations

from datetime import timedelta
from statistics import median

import pytest
from django.utils import timezone

from dashboard.operation.growth.selectors import growth_now
from dashboard.operation.models import SizeSample
from tests.dashboard.operation.growth.making import sizes

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def slope(values: list[tuple[float, int]]) -> float:
    """Of (day, bytes) in any order."""
    pairs = [(a, b) for a in values for b in values if a[0] < b[0]]
    return median((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs)


def test_a_days_growth_and_when_its_disk_is_full() -> None:
    now = timezone.now()
    sizes(now, days=45)
    found = growth_now()
    last_at = max(SizeSample.objects.values_list("at", flat=True))
    assert len(found.things) == SizeSample.objects.filter(at=last_at).count() > 10
    for thing in found.things:
        rows = sorted(SizeSample.objects.filter(name=thing.name), key=lambda row: row.at)[-30:]
        a_day = slope([((row.at - now) / DAY, row.bytes) for row in rows])
        assert thing.bytes_a_day == pytest.approx(a_day, abs=1e-3)
        free = rows[-1].free_bytes
        expected = free / a_day if free is not None and a_day > 0 else None
        assert thing.full_in_days == (pytest.approx(expected) if expected else None)
        assert (thing.bytes, thing.rows) == (rows[-1].bytes, rows[-1].rows)
    (disk,) = found.disks
    rows = sorted(SizeSample.objects.filter(name="artifact store"), key=lambda row: row.at)[-30:]
    a_day = slope([((row.at - now) / DAY, -row.free_bytes) for row in rows])
    assert (disk.bytes_a_day, disk.free_bytes) == (pytest.approx(a_day), rows[-1].free_bytes)
    assert disk.full_in_days == pytest.approx(rows[-1].free_bytes / a_day)
