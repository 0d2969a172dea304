import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from catalog import models
from catalog.best.served import Accepts
from catalog.charging import Charging, Terms
from catalog.lookup.lookups import PAYMENT_REQUIRED, AskedOperator, LookupRequest, lookup
from catalog.models import Miss
from catalog.people.keys import create_api_key
from catalog.registry import register_setting, register_target
from tests.catalog import making


def only(answer):
    (result,) = answer.results
    return result


def test_unknown_without_a_graph_needs_one_and_leaves_nothing(ask):
    assert only(ask(64, with_graph=False)).status == "need_graph"
    assert not Miss.objects.exists()
    assert not models.Operator.objects.exists()


def test_a_miss_is_recorded_with_what_was_asked(ask, organisation):
    key, _ = create_api_key(organisation, "job", ["lookup"])
    result = only(ask(64, api_key=key, job="run 7", calls=3.0))
    assert (result.status, result.state) == ("miss", "waiting")
    miss = Miss.objects.get()
    assert (miss.count, miss.calls, miss.related, miss.job.name) == (1, 3.0, False, "run 7")
    assert miss.operator.graph == making.relu(64).to_json()
    assert miss.operator.op_type == "Relu"


def test_asked_twice_is_one_miss_with_a_count(ask):
    ask(64, calls=2.0)
    first = Miss.objects.get().last_asked_at
    ask(64, with_graph=False, calls=5.0)
    miss = Miss.objects.get()
    assert (miss.count, miss.calls) == (2, 7.0)
    assert miss.last_asked_at > first


def test_named_twice_in_one_batch_is_asked_once(ask):
    answer = ask(64, 64, calls=2.0)
    assert [result.status for result in answer.results] == ["miss", "miss"]
    miss = Miss.objects.get()
    assert (miss.count, miss.calls) == (1, 4.0)


def test_a_hit_carries_its_evidence(ask, put):
    published = put(64, "onednn", 1.6)
    best = only(ask(64)).best
    assert best.implementation_id == published.implementation.pk
    assert (best.route, best.kind, best.median_us, best.default_us) == ("onednn", "recipe", 62.5, 100.0)
    assert best.ratio_low < best.ratio_to_default < best.ratio_high
    assert best.artifact_sha256 == published.implementation.artifact.sha256
    assert best.measured_at == published.measurement.created_at
    assert not Miss.objects.exists()


def test_the_answer_keeps_the_order_asked(ask, put):
    put(2, "eager", 1.0)
    put(4, "eager", 1.0)
    answer = ask(4, 3, 2)
    assert [result.status for result in answer.results] == ["hit", "miss", "hit"]
    assert [result.key for result in answer.results] == [making.relu(n).key for n in (4, 3, 2)]


def test_what_holds_for_one_setting_or_target_says_nothing_of_another(ask, put):
    put(64, "eager", 1.0)
    from opatlas.identity import Setting

    single = register_setting(Setting(threads=1))
    assert only(ask(64, setting=single)).status == "miss"


def test_the_answer_says_for_what_it_holds(ask, put, target, setting):
    put(2, "eager", 1.0)
    answer = ask(2, 3, with_graph=False)
    assert (answer.target, answer.setting) == (target, setting)
    assert [(result.key, result.status) for result in answer.results] == [
        (making.relu(2).key, "hit"),
        (making.relu(3).key, "need_graph"),
    ]


@pytest.mark.parametrize("with_graph_first", [True, False])
def test_named_twice_one_graph_is_enough(target, setting, with_graph_first):
    operator = making.relu(64)
    asked = [AskedOperator(operator.key, graph=operator), AskedOperator(operator.key)]
    request = LookupRequest(target, setting, asked if with_graph_first else asked[::-1])
    assert [result.status for result in lookup(request).results] == ["miss", "miss"]


