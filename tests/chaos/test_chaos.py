"""The judge finds what is broken, the seed makes the schedule, and a short run breaks nothing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from catalog import failpoints
from tests.chaos import oracle
from tests.chaos.faults import FAULTS
from tests.chaos.schedule import PLACES, SLOW, schedule
from tests.databases import ROOT

ANSWERED = [
    {"charged": 2, "free": 1, "misses": ["o1:a"], "operators": 4, "tries": 1, "refused": []},
    {"charged": 1, "free": 2, "misses": [], "operators": 3, "tries": 3, "refused": []},
]
BOOKS = oracle.Books(
    free_usages=3, charged_usages=3, entries=3, entries_usages=3, day_entries=3, month_hits=3, tally_hits=6,
    balance_micros=-3000, entered_micros=-3000,
)  # fmt: skip


def test_the_seed_reproduces_the_schedule_and_minutes_have_every_kind() -> None:
    names = list(FAULTS)
    assert schedule(7, 3, names) == schedule(7, 3, names) != schedule(8, 3, names)
    assert {fault.name for fault in schedule(7, 3, names)} == set(names)
    assert [fault.at_s for fault in schedule(7, 3, names)] == sorted(
        fault.at_s for fault in schedule(7, 3, names)
    )


def test_what_is_armed_are_places_that_there_are() -> None:
    assert {place for places in PLACES.values() for place in places} | set(SLOW.values()) <= set(
        failpoints.PLACES
    )


def test_books_that_agree_are_fine() -> None:
    assert list(oracle.what_was_served_is_what_is_booked(ANSWERED, BOOKS)) == []
    lost = replace(BOOKS, free_usages=9, tally_hits=12)  # attempts without an answer may have counted
    assert list(oracle.what_was_served_is_what_is_booked(ANSWERED, lost)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"entries": 4}, {"entries": 2}, {"charged_usages": 4, "tally_hits": 7}, {"entries_usages": 2},
        {"day_entries": 2}, {"month_hits": 4}, {"free_usages": 2, "tally_hits": 5},
        {"free_usages": 10, "tally_hits": 13}, {"tally_hits": 5}, {"balance_micros": -2000},
    ],
    ids=str,
)  # fmt: skip
def test_a_unit_too_many_or_too_few_is_found(change) -> None:
    assert len(list(oracle.what_was_served_is_what_is_booked(ANSWERED, replace(BOOKS, **change)))) == 1


@pytest.mark.parametrize(
    ("state", "reason", "fine"),
    [("explored", "", True), ("failed", "Gave up after 3 tries.", True), ("failed", "", False),
     ("waiting", "", False), ("promoted", "It is explored.", False)],
)  # fmt: skip
def test_a_miss_ends_explored_or_with_a_reason(state, reason, fine) -> None:
    broken = list(oracle.every_miss_has_ended(ANSWERED, {"o1:a": (state, reason)}))
    assert (broken == []) == fine


def test_a_miss_that_is_gone_is_found() -> None:
    assert list(oracle.every_miss_has_ended(ANSWERED, {})) == ["The accepted miss of o1:a ended as 'lost'."]


def test_who_writes_after_another_was_given_the_claim_is_found() -> None:
    def line(s: float, place: str, fence: int) -> dict[str, object]:
        return {"s": s, "place": place, "exploration_id": 5, "fence": fence}

    fine = [
        line(1, "claimed", 1),
        line(2, "publish-committing", 1),
        line(3, "claimed", 2),
        line(4, "published", 1),
    ]
    assert list(oracle.nothing_is_explored_twice_at_once(fine)) == []
    assert list(oracle.nothing_is_explored_twice_at_once([*fine, line(5, "settling", 1)])) == [
        "Exploration 5 was written under fence 1 after 2 was given."
    ]
    assert list(oracle.trials_follow_fences([(5, 1), (5, 2), (6, 1)])) == []
    assert len(list(oracle.trials_follow_fences([(5, 2), (5, 1)]))) == 1


def test_a_correct_lookup_that_is_called_wrong_is_found() -> None:
    assert list(oracle.nothing_was_refused([{"refused": [422]}])) == ["A correct lookup was answered 422."]


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.services
@pytest.mark.timeout(600)
def test_two_minutes_of_chaos_break_nothing(private_postgres, private_redis) -> None:
    """The fixtures only say whether the programs are there: chaos brings its own servers."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--minutes", "2"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
