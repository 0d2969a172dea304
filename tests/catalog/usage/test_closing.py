"""Old usage goes, by whole months; what was summed up over it stays, to the unit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from catalog import failpoints, models
from catalog.conf import conf
from catalog.models import ClosedUsage, JobDay, LookupTally, StaleHour, Usage
from catalog.rollups import rollups
from catalog.usage import closing, journal, partitions
from catalog.usage.draining import drain_journal
from tests.catalog.rollups.test_rollups import everything

SERVED = {"hits": 5, "misses": 1, "saved_us": 5 * 50.0}


@pytest.fixture
def old() -> datetime:
    """A day at noon that is to be closed."""
    return partitions.month_after(timezone.now(), -conf().usage_months - 2) + timedelta(days=4, hours=12)


@pytest.fixture
def serve(put: Any, organisation: Any) -> Callable[..., None]:
    """Serve a hit at a moment, as the journal has it; or miss."""
    made = put(64, "onednn", 2.0).implementation

    def at(moment: datetime, *, hit: bool = True) -> None:
        served = (made.operator_id, made.pk, "onednn", "library", 50.0, 100.0, 1.0, False)
        journal.append(
            {
                "at": round(moment.timestamp(), 3),
                "org": organisation.pk,
                "job": "run 1",
                "hits": [served] if hit else [],
                "misses": [] if hit else [(made.operator_id, 1.0)],
            }
        )

    return at


@pytest.fixture
def months(serve: Callable[..., None], old: datetime) -> None:
    """Traffic of two hours long ago, of the night before, and of today; rolled up."""
    partitions.make_ahead(timezone.now())
    for hours in (0, 0, 3, -12):
        serve(old + timedelta(hours=hours))
    serve(old, hit=False)
    serve(timezone.now())
    drain_journal()
    assert rollups.refresh_rollups()


def sums() -> dict[str, float]:
    return LookupTally.objects.aggregate(**{name: Sum(name) for name in SERVED})


def keep_until_done() -> None:
    for _ in range(20):
        closing.keep_by_rule()
        a_day_passes()


def a_day_passes() -> None:
    ClosedUsage.objects.update(closed_at=timezone.now() - timedelta(days=1))


def test_rows_go_and_what_was_summed_stays(months: None, old: datetime) -> None:
    before, days = everything(), list(JobDay.objects.values_list().order_by("pk"))
    assert Usage.objects.count() == 5 and LookupTally.objects.count() == 4
    assert sums() == SERVED
    keep_until_done()
    assert Usage.objects.get().served_at > timezone.now() - timedelta(minutes=1)
    assert sums() == SERVED
    day = LookupTally.objects.get(hour=closing.day_of(old))
    assert (day.hits, day.misses, day.saved_us) == (4, 1, 4 * 50.0)
    assert everything() == before
    assert list(JobDay.objects.values_list().order_by("pk")) == days


def test_a_rebuild_leaves_closed_months_as_they_were(months: None) -> None:
    before = everything()
    keep_until_done()
    rollups.rebuild_rollups()
    after = everything()
    assert after["TrafficSlot"] == before["TrafficSlot"]
    assert after["RouteSlot"] == before["RouteSlot"]
    assert not StaleHour.objects.exists()


def test_nothing_is_closed_before_its_hours_are_rolled_up(serve: Callable[..., None], old: datetime) -> None:
    serve(old)
    drain_journal()
    keep_until_done()
    assert not ClosedUsage.objects.exists() and Usage.objects.count() == 1
    rollups.refresh_rollups()
    keep_until_done()
    assert not Usage.objects.exists()


def test_what_comes_later_is_counted_once_and_has_no_row(
    months: None, serve: Callable[..., None], old: datetime, caplog: pytest.LogCaptureFixture
) -> None:
    keep_until_done()
    before = everything()["TrafficSlot"]
    serve(old + timedelta(hours=1))
    assert drain_journal() == 1
    assert "1 lines of closed months" in caplog.text
    assert sums() == SERVED | {"hits": 6, "saved_us": 6 * 50.0}
    assert Usage.objects.count() == 1 and not StaleHour.objects.exists()
    assert LookupTally.objects.get(hour=closing.day_of(old)).hits == 5
    assert drain_journal() == 0 and sums()["hits"] == 6
    rollups.rebuild_rollups()
    assert everything()["TrafficSlot"] == before


@pytest.mark.parametrize("place", ["usage-forgetting", "tallies-summing"])
def test_it_can_be_killed_anywhere(
    months: None, old: datetime, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(at: str, **facts: object) -> None:
        if at == place:
            raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "at", die)
        with pytest.raises(SystemExit):
            keep_until_done()
    assert sums() == SERVED
    keep_until_done()
    assert sums() == SERVED
    assert Usage.objects.count() == 1 and LookupTally.objects.filter(hour__lt=old).count() == 1


def test_a_service_of_today_has_nothing_to_close(serve: Callable[..., None]) -> None:
    serve(timezone.now())
    drain_journal()
    rollups.refresh_rollups()
    keep_until_done()
    assert Usage.objects.count() == 1
    assert closing.closed_before() == partitions.month_after(timezone.now(), -conf().usage_months)


def test_a_clock_that_is_years_ahead_costs_one_month_at_most(serve: Callable[..., None]) -> None:
    now = timezone.now()
    for months in (3, 2, 1, 0):
        serve(partitions.month_after(now, -months))
    drain_journal()
    rollups.refresh_rollups()
    for minutes in range(60):
        closing.close(now + timedelta(days=1000, minutes=minutes))
        while closing.forget_usage():
            pass
    assert Usage.objects.count() == 3
    assert not closing.close(now)


def test_a_month_of_a_year_ago() -> None:
    at = datetime.fromisoformat("2026-01-31T23:59:59+00:00")
    assert partitions.month_after(at, -1) == datetime.fromisoformat("2025-12-01T00:00:00+00:00")
    assert partitions.month_after(at, -13) == datetime.fromisoformat("2024-12-01T00:00:00+00:00")
    assert partitions.month_after(at, 1) == datetime.fromisoformat("2026-02-01T00:00:00+00:00")
    assert partitions.month_after(at, 12) == datetime.fromisoformat("2027-01-01T00:00:00+00:00")


@pytest.mark.skipif(connection.vendor != "postgresql", reason="one table elsewhere")
class TestMonths:
    def parts(self) -> set[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT tableoid::regclass::text FROM catalog_usage")
            return {name for (name,) in cursor.fetchall()}

    def test_rows_lie_in_the_part_of_their_month(self, months: None, old: datetime) -> None:
        assert self.parts() == {partitions.part_of(timezone.now()), partitions.OTHER}
        before = set(Usage.objects.values_list())
        partitions.make_ahead(old)  # as a clock that was wrong
        assert self.parts() == {partitions.part_of(timezone.now()), partitions.part_of(old)}
        assert set(Usage.objects.values_list()) == before

    def test_a_closed_month_is_dropped_whole(self, months: None, old: datetime) -> None:
        partitions.make_ahead(old)
        keep_until_done()
        assert self.parts() == {partitions.part_of(timezone.now())}
        with connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass(%s)", [partitions.part_of(old)])
            assert cursor.fetchone() == (None,)

    def test_a_line_is_one_row_whatever_its_part(self, months: None, old: datetime) -> None:
        models.JournalSegment.objects.all().delete()
        drain_journal()
        assert Usage.objects.count() == 5

    def test_months_ahead_are_there(self, db: None) -> None:
        partitions.make_ahead(timezone.now())
        with connection.cursor() as cursor:
            for number in range(partitions.AHEAD):
                name = partitions.part_of(partitions.month_after(timezone.now(), number))
                cursor.execute("SELECT to_regclass(%s)", [name])
                assert cursor.fetchone() == (name,)