class TestPrices:
    @pytest.fixture
    def prices(self, monkeypatch):
        """``prices(True)``: every hit costs something, and is withheld."""

        def set_prices(withheld):
            class Dear(Charging):
                def concerns(self, organisation_id, hits):
                    return True

                def settle(self, organisation_id, hits, record):
                    return {hit.key: terms for hit, calls in hits if hit.route == "tvm"}

            terms = Terms(withheld, 7, "EUR", 1, "/pay", "It costs.")
            monkeypatch.setattr("catalog.lookup.serving.charging", Dear)
            return terms

        return set_prices

    def test_a_charged_hit_says_what_it_cost(self, ask, put, prices):
        put(64, "tvm", 2.0)
        put(65, "eager", 1.0)
        terms = prices(False)
        charged, free = ask(64, 65).results
        assert (charged.status, charged.best.route, charged.state, charged.terms) == ("hit", "tvm", "", terms)
        assert (free.status, free.terms) == ("hit", None)

    def test_a_withheld_best_is_a_miss_with_its_price(self, ask, put, prices):
        put(64, "tvm", 2.0)
        terms = prices(True)
        result = only(ask(64))
        assert (result.key, result.status, result.state) == (making.relu(64).key, "miss", PAYMENT_REQUIRED)
        assert (result.best.route, result.reason, result.terms) == ("tvm", "It costs.", terms)
        assert not Miss.objects.exists()


class TestAccepts:
    def test_the_fastest_that_can_be_loaded(self, ask, put):
        put(64, "eager", 1.0)
        put(64, "onnxruntime", 1.5, needs={"onnxruntime": "1.31.1"})
        put(64, "tvm", 2.0, kind="c-abi", needs={})
        assert only(ask(64)).best.route == "tvm"
        recipes = Accepts(kinds=frozenset({"recipe"}))
        assert only(ask(64, accepts=recipes)).best.route == "onnxruntime"
        torch_only = Accepts(kinds=frozenset({"recipe"}), versions={"torch": "2.13.0+cpu"})
        assert only(ask(64, accepts=torch_only)).best.route == "eager"

    def test_nothing_loadable_is_a_miss_that_is_not_queued(self, ask, put):
        put(64, "eager", 1.0)
        result = only(ask(64, accepts=Accepts(versions={"torch": "2.0.0"})))
        assert (result.status, result.state) == ("miss", "explored")
        assert "accepts" in result.reason
        assert not Miss.objects.exists()

    def test_what_cannot_be_loaded_elsewhere_is_no_reason_to_stay_unexplored(self, ask, put, place_of):
        from opatlas.identity import Setting

        recipes = Accepts(kinds=frozenset({"recipe"}))
        put(63, "eager", 1.0)  # so that numbers of bests and operators differ
        put(63, "tvm", 2.0, kind="c-abi", needs={})
        put(64, "tvm", 2.0, kind="c-abi", needs={})
        result = only(ask(64, accepts=recipes))
        assert result.state == "explored" and "accepts" in result.reason
        assert not Miss.objects.exists()
        single = register_setting(Setting(threads=1))
        assert only(ask(64, accepts=recipes, setting=single)).state == "waiting"
        other = register_target(replace(making.TARGET, arch="zen4"))
        assert only(ask(64, accepts=recipes, target=other)).state == "waiting"
        place_of(65)
        assert only(ask(65, accepts=recipes)).state == "waiting"

    def test_an_empty_version_map_still_loads_what_needs_nothing(self, ask, put):
        put(64, "tvm", 2.0, kind="c-abi", needs={})
        assert only(ask(64, accepts=Accepts(versions={}))).best.route == "tvm"


class TestScopes:
    def test_a_private_entry_is_seen_by_its_organisation_only(self, ask, put, organisation):
        other = models.Organisation.objects.create(name="other")
        put(64, "secret", 3.0, scope=f"org:{organisation.pk}", owner=organisation)
        assert only(ask(64)).best.route == "secret"
        assert only(ask(64, organisation=other)).status == "miss"

    def test_the_private_entry_comes_first_and_the_shared_one_where_it_cannot_be_loaded(
        self, ask, put, organisation
    ):
        put(64, "eager", 1.0)
        put(64, "secret", 3.0, scope=f"org:{organisation.pk}", owner=organisation, kind="c-abi")
        assert only(ask(64)).best.route == "secret"
        recipes = Accepts(kinds=frozenset({"recipe"}))
        assert only(ask(64, accepts=recipes)).best.route == "eager"


class TestRelated:
    def test_related_operators_are_recorded_as_such(self, ask):
        answer = ask(64, related=(65, 66))
        assert len(answer.results) == 1
        assert Miss.objects.filter(related=True, count=0).count() == 2
        assert Miss.objects.get(related=False).operator.key == making.relu(64).key

    def test_asked_for_itself_it_is_related_no_more(self, ask):
        ask(64, related=(65,))
        ask(65, calls=3.0)
        miss = Miss.objects.get(operator__key=making.relu(65).key)
        assert (miss.related, miss.count) == (False, 1)

    def test_naming_an_asked_one_as_related_changes_nothing(self, ask):
        ask(65, calls=2.0)
        ask(64, related=(65,), calls=9.0)
        miss = Miss.objects.get(operator__key=making.relu(65).key)
        assert (miss.related, miss.count, miss.calls) == (False, 1, 2.0)

    def test_known_ones_are_not_recorded(self, ask, put):
        put(65, "eager", 1.0)
        ask(64, related=(65,))
        assert Miss.objects.count() == 1

    def test_related_misses_are_recorded_when_all_asked_hit(self, ask, put):
        put(64, "eager", 1.0)
        assert only(ask(64, related=(65,))).status == "hit"
        assert Miss.objects.get().related


