from dataclasses import replace

import pytest

from catalog import models
from catalog.models import LookupTally, Miss
from catalog.people.keys import create_api_key
from catalog.registry import register_setting, register_target
from catalog.signals import misses_recorded
from catalog.usage.draining import drain_journal
from opatlas.identity import Setting
from tests.catalog import making


@pytest.fixture
def small_key(organisation):
    """A key that may have three misses in the queue."""
    return create_api_key(organisation, "small", ["lookup"], max_queued_misses=3)[0]


def states(answer):
    return [result.state for result in answer.results]


class TestQuota:
    def test_misses_beyond_it_are_refused_one_by_one_and_leave_no_trace(self, ask, small_key):
        answer = ask(1, 2, 3, 4, 5, api_key=small_key)
        assert states(answer) == ["waiting"] * 3 + ["refused"] * 2
        assert "quota" in answer.results[4].reason
        assert Miss.objects.count() == models.Operator.objects.count() == 3

    def test_asking_again_for_what_is_queued_is_always_counted(self, ask, small_key):
        ask(1, 2, 3, api_key=small_key)
        assert states(ask(1, 2, 3, api_key=small_key)) == ["waiting"] * 3
        assert set(Miss.objects.values_list("count", flat=True)) == {2}

    def test_related_ones_are_refused_first(self, ask, small_key):
        ask(1, 2, related=(3, 4), api_key=small_key)
        assert Miss.objects.filter(related=False).count() == 2
        assert Miss.objects.filter(related=True).count() == 1

    def test_explored_ones_make_room(self, ask, small_key):
        ask(1, 2, 3, api_key=small_key)
        Miss.objects.filter(operator__key=making.relu(1).key).update(state="unsupported")
        assert states(ask(4, 5, api_key=small_key)) == ["waiting", "refused"]

    def test_hits_are_served_beyond_it(self, ask, put, small_key):
        put(9, "eager", 1.0)
        ask(1, 2, 3, api_key=small_key)
        answer = ask(9, 4, api_key=small_key)
        assert [result.status for result in answer.results] == ["hit", "miss"]

    def test_another_key_has_its_own(self, ask, small_key, organisation):
        ask(1, 2, 3, api_key=small_key)
        other = create_api_key(organisation, "other", ["lookup"])[0]
        assert states(ask(4, api_key=other)) == ["waiting"]

    def test_what_others_have_queued_takes_no_room(self, ask, small_key, organisation):
        ask(1, 2, 3, api_key=small_key)
        other = create_api_key(organisation, "other", ["lookup"], max_queued_misses=1)[0]
        assert states(ask(4, 5, api_key=other)) == ["waiting", "refused"]

    def test_what_is_queued_is_known_by_its_operator(self, ask, small_key, place_of):
        place_of(99)  # so that numbers of operators and misses differ
        ask(1, 2, 3, api_key=small_key)
        assert states(ask(1, 2, 3, api_key=small_key)) == ["waiting"] * 3

    def test_a_refusal_says_the_quota_and_counts_as_a_miss_where_the_operator_is_known(
        self, ask, small_key, place_of
    ):
        place_of(4)
        ask(1, 2, 3, api_key=small_key)
        known, new = ask(4, 5, api_key=small_key).results
        assert (
            known.reason
            == new.reason
            == ("This key has 3 misses in the queue, which is its quota: ask again when some were explored.")
        )
        drain_journal()
        assert LookupTally.objects.get(operator__key=making.relu(4).key).misses == 1
        assert not models.Operator.objects.filter(key=making.relu(5).key).exists()

    def test_a_quota_of_none_refuses_all(self, ask, organisation):
        key = create_api_key(organisation, "none", ["lookup"], max_queued_misses=0)[0]
        assert states(ask(1, api_key=key)) == ["refused"]


class TestStates:
    @pytest.mark.parametrize("state", ["promoted", "postponed", "discarded", "unsupported", "failed"])
    def test_asking_again_counts_and_tells_the_reason_but_decides_nothing(self, ask, state):
        ask(64)
        Miss.objects.update(state=state, reason="because")
        result = ask(64).results[0]
        assert (result.state, result.reason) == (state, "because")
        assert Miss.objects.get().count == 2

    def test_a_new_miss_has_no_reason_and_no_job_unless_it_was_named(self, ask, organisation):
        assert ask(64).results[0].reason == ""
        assert Miss.objects.get().job is None
        ask(65, job="run 7", organisation=None)
        assert not models.Job.objects.exists()

    @pytest.mark.parametrize("what", ["target", "setting"])
    def test_what_happened_elsewhere_says_nothing_here(self, ask, put, what):
        other = {
            "target": lambda: register_target(replace(making.TARGET, arch="zen4")),
            "setting": lambda: register_setting(Setting(threads=1)),
        }[what]()
        ask(64)
        ask(64, **{what: other})
        Miss.objects.filter(**{what: other}).update(state="failed", reason="it crashed")
        assert ask(64).results[0].state == "waiting"
        put(64, "eager", 1.0)
        assert ask(64, **{what: other}).results[0].state == "failed"

    def test_a_state_that_is_mended_has_no_reason_any_more(self, ask, put):
        ask(64)
        Miss.objects.update(state="explored", reason="old")
        assert ask(64).results[0].reason == ""
        assert (Miss.objects.get().state, Miss.objects.get().reason) == ("waiting", "")

    def test_explored_with_its_best_gone_waits_again(self, ask, put):
        ask(64)
        put(64, "eager", 1.0)
        assert Miss.objects.get().state == "explored"
        models.Best.objects.all().delete()
        assert ask(64).results[0].state == "waiting"
        assert Miss.objects.get().state == "waiting"

    def test_published_while_asking_is_a_hit(self, ask, put, monkeypatch):
        """The result arrives between the read that found nothing and the miss that is recorded."""
        from catalog.lookup import lookups

        record = lookups.record_misses

        def publish_then_record(wanted, where):
            put(64, "eager", 1.0)
            return record(wanted, where)

        monkeypatch.setattr(lookups, "record_misses", publish_then_record)
        assert ask(64).results[0].status == "hit"
        assert Miss.objects.get().state == "explored"


class TestSignal:
    @pytest.fixture
    def rung(self):
        heard = []

        def hear(sender, capabilities, **kwargs):
            heard.append(capabilities)

        misses_recorded.connect(hear, sender=Miss)
        yield heard
        misses_recorded.disconnect(hear, sender=Miss)

    def test_it_rings_after_commit_for_the_targets_capability(
        self, ask, rung, django_capture_on_commit_callbacks
    ):
        with django_capture_on_commit_callbacks(execute=True):
            ask(64)
            assert rung == []
        assert rung == [{"cpu.zen5"}]

    def test_a_bell_that_cannot_be_rung_spoils_no_answer(
        self, ask, caplog, django_capture_on_commit_callbacks
    ):
        def break_down(sender, capabilities, **kwargs):
            raise RuntimeError("can't start new thread")

        misses_recorded.connect(break_down)
        try:
            with django_capture_on_commit_callbacks(execute=True):
                assert states(ask(64)) == ["waiting"]
        finally:
            misses_recorded.disconnect(break_down)
        assert "can't start new thread" in caplog.text

    def test_it_does_not_ring_where_nothing_is_to_be_decided(
        self, ask, put, rung, django_capture_on_commit_callbacks
    ):
        put(1, "eager", 1.0)
        ask(64)
        Miss.objects.update(state="promoted")
        with django_capture_on_commit_callbacks(execute=True):
            ask(1)
            ask(64)
        assert rung == []
