"""How fast something grows and when it is full: what misleads an ordinary line does not mislead this one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from dashboard.operation.growth import forecast
from dashboard.operation.growth.forecast import DiskForecast, SizePoint

BEGAN = datetime(2026, 9, 1, 3, tzinfo=UTC)
MB, GB = 10**6, 10**9


def points(size: Callable[[int], float], days: Sequence[int] = range(30)) -> list[SizePoint]:
    return [SizePoint(BEGAN + timedelta(days=day), round(size(day))) for day in days]


def a_day(size: Callable[[int], float], days: Sequence[int] = range(30)) -> float:
    found = forecast.bytes_a_day(points(size, days))
    assert found is not None
    return found


def test_what_grows_evenly_grows_so() -> None:
    assert a_day(lambda day: 5 * GB + 12 * MB * day) == 12 * MB


def test_what_shrinks_is_negative_and_never_full() -> None:
    shrinking = a_day(lambda day: 5 * GB - 3 * MB * day)
    assert shrinking == -3 * MB
    assert forecast.full_in_days(GB, shrinking) is None


def test_what_stays_does_not_grow() -> None:
    assert a_day(lambda day: 8192) == 0
    assert forecast.full_in_days(GB, 0.0) is None


@pytest.mark.parametrize("wrong", range(0, 30, 4))
def test_an_outlier_changes_nothing(wrong: int) -> None:
    found = a_day(lambda day: 900 * GB if day == wrong else 5 * GB + 12 * MB * day)
    assert found == pytest.approx(12 * MB, rel=0.01)


@pytest.mark.parametrize("day_of_it", [2, 8, 15, 20, 27])
@pytest.mark.parametrize("step", [-4 * GB, 4 * GB], ids=["restored", "brought in"])
def test_a_restored_backup_is_no_growth(day_of_it: int, step: int) -> None:
    """Or what was brought in, or removed, at once: whenever it was."""
    found = a_day(lambda day: 5 * GB + 12 * MB * day + (step if day >= day_of_it else 0))
    assert found == pytest.approx(12 * MB, rel=0.01)


def test_what_grows_in_weekly_steps_grows() -> None:
    assert a_day(lambda day: 70 * MB * (day // 7)) == pytest.approx(10 * MB, rel=0.1)


def test_noise_is_passed_over() -> None:
    chance = random.Random(3)
    assert a_day(lambda day: GB + 12 * MB * day + chance.gauss(0, 10 * MB)) == pytest.approx(12 * MB, rel=0.1)


def test_days_without_a_sample_are_days() -> None:
    assert a_day(lambda day: 12 * MB * day, [0, 1, 2, 11, 12, 20]) == 12 * MB


def test_what_was_more_than_a_month_ago_is_past() -> None:
    assert a_day(lambda day: GB * min(day, 30), range(61)) == 0


def test_one_sample_says_nothing() -> None:
    assert forecast.bytes_a_day([]) is None
    assert forecast.bytes_a_day(points(lambda day: 5, range(1))) is None
    assert a_day(lambda day: 5 * day, range(2)) == 5


def test_a_disk_of_unknown_size_is_full_nobody_knows_when() -> None:
    assert forecast.full_in_days(None, 12.0 * MB) is None
    assert forecast.full_in_days(GB, None) is None
    assert forecast.full_in_days(120 * MB, 12.0 * MB) == 10


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (None, ""), (0.0, "within a day"), (0.9, "within a day"), (1.2, "in about 1 day"),
        (9.0, "in about 9 days"), (30.0, "in about 4 weeks"), (243.0, "in about 8 months"),
        (729.0, "in about 24 months"), (731.0, ""),
    ],
)  # fmt: skip
def test_spans_are_said_as_people_say_them(days: float | None, said: str) -> None:
    assert forecast.said_full(days) == said


@pytest.mark.parametrize(
    ("rate", "said"),
    [(None, "–"), (0.0, "0 B"), (-0.2, "0 B"), (12.0 * MB, "+12.0 MB"), (-3100.0, "−3.10 kB")],
)
def test_rates_have_a_sign(rate: float | None, said: str) -> None:
    assert forecast.said_rate(rate) == said


def disk(name: str, free: int, rate: float | None) -> DiskForecast:
    return DiskForecast(name, free, rate, forecast.full_in_days(free, rate))


def test_the_disk_that_is_full_first_is_what_is_said() -> None:
    slow, soon = disk("/", 400 * GB, 12.0 * MB), disk("/srv", 3 * GB, 12.0 * MB)
    assert forecast.said_of_disks([soon], None) == (
        "The disk will be full in about 8 months: what lies on it grows by 12.0 MB a day."
    )
    both = forecast.said_of_disks([slow, soon], None)
    assert both.startswith("The disk of /srv will be full in about 8 months: ")
    assert forecast.said_of_disks([slow], None) == "Nothing will be full within two years."
    assert forecast.said_of_disks([disk("/", 5, None)], None) == "Nothing will be full within two years."


def test_a_disk_that_is_full_is_said_before_all_else() -> None:
    assert forecast.said_of_disks([disk("/", 0, 12.0), disk("/srv", 3, 9.0)], None) == (
        "The disk of / is full."
    )
    assert forecast.said_of_disks([disk("/", 0, -12.0)], None) == "The disk is full."


def test_what_cannot_be_seen_is_said_too() -> None:
    said = forecast.said_of_disks([disk("/", 400 * GB, 0.0)], 3.0 * MB)
    assert said == (
        "Nothing will be full within two years. The database grows by 3.00 MB a day; "
        "how much room its server has cannot be seen from here."
    )
    assert forecast.said_of_disks([], -5.0).startswith("The database does not grow; ")


NOW = BEGAN + timedelta(days=40, hours=2)


def moments(*days: int) -> list[datetime]:
    return [BEGAN + timedelta(days=day) for day in days]


@pytest.mark.parametrize(
    ("days", "said"),
    [
        ([], "Nothing was measured yet: that is done once a day."),
        ([40], "Measured since today; growth is known tomorrow."),
        ([30], "Measured once, on 01 Oct 2026; growth is known with the second time."),
        ([39, 40], ""),
    ],
)
def test_before_growth_is_known_that_is_said(days: list[int], said: str) -> None:
    assert forecast.said_of_samples(moments(*days), NOW) == said


def test_gaps_are_said_the_last_first() -> None:
    assert forecast.said_gaps(moments(0, 1, 9, 10, 36), NOW) == [
        "Nothing was measured since 07 Oct 2026: does the courier run?",
        "Nothing was measured from 11 Sep 2026 to 07 Oct 2026.",
        "Nothing was measured from 02 Sep 2026 to 10 Sep 2026.",
    ]
    assert forecast.said_gaps(moments(38, 39, 40), NOW) == []
    assert forecast.said_gaps([], NOW) == []
