"""A service from before: what it does not understand is left out, by every process, for hours."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.api import lookup_json
from opatlas.client.cache.store import EntryStore
from opatlas.client.service import capabilities
from opatlas.client.service.capabilities import LOOKUP, OPTIONAL, ServiceCapabilities
from opatlas.client.service.rest import RefusedRequest
from opatlas.errors import CallerError
from tests.compatibility.test_openapi import BEFORE
from tests.opatlas.client.test_client import Says, until, used
from tests.opatlas.load.kernels import add_operator


@pytest.fixture
def old_service(monkeypatch):
    """The service understands none of what came later."""
    monkeypatch.setattr(lookup_json, "_FIELDS", lookup_json._FIELDS - set(OPTIONAL[LOOKUP]))


def test_it_is_asked_without_the_new_fields(old_service, publish_add, job, requests):
    publish_add()
    client = job(predictor=Says(add_operator(5)))
    answer = client.lookup(add_operator())
    assert answer.source == "service" and len(requests) == 2, "one refusal names all that it has"
    x = np.ones(1000, np.float32)
    assert (answer.load()(x, x) == 2).all(), "the manifest is asked for by itself"
    before = len(requests)
    client.lookup(add_operator(6))
    assert len(requests) == before + 1, "it was told once"
    job().lookup(add_operator(7))
    assert len(requests) == before + 2, "so was the machine"


def test_what_only_comes_along_is_not_asked_for(old_service, job, requests):
    client = job()
    for size in (5, 6):
        assert client._fetch([], [client.asked(add_operator(size))])
        assert len(requests) == 2, (
            "refused, and asked without: an old service refuses to be asked for nothing"
        )
    assert client.lookup(add_operator(7)).state == "waiting", "nor is it left alone for that"


def test_whoever_waits_is_told_by_an_old_service_too(old_service, publish_add, job, monkeypatch):
    monkeypatch.setattr("opatlas.client.watching.FIRST_POLL_S", 0.05)
    client, told = job(), []
    client.lookup(add_operator())
    client.when_known(told.append, add_operator())
    publish_add()
    until(lambda: told)
    assert told[0].best


def test_a_service_that_was_upgraded_is_noticed(publish_add, job, requests, monkeypatch):
    publish_add()
    with monkeypatch.context() as old:
        old.setattr(lookup_json, "_FIELDS", lookup_json._FIELDS - {"include", "known"})
        job().lookup(add_operator(5))
    monkeypatch.setattr(capabilities, "LEARNT_S", 0.0)
    job().lookup(add_operator())
    assert job().store.counts()["manifests"] == 1 and len(requests) == 3


def test_an_old_service_that_knows_some_words_of_a_list(publish_add, job, requests, monkeypatch):
    publish_add()
    monkeypatch.setattr(lookup_json, "INCLUDABLE", ("manifest",))
    client = job()
    assert client.lookup(add_operator()) and len(requests) == 2
    assert client.store.counts()["manifests"] == 1
    assert not client._door.answers_related


REQUEST = {"target": "t", "operators": [], "include": ["manifest"], "known": ["a"], "wait_s": 1.0}


def refusal(sentence, where, status=400):
    return RefusedRequest(sentence, where, status)


def test_whatever_came_later_may_be_left_out():
    """A new field is named in ``OPTIONAL``: else today's clients get nothing from services of before."""
    before = BEFORE["components"]["schemas"]["LookupRequest"]["properties"]
    assert {*OPTIONAL[LOOKUP], "spend_limit", "free_only"} == set(lookup_json._FIELDS) - set(before)


def test_a_limit_of_spending_is_not_left_out(publish_add, job, requests, monkeypatch):
    publish_add()
    monkeypatch.setattr(lookup_json, "_FIELDS", lookup_json._FIELDS - {*OPTIONAL[LOOKUP], "spend_limit"})
    empty = job(job="run", spend_limit="1 EUR").lookup(add_operator())
    assert not empty and "spend_limit" in empty.reason and set(requests) == {LOOKUP}
    assert used() == {}


def test_a_refusal_that_names_nothing_costs_all_that_came_later(tmp_path):
    found, sent = ServiceCapabilities(EntryStore(tmp_path)), []

    def send(document):
        sent.append(document)
        if "known" in document:
            raise refusal("There is no field 'known'.", "known")
        return "answer"

    assert found.send(LOOKUP, REQUEST, send) == "answer"
    assert sent[1] == {"target": "t", "operators": [], "wait_s": 1.0}
    again = ServiceCapabilities(EntryStore(tmp_path))
    assert not again.takes(LOOKUP, "known") and again.takes(LOOKUP, "wait_s")


@pytest.mark.parametrize(
    "error",
    [
        refusal("There is no field 'target': a lookup has nothing.", "target"),
        refusal("There is no field 'revoked_since': a lookup has nothing.", "revoked_since"),  # was not sent
        refusal("known is a list of at most 2048 artifacts.", "known"),
        refusal("No key.", ""),
        CallerError("Something else."),
    ],
)
def test_other_refusals_stay_what_they_are(error):
    found, sent = ServiceCapabilities(), []

    def send(document):
        sent.append(document)
        raise error

    with pytest.raises(CallerError) as raised:
        found.send(LOOKUP, REQUEST, send)
    assert raised.value is error and len(sent) == 1


def test_a_service_that_refuses_on_and_on_is_not_asked_on_and_on():
    found, sent = ServiceCapabilities(), []

    def send(document):
        sent.append(document)
        name = ("include", "known")[len(sent) % 2]
        raise refusal(f"There is no field '{name}': a lookup has include, known, revoked_since.", name)

    with pytest.raises(CallerError):
        found.send(LOOKUP, REQUEST, send)
    assert len(sent) <= 3