def test_served_says_whether_a_live_worker_is_there(ask, target):
    assert not ask(64).served
    models.Target.objects.update(served_until=timezone.now() + timedelta(seconds=30))
    target.refresh_from_db()
    assert ask(64).served
    target.served_until = timezone.now() - timedelta(seconds=1)
    assert not ask(64).served


def test_hits_cost_one_statement_and_misses_a_constant_number(ask, put, django_assert_max_num_queries):
    for length in range(1, 31):
        put(length, "eager", 1.0)
    ask(1)  # price rules are read once a second, for all lookups
    with django_assert_max_num_queries(1):
        assert ask(*range(1, 31)).hits == 30
    with django_assert_max_num_queries(1):
        along = ask(1, related=tuple(range(2, 31)), include=frozenset({"related"})).related
        assert [one.status for one in along] == ["hit"] * 29
    with django_assert_max_num_queries(16):
        ask(*range(100, 200))


@pytest.mark.django_db(transaction=True)
class TestWaiting:
    def test_it_answers_as_soon_as_the_result_is_published(self, ask, put, place_of, monkeypatch):
        from django.db import connection

        place_of(64)
        slept = []

        def publish():
            try:
                put(64, "eager", 1.0)
            finally:
                connection.close()

        def published_meanwhile(seconds):
            slept.append(seconds)
            somebody_else = threading.Thread(target=publish)
            somebody_else.start()
            somebody_else.join()

        monkeypatch.setattr("time.sleep", published_meanwhile)
        result = only(ask(64, wait_s=20.0))
        assert result.status == "hit" and len(slept) == 1
        assert Miss.objects.get().waited_until > timezone.now()

    def test_what_was_found_before_and_what_comes_one_by_one_is_all_answered(self, ask, put, monkeypatch):
        put(1, "eager", 1.0)
        coming = iter((2, 3))
        monkeypatch.setattr("time.sleep", lambda seconds: put(next(coming), "eager", 1.0))
        assert ask(1, 2, 3, wait_s=20.0).hits == 3
        assert Miss.objects.filter(state="explored").count() == 2

    def test_who_waits_is_written_down_and_who_does_not_is_not(self, ask, monkeypatch):
        monkeypatch.setattr("catalog.lookup.lookups._waiters", threading.Semaphore(0))
        ask(64, related=(65,), wait_s=0.5)
        ask(66)
        waited = dict(Miss.objects.values_list("operator__summary", "waited_until"))
        assert [until is None for until in waited.values()] == [False, True, True]

    def test_the_last_moment_is_slept_through_to_its_end(self, ask, monkeypatch):
        slept = []
        monkeypatch.setattr("catalog.lookup.lookups.WAIT_POLL_S", 0.04)
        sleep = time.sleep
        monkeypatch.setattr("time.sleep", lambda seconds: (slept.append(seconds), sleep(seconds)))
        started = time.monotonic()
        ask(64, wait_s=0.1)
        assert time.monotonic() - started >= 0.1
        assert all(0 < seconds <= 0.04 for seconds in slept)

    def test_it_is_bounded(self, ask):
        started = timezone.now()
        result = only(ask(64, wait_s=0.3))
        assert result.status == "miss"
        assert timezone.now() - started < timedelta(seconds=5)

    def test_it_does_not_wait_for_what_will_not_come(self, ask, monkeypatch):
        ask(64)
        Miss.objects.update(state="unsupported", reason="no route can")
        monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waited"))
        result = only(ask(64, wait_s=20.0))
        assert (result.state, result.reason) == ("unsupported", "no route can")

    def test_few_may_wait_at_a_time(self, ask, monkeypatch):
        monkeypatch.setattr("catalog.lookup.lookups._waiters", threading.Semaphore(0))
        monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waited"))
        assert only(ask(64, wait_s=20.0)).status == "miss"
