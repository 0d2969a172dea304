"""What a job's hits came to is counted as they are drained, and can be counted again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from catalog import models
from catalog.usage import job_days
from catalog.usage.draining import drain_journal
from catalog.usage.journal_line import JournalHit
from tests.catalog.recounting import recount_job_days

pytestmark = pytest.mark.django_db


def rows() -> dict[str, list[Any]]:
    days = models.JobDay.objects.order_by("job", "start", "method")
    places = models.JobPlace.objects.order_by("job", "target", "setting")
    return {
        "days": list(days.values_list("job", "start", "method", "hits", "calls", "default_us", "saved_us")),
        "places": list(places.values_list("job", "target", "setting", "last_at")),
        "operators": list(
            models.JobOperator.objects.order_by("job", "operator").values_list(
                "job", "hits", "hit_calls", "saved_us"
            )
        ),
    }


def test_what_is_drained_is_what_is_counted_again(ask: Any, put: Any) -> None:
    put(64, "eager", 1.0)
    put(64, "tvm", 2.5)
    for number in range(7):
        ask(64, job=f"run {number % 2}", calls=number + 0.5)
        ask(65, job="run 0", calls=3.0)  # a miss
    ask(64)  # of no job
    drain_journal()
    drained = rows()
    assert sum(day[3] for day in drained["days"]) == 8
    assert len(drained["places"]) == 3
    assert models.JobOperator.objects.get(misses__gt=0).miss_calls == 21.0
    models.JobOperator.objects.update(saved_us=-1, hit_calls=-1)
    recount_job_days()
    again = rows()
    assert again["days"] == drained["days"]
    assert again["places"] == drained["places"]
    hits = [row for row in drained["operators"] if row[1]]
    assert [row for row in again["operators"] if row[1]] == hits and len(hits) == 3


def test_draining_again_adds_nothing(ask: Any, put: Any) -> None:
    put(64, "eager", 1.0)
    ask(64, job="run")
    drain_journal()
    once = rows()
    models.JournalSegment.objects.all().delete()  # the position was lost
    drain_journal()
    assert rows() == once


def test_days_and_methods_are_kept_apart(organisation: Any) -> None:
    job = models.Job.objects.create(organisation=organisation, name="train")
    at = datetime(2026, 11, 20, 23, 59, 59, tzinfo=UTC)
    job_days.add_job_days(
        [
            (job.pk, at, JournalHit(1, None, "eager", "library", 4.0, 10.0, 2)),
            (job.pk, at, JournalHit(1, None, "eager", "library", 4.0, 10.0, 0)),
            (job.pk, at.replace(day=21), JournalHit(1, None, "tvm", "compiler", 8.0, 8.0, 1)),
        ]
    )
    job_days.add_job_days([(job.pk, at, JournalHit(1, None, "eager", "library", 1.0, 3.0, 1))])
    found = [
        (day.start.day, day.method, day.hits, day.calls, day.default_us, day.saved_us)
        for day in job.days.order_by("start")
    ]
    assert found == [(20, "library", 3, 3.0, 23.0, 14.0), (21, "compiler", 1, 1.0, 8.0, 0.0)]
    assert not job.places.exists()  # an implementation that is gone was nowhere
