"""Paces that are kept for a while, and what they say of each worker."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from tuning.models import Stage
from tuning.queue import rates
from tuning.queue.rates import PastSlice, Rates, lately


@pytest.mark.django_db
def test_paces_are_kept_no_longer_than_who_asks_allows(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries
) -> None:
    now = 1000.0
    monkeypatch.setattr(rates.time, "monotonic", lambda: now)
    rates.forget()
    with django_assert_num_queries(2):
        first = lately(3.0)
    now += 2.9
    with django_assert_num_queries(0):
        assert lately(3.0) is first
    now += 0.2
    with django_assert_num_queries(0):
        assert lately() is first, "who asks at every turn takes older ones"
    with django_assert_num_queries(2):
        assert lately(3.0) is not first


def test_a_workers_slices_are_its_own_whatever_process_held_them() -> None:
    now = timezone.now()

    def ended(worker: str, seconds: float, ago_s: float) -> PastSlice:
        at = now - timedelta(seconds=ago_s)
        return PastSlice(1, Stage.CONTEST, 0, "Relu", worker, seconds, at, stage_over=True)

    found = Rates([ended("w1@a/7", 10, 5), ended("w1@a/8", 20, 90), ended("w2@a/7", 60, 5)], [])
    assert found.per_hour("w1@a") == found.per_hour("w1@a/9") == 3600 * 2 / 30
    assert found.per_hour("w2@a") == 60 and found.per_hour("w3@a") is None
    lately = now - timedelta(seconds=60)
    assert [found.ended_since(lately, name) for name in ("w1@a", "w2@a", "w3@a", "")] == [1, 1, 0, 2]
