"""Whoever looks again and again reads what is new, and sees what who reads all of it sees."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from tests.dashboard.factory import Factory
from tuning.models import Exploration, Trial
from tuning.statistics import alarms as module
from tuning.statistics.alarms import LATE, LATEST, WHOLE_EVERY, LatestTrials, alarms

pytestmark = pytest.mark.django_db


@pytest.fixture
def tried(db: None):
    factory = Factory()
    rows = [
        Exploration.objects.create(
            operator=factory.operator("Relu", f"Relu {number}"), **factory.where, asked_at=factory.now
        )
        for number in range(4)
    ]

    def make(count: int, age_s: float = 0.0, status: str = "build_failed") -> list[int]:
        made = [
            Trial.objects.create(
                exploration=rows[n % 4], route="tvm", method="compiler", stage=1, status=status
            )
            for n in range(count)
        ]
        numbers = [trial.pk for trial in made]
        at = timezone.now() - timedelta(seconds=age_s)
        Trial.objects.filter(pk__in=numbers).update(created_at=at)
        return numbers

    return make


def seen(trials: LatestTrials) -> list[int]:
    return [one.pk for one in trials.look(timezone.now())]


def whole() -> list[int]:
    return seen(LatestTrials())


def test_what_is_new_is_read_and_nothing_else(tried, monkeypatch) -> None:
    old = tried(50, age_s=3600)
    trials, asked = LatestTrials(), []
    assert seen(trials) == old[::-1]
    read = module._tried

    def counted(rows):
        found = read(rows)
        asked.append(len(found))
        return found

    monkeypatch.setattr(module, "_tried", counted)
    assert seen(trials) == old[::-1] and asked == [1], "the youngest that is settled, once more"
    new = tried(3)
    assert seen(trials) == [*new[::-1], *old[::-1]] and asked == [1, 4]


def test_a_trial_that_is_committed_late_is_not_missed(tried) -> None:
    tried(5, age_s=3600)
    tried(3, age_s=LATE.total_seconds() / 2)
    late = Trial.objects.order_by("-pk")[1]
    facts = {field.attname: getattr(late, field.attname) for field in Trial._meta.concrete_fields}
    Trial.objects.filter(pk=late.pk).delete()  # not there yet, while a younger one is
    trials = LatestTrials()
    assert late.pk not in seen(trials)
    Trial.objects.bulk_create([Trial(**facts)])
    Trial.objects.filter(pk=late.pk).update(created_at=facts["created_at"])
    assert seen(trials) == whole() and late.pk in seen(trials)


def test_what_is_a_day_old_leaves_and_what_was_deleted_within_ten_minutes(tried) -> None:
    old, young = tried(2, age_s=86_400 - 5), tried(4, age_s=600)
    trials = LatestTrials()
    assert seen(trials) == [*young[::-1], *old[::-1]]
    Trial.objects.filter(pk=young[1]).delete()
    now = timezone.now()
    assert [one.pk for one in trials.look(now + timedelta(seconds=10))] == young[::-1]
    after = trials.look(now + WHOLE_EVERY + timedelta(seconds=1))
    assert [one.pk for one in after] == [young[3], young[2], young[0]]


def test_another_database_is_read_anew(tried) -> None:
    numbers = tried(3, age_s=600)
    trials = LatestTrials()
    seen(trials)
    Trial.objects.filter(pk=numbers[2]).delete()
    assert seen(trials) == whole() == numbers[1::-1]
    Trial.objects.all().delete()
    assert seen(trials) == []
    tried(2)
    assert seen(trials) == whole()


def test_no_more_are_held_than_are_looked_at(tried, monkeypatch) -> None:
    monkeypatch.setattr("tuning.statistics.alarms.LATEST", 6)
    assert LATEST > 6
    tried(5, age_s=600)
    trials = LatestTrials()
    seen(trials)
    tried(8)
    assert len(seen(trials)) == 6 and seen(trials) == whole()


def test_a_target_that_is_gone_is_no_alarm_and_no_fault(tried) -> None:
    tried(8, age_s=600)
    trials = LatestTrials()
    (found,) = alarms(trials).failing
    assert found.trials == 8
    Trial.objects.get(pk=whole()[0]).exploration.target.delete()
    assert alarms(trials).failing == ()
