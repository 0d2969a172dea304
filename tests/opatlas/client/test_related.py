"""What a job asks next, as the service learnt it from the jobs before; and predictors that misbehave."""

from __future__ import annotations

import json
import threading
import time

import pytest

from catalog.api import lookup_json
from catalog.models import JobOperator, Succession, Usage
from catalog.usage.draining import drain_journal
from opatlas.client import AskedNext, Nothing, RestOfModel, Together
from opatlas.client import usage as usage_of_client
from opatlas.client.predict import predicting
from tests.opatlas.client.test_client import Says, until
from tests.opatlas.load.kernels import add_operator
from tests.opatlas.session.test_session import adding

SIZES = range(993, 1000)


@pytest.fixture
def recorded(publish_add, job):
    """A model of seven operators, run once by an earlier job that predicted nothing."""
    for size in SIZES:
        publish_add(size)
    operators = [add_operator(size) for size in SIZES]
    first = job(job="earlier", cache=False, predictor=Nothing())
    assert all(first.lookup(one) for one in operators)
    first.close()
    drain_journal()
    return operators


def test_what_an_earlier_job_asked_next_comes_with_the_first_answer(recorded, job, requests):
    client = job(job="later")
    assert [client.lookup(one).source for one in recorded] == ["service", *["memory"] * 6]
    assert requests == ["/api/v1/lookup"]
    assert client.counts["prefetched"] == 6 and client.counts["miss"] == 0
    assert job().lookup(recorded[-1].key).source == "cache", "it is the machine's, by its key too"
    client.close()
    assert drain_journal()
    assert Usage.objects.filter(job__name="later").count() == 1, "what came along is no use"


def test_a_models_file_says_what_comes_next(job, transactional_db, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(adding())
    client = job()
    whole, of_bytes = (RestOfModel.of_model(client, model) for model in (path, adding()))
    add, tanh = (client.asked(op, *[(1000,)] * count) for op, count in (("Add", 2), ("Tanh", 1)))
    assert [one.key for one in whole.related(add)] == [one.key for one in of_bytes.related(add)] == [tanh.key]
    assert [one.key for one in whole.related(tanh)] == [add.key]


def test_each_job_without_a_predictor_asks_for_itself(recorded, job, requests):
    client = job(predictor=Nothing())
    assert [client.lookup(one).source for one in recorded] == ["service"] * 7
    assert len(requests) == 7


def test_what_is_cached_makes_no_request_for_what_comes_next(recorded, job, requests):
    job(predictor=Nothing()).lookup(recorded[0])
    client = job()
    assert client.lookup(recorded[0]).source == "cache" and len(requests) == 1
    assert client.lookup(recorded[1]).source == "service"
    assert [client.lookup(one).source for one in recorded[2:]] == ["memory"] * 5
    assert len(requests) == 2


def test_the_order_of_uses_from_a_cache_is_learnt_from_reports(recorded, job, monkeypatch):
    Succession.objects.all().delete()
    client = job(job="reports", predictor=AskedNext())
    backwards = [recorded[0], *recorded[:0:-1]]
    client.lookup_all(recorded)
    fresh = job(job="reports", predictor=Nothing())
    assert all(fresh.lookup(one).source == "cache" for one in backwards[1:])
    fresh._write_uses()
    (report,) = [json.loads(body) for (body,) in fresh.store._rows("SELECT body FROM reports")]
    used = [item["implementation"] for item in report["used"]]
    assert used == sorted(used, reverse=True) and len(used) == 6
    monkeypatch.setattr(usage_of_client, "REPORT_S", -1.0)
    fresh.close()  # before the lookup is drained: the report's order is all that is known
    order = JobOperator.objects.filter(job__name="reports").order_by("number")
    assert [row.operator.key for row in order] == [one.key for one in backwards[1:]]


def test_a_service_from_before_it_is_asked_without(recorded, job, requests, monkeypatch):
    monkeypatch.setattr(lookup_json, "INCLUDABLE", ("manifest", "related"))
    client = job()
    assert client.lookup(recorded[0]) and client.lookup(recorded[1])
    assert len(requests) == 3, "one refusal, once"


# ---- predictors that misbehave --------------------------------------------------------------------------


def test_a_predictor_that_hangs_costs_a_moment_once_and_nothing_after(recorded, job, monkeypatch):
    monkeypatch.setattr(predicting, "PREDICT_S", 0.05)
    released = threading.Event()

    class Hangs:
        def related(self, asked):
            released.wait(60)
            return ()

    client = job(predictor=Hangs())
    thread, waited_for = client._prediction_thread(), []
    later = thread.later

    def noted(asked, then):
        waited_for.append(later(asked, then))
        return waited_for[-1]

    thread.later = noted
    began = time.monotonic()
    assert client.lookup(recorded[0])
    assert time.monotonic() - began >= predicting.PREDICT_S
    until(lambda: time.monotonic() > thread._late_at)
    assert all(client.lookup(one) for one in recorded[1:])
    client.close()
    assert waited_for == [True] + [False] * 6
    released.set()


def test_one_that_fails_beside_others_says_nothing_and_they_go_on(recorded, job, requests):
    class Fails:
        def related(self, asked):
            raise ValueError("no idea")

    client = job(predictor=Together(Fails(), Says(*recorded)))
    assert [client.lookup(one).source for one in recorded] == ["service", *["memory"] * 6]
    assert len(requests) == 1


def test_together_they_take_turns_and_ask_the_service_where_one_does(job):
    client = job(cache=False)
    model = [client.asked("Relu", (size,)) for size in (1, 2, 3)]
    both = Together(RestOfModel(model), Says("x", "y"), AskedNext())
    assert both.related(model[0]) == [model[1], "x", model[2], "y"]
    assert both.asks_service and not Together(RestOfModel(model)).asks_service
