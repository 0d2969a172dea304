"""Trials that had failed before there were groups are counted once, in steps that may be killed anywhere."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from catalog.models import Rollup, StepFailure
from tests.dashboard.factory import Factory
from tests.tuning.failures.making import failed
from tuning.failures import backlog
from tuning.failures.backlog import group_backlog
from tuning.models import FailureGroup

pytestmark = pytest.mark.django_db
AGO = timezone.now() - timedelta(days=3)


@pytest.fixture
def factory() -> Factory:
    return Factory()


def old(factory, number, hours=0, **more):
    return failed(factory, number, at=AGO + timedelta(hours=hours), counted=False, **more)


def test_they_are_counted_once_and_none_that_was_counted_when_it_was_kept(factory, monkeypatch) -> None:
    monkeypatch.setattr(backlog, "STEP", 2)
    first, *_ = [old(factory, number, hours=number) for number in range(5)]
    old(factory, 6, status="ok")
    latest = failed(factory, 1)
    assert [group_backlog() for _ in range(5)] == [2, 2, 1, 0, 0]
    group = FailureGroup.objects.get()
    assert (group.trials, group.operators) == (6, 5)
    assert (group.first, group.first_at, group.latest) == (first, first.created_at, latest)
    failed(factory, 2)
    assert group_backlog() == 0 and FailureGroup.objects.get().trials == 7


def test_a_step_that_is_killed_is_made_again_and_counts_nothing_twice(factory, monkeypatch) -> None:
    monkeypatch.setattr(backlog, "STEP", 2)
    for number in range(4):
        old(factory, number)
    group_backlog()
    noted = Rollup.note

    def killed(*args, **facts):
        raise KeyboardInterrupt

    monkeypatch.setattr(Rollup, "note", killed)
    with pytest.raises(KeyboardInterrupt):
        group_backlog()
    assert FailureGroup.objects.get().trials == 2
    monkeypatch.setattr(Rollup, "note", noted)
    while group_backlog():
        pass
    assert FailureGroup.objects.get().trials == 4


def test_what_would_be_forgotten_at_once_is_not_begun_with(factory) -> None:
    failed(factory, 1, at=timezone.now() - timedelta(days=91), counted=False)
    assert group_backlog() == 0 and not FailureGroup.objects.exists()


def test_where_nothing_was_ever_tried_there_is_nothing_to_do(factory, django_assert_num_queries) -> None:
    assert group_backlog() == 0
    failed(factory, 1)
    with django_assert_num_queries(1):
        assert group_backlog() == 0
    assert FailureGroup.objects.get().trials == 1


def test_a_trial_that_cannot_be_counted_leaves_the_others_counted(factory, monkeypatch) -> None:
    _, bad, _ = [old(factory, number) for number in range(3)]
    real = backlog.note_failures

    def breaks(trials):
        if bad in trials:
            raise ValueError("detail")
        return real(trials)

    monkeypatch.setattr(backlog, "note_failures", breaks)
    assert group_backlog() == 3 and group_backlog() == 0
    assert FailureGroup.objects.get().trials == 2
    assert StepFailure.objects.get().row == bad.pk
