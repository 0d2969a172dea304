"""How far exploring has come is said with every answer, and can be waited for."""

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from catalog.best.seats import ScopedPlace
from catalog.best.stages import note_stage
from catalog.best.withdrawing import withdraw
from catalog.models import (
    AnswerStage,
    Best,
    Implementation,
    JobDay,
    JobOperator,
    LookupTally,
    Miss,
    Target,
    Usage,
)
from catalog.signals import stage_awaited
from catalog.usage import journal
from catalog.usage.draining import drain_journal


@pytest.fixture
def first(put):
    """``first(64)``: the default, published by an exploration that goes on."""
    return lambda length: put(length, "eager", 1.0, spread=0, purpose="default", final=False)


@pytest.fixture
def explored(place_of):
    """``explored(64, "contest", True)``: exploring has come so far there."""

    def note(length, stage, final):
        place = place_of(length)
        note_stage(
            ScopedPlace(place["operator"].pk, place["target"].pk, place["setting"].pk, "shared"),
            AnswerStage(stage),
            final,
        )

    return note


def served(answer):
    (result,) = answer.results
    best = result.best
    return best.route, best.stage, best.final, best.is_default


def test_a_first_result_is_the_default_itself_and_not_final(ask, first):
    first(64)
    assert served(ask(64)) == ("eager", "first", False, True)


def test_what_came_from_elsewhere_is_explored_by_nobody(ask, put):
    put(64, "tvm", 2.0)
    assert served(ask(64)) == ("tvm", "first", True, False)


def test_every_best_of_a_place_says_the_same_and_nothing_is_taken_back(ask, first, put, explored):
    first(64)
    put(64, "tvm", 2.0)
    assert served(ask(64)) == ("tvm", "first", False, False)
    explored(64, "contest", True)
    assert served(ask(64)) == ("tvm", "contest", True, False)
    put(64, "cpp", 3.0)
    explored(64, "first", False)  # a further round begins
    assert served(ask(64)) == ("cpp", "contest", False, False)
    assert Best.objects.filter(stage="contest", final=False).count() == 3


def test_the_default_is_whoever_was_timed_as_such_last_however_it_is_timed_again(ask, first, put):
    first(64)
    put(64, "eager", 1.02, candidate={"call": "eager"})
    assert served(ask(64))[3]
    put(64, "onnxruntime", 1.5, purpose="default")
    assert served(ask(64)) == ("onnxruntime", "first", False, True)
    assert not Best.objects.get(route="eager").is_default
    withdraw(Implementation.objects.filter(route="onnxruntime"), "wrong")
    assert served(ask(64))[0] == "eager"


def test_hits_on_the_default_are_counted_apart(ask, first, put):
    first(1)
    put(2, "tvm", 2.0)
    ask(1, 2, job="run")
    ask(1, job="run")
    assert drain_journal() == 2
    assert sorted(Usage.objects.values_list("route", "is_default")) == [
        ("eager", True), ("eager", True), ("tvm", False),
    ]  # fmt: skip
    assert sorted(LookupTally.objects.values_list("hits", "default_hits")) == [(1, 0), (2, 2)]
    assert sorted(JobOperator.objects.values_list("hits", "default_hits")) == [(1, 0), (2, 2)]
    assert list(JobDay.objects.values_list("hits", "default_hits")) == [(3, 2)]


def test_a_line_from_before_it_was_noted_counts_as_no_default(ask, first, organisation):
    first(64)
    hit = ask(64).results[0].best
    line = [hit.operator_id, hit.implementation_id, "eager", "library", 100.0, 100.0, 2.0]
    drain_journal()
    journal.append({"at": time.time(), "org": organisation.pk, "job": "", "hits": [line], "misses": []})
    assert drain_journal() == 1
    assert list(Usage.objects.order_by("pk").values_list("is_default", flat=True)) == [True, False]


@pytest.mark.django_db(transaction=True)
class TestWaitingForAStage:
    @pytest.fixture
    def then(self, monkeypatch):
        """``then(step, …)``: what happens while the lookup sleeps, one step each time; gives what is left."""

        def happening(*steps):
            left = list(steps)
            monkeypatch.setattr("time.sleep", lambda seconds: left.pop(0)())
            return left

        return happening

    def test_the_contest_is_waited_for_and_its_winner_served(self, ask, first, put, explored, then):
        left = then(
            lambda: first(64),
            lambda: put(64, "tvm", 2.0),
            lambda: explored(64, "contest", False),
            lambda: pytest.fail("it waited on"),
        )
        assert served(ask(64, wait_s=20.0, wait_for="contest")) == ("tvm", "contest", False, False)
        assert len(left) == 1

    def test_a_hit_waits_too_and_says_so_and_a_later_stage_is_as_good(self, ask, first, explored, then):
        def hear(operators, **_):
            awaited.extend(operators)

        first(64)
        awaited = []
        stage_awaited.connect(hear)
        left = then(lambda: explored(64, "tuned", False))
        assert served(ask(64, wait_s=20.0, wait_for="contest"))[1] == "tuned"
        assert not left
        assert awaited == [Best.objects.get().operator_id]
        assert served(ask(64, wait_s=20.0))[1] == "tuned"

    def test_what_is_final_is_not_waited_for(self, ask, first, explored, then):
        first(64)
        explored(64, "first", True)
        left = then(lambda: pytest.fail("it waited"))
        assert served(ask(64, wait_s=20.0, wait_for="tuned"))[1:3] == ("first", True)
        assert len(left) == 1

    def test_a_worker_that_lives_on_meanwhile_is_there_at_the_end(self, ask, first, explored, then, target):
        def heartbeat():
            explored(64, "contest", True)
            Target.objects.update(served_until=timezone.now() + timedelta(seconds=30))

        first(64)
        target.served_until = timezone.now() - timedelta(seconds=1)
        then(heartbeat)
        assert ask(64, wait_s=20.0, wait_for="contest").served

    def test_what_fails_meanwhile_is_told_at_once(self, ask, then):
        left = then(lambda: Miss.objects.update(state="failed", reason="It crashed."))
        (result,) = ask(64, wait_s=20.0, wait_for="contest").results
        assert (result.status, result.state, result.reason) == ("miss", "failed", "It crashed.")
        assert not left

    def test_it_is_bounded(self, ask, first):
        first(64)
        began = time.monotonic()
        assert served(ask(64, wait_s=0.3, wait_for="contest"))[1] == "first"
        assert 0.3 <= time.monotonic() - began < 60
