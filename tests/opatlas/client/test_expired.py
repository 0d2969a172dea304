"""What ends together is asked for together: one request, not one each."""

from __future__ import annotations

import time

import pytest

from catalog.models import Best, Miss
from opatlas.client import steps
from opatlas.client.cache import memory
from tests.opatlas.client.test_client import Says
from tests.opatlas.load.kernels import add_operator

HITS, MISSES = range(990, 1000), range(10, 16)


@pytest.fixture
def later(monkeypatch):
    """``later(301)``: all clocks go on by so much. Misses live for longer than a busy host takes for some."""
    monkeypatch.setattr(memory, "MISS_LIFE_S", 60.0)
    wall, steady, ahead = time.time, time.monotonic, [0.0]
    monkeypatch.setattr(time, "time", lambda: wall() + ahead[0])
    monkeypatch.setattr(time, "monotonic", lambda: steady() + ahead[0])

    def go_on(seconds):
        ahead[0] += seconds

    return go_on


@pytest.fixture
def known(publish_all):
    publish_all([add_operator(size) for size in HITS])


@pytest.fixture
def lookups(requests):
    """How many requests for lookups there were."""
    return lambda: requests.count("/api/v1/lookup")


def one_after_another(client):
    found = [client.lookup(add_operator(size)) for size in (*HITS, *MISSES)]
    assert [bool(answer) for answer in found] == [True] * len(HITS) + [False] * len(MISSES)


def test_a_loop_asks_once_for_all_that_has_expired(known, job, lookups, later):
    client = job()
    one_after_another(client)
    assert lookups() == len(HITS) + len(MISSES), "nothing was known, and nothing predicted"
    for turn in range(1, 4):
        later(301)
        one_after_another(client)
        one_after_another(client)
        assert lookups() == len(HITS) + len(MISSES) + turn
    later(memory.MISS_LIFE_S + 1)
    one_after_another(client)
    assert lookups() == len(HITS) + len(MISSES) + 4, "misses live for a moment"
    assert client.counts["prefetched"] == 0
    assert Miss.objects.count() == len(MISSES)


def test_a_second_job_makes_no_request_and_after_the_entries_life_one(known, job, lookups, later):
    first = job()
    first.lookup_all([add_operator(size) for size in (*HITS, *MISSES)])
    one_after_another(job())
    assert lookups() == 1
    later(301)
    second = job()
    one_after_another(second)
    assert lookups() == 2
    one_after_another(job())
    assert lookups() == 2
    later(301)
    one_after_another(second)
    assert lookups() == 3


def test_a_second_machine_has_nothing_explored(known, job, lookups, tmp_path):
    """What the first one's jobs were told is known: one request, and no new miss."""
    operators = [add_operator(size) for size in HITS]
    assert all(job().lookup_all(operators))
    other = job(cache=tmp_path / "another machine").lookup_all(operators)
    assert [answer.source for answer in other] == ["service"] * len(HITS)
    assert lookups() == 2 and Miss.objects.count() == 0


def test_what_is_not_final_is_asked_for_together_too(known, job, lookups, later):
    Best.objects.update(final=False)
    client = job()
    client.lookup_all([add_operator(size) for size in HITS])
    for turn in range(2, 5):
        later(11)
        for size in HITS:
            assert client.lookup(add_operator(size)).stage == "first"
        assert lookups() == turn


def test_what_is_not_in_use_any_more_comes_along_once(known, job, later, monkeypatch):
    client, sent = job(), []
    one_after_another(client)
    ask = client.rest.ask
    monkeypatch.setattr(
        client.rest, "ask", lambda *given, **more: sent.append(len(more["related"])) or ask(*given, **more)
    )
    for _ in range(3):
        later(301)
        client.lookup(add_operator(HITS[0]))
    assert sent == [len(HITS) + len(MISSES) - 1, 0, 0]


def test_what_was_never_known_brings_nothing_along(known, job, later, monkeypatch):
    client, sent = job(), []
    one_after_another(client)
    later(301)
    other = job()
    ask = other.rest.ask
    monkeypatch.setattr(
        other.rest, "ask", lambda *given, **more: sent.append(len(more["related"])) or ask(*given, **more)
    )
    other.lookup("Relu", (7,))
    assert sent == [0]


def test_what_is_predicted_has_its_place_first(known, job, later, monkeypatch):
    client, sent = job(), []
    one_after_another(client)
    later(301)
    monkeypatch.setattr(steps, "MOST_RELATED", 4)
    client.predictor = Says(add_operator(7), add_operator(8))
    ask = client.rest.ask
    monkeypatch.setattr(
        client.rest, "ask", lambda *given, **more: sent.append(more["related"]) or ask(*given, **more)
    )
    client.lookup(add_operator(HITS[0]))
    (related,) = sent
    assert [item["key"] for item in related[:2]] == [add_operator(7).key, add_operator(8).key]
    assert len(related) == 3


def test_what_came_along_counts_as_no_use_of_the_machine(known, job, later):
    client = job()
    one_after_another(client)
    place, first = client._memory.place, add_operator(HITS[0])
    later(2 * 86400)
    job().lookup(first)
    assert client.store.expired(place, 86400, 1000) == [], "the others were used two days ago"
    later(301)
    assert client.store.expired(place, 86400, 1000) == [first.key]
