"""What a job's clients say of their caches, to the digit, on a served catalogue."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import pytest
from django.db.models import Q

from catalog.models import LookupTally
from catalog.selectors import jobs
from catalog.usage.draining import drain_journal
from opatlas.client import Client, RestOfModel, usage
from opatlas.client.service.rest import LookupReply
from tests.opatlas.client.forking import fork
from tests.opatlas.load.kernels import add_operator

SIZES = (1000, 999, 998, 997)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Reports are sent whenever a client is closed."""
    monkeypatch.setattr(usage, "REPORT_S", -1.0)
    monkeypatch.setattr(usage, "LEAVE_S", 0.0)


@pytest.fixture
def model(publish_add):
    """Keys of a model's operators, which are all known."""
    for size in SIZES:
        publish_add(size)
    return [add_operator(size) for size in SIZES]


@pytest.fixture
def run(job):
    """``run(model)``: a process of the job, which knows its model."""

    def begin(model=(), **options):
        client = job(job="run", **options)
        client.predictor = RestOfModel([client.asked(one) for one in model])
        return client

    return begin


def row():
    drain_journal()
    (found,) = jobs.rows(jobs.jobs(Q(name="run")))
    return found


def in_a_process(work):
    """``work`` in a child, which is killed at once afterwards."""
    child = fork()
    if not child:
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_two_processes_of_one_job(model, run):
    first = run(model)
    for _ in range(5):
        first.lookup(model[0])  # the service, which sends the three others along, then memory
    for _ in range(2):
        first.lookup(model[1])  # came along
    assert not first.lookup("Relu", (7,)) and not first.lookup("Relu", (7,))  # asked, then remembered
    first.close()
    second = run(model)

    def work():
        for _ in range(3):
            second.lookup(model[2])  # the machine's cache, then memory
        second.close()
        second.close()

    in_a_process(work)
    found = row()
    assert (found.service_hits, found.memory_hits, found.machine_hits) == (1, 4 + 2 + 2, 1)
    assert (found.misses, found.unasked_misses) == (2, 1)
    assert found.hit_rate == 10 / 12 and found.cached_share == 9 / 12
    along = found.prefetched
    assert (along.operators, along.used, along.wasted, along.requests) == (3, 1, 2, 0)
    assert along.requests_saved == 1
    assert 0 < along.used_bytes < along.bytes == along.wasted_bytes + along.used_bytes
    assert first.counts["prefetched_used"] == 1


def test_what_comes_along_for_one_that_was_cached_takes_a_request(model, run):
    run().lookup(model[0])
    client = run(model)
    assert client.lookup(model[0]).source == "cache"
    client._errands.put(client._write_uses)  # behind what is fetched meanwhile
    client.close()
    along = row().prefetched
    assert (along.operators, along.used, along.requests, along.requests_saved) == (3, 0, 1, -1)


def test_bytes_are_of_answers_and_of_manifests_that_came(model, run, tmp_path):
    bare = run(model[:2], cache=False)
    bare.lookup(model[0])
    bare.close()
    with_manifest = row().prefetched.bytes
    known = run(cache=tmp_path / "other")
    known.lookup_all(model[:2])
    known.store._rows("UPDATE entries SET until = 0")
    known._memory.entries.clear()
    known.predictor = RestOfModel([known.asked(one) for one in model[:2]])
    known.lookup(model[0])  # says which manifests it has
    known.close()
    assert 200 < row().prefetched.bytes - with_manifest < with_manifest - 400


def test_what_a_killed_process_had_written_down_is_counted_once(model, run):
    client = run(model)

    def work():
        client.lookup(model[0])
        client.lookup(model[1])
        client._write_uses()
        client.lookup(model[2])  # never written down

    in_a_process(work)
    for _ in range(2):
        run().close()
    found = row()
    assert (found.service_hits, found.memory_hits, found.prefetched.used) == (1, 1, 1)
    assert found.prefetched.wasted == 2


def test_a_forked_process_counts_nothing_of_its_parents(model, run):
    client = run(model)
    client.lookup(model[0])
    client.lookup(model[1])
    client._write_uses()

    def work():
        client.lookup(model[1])
        client._write_uses()

    in_a_process(work)
    client.close()
    run().close()
    found = row()
    assert (found.service_hits, found.memory_hits, found.machine_hits) == (1, 2, 0)
    assert (found.prefetched.operators, found.prefetched.used) == (3, 1)


def test_a_report_whose_answer_was_lost_counts_once(model, run, answer_lost):
    client = run(model)
    client.lookup(model[0])
    client.lookup(model[1])
    answer_lost(client)
    client._report()
    found = row()
    assert (found.memory_hits, found.prefetched.operators, found.prefetched.used) == (1, 3, 1)


def test_what_was_known_already_comes_along_in_vain(model, run):
    client = run()
    found = client.lookup_all(model[:2])
    reply = LookupReply(found[:1], next=[replace(found[1], loader=None)], entry_life_s=300.0)
    client._memory.keep(reply, predicted=reply.next)
    client.lookup(model[1])
    client._write_uses()
    along = client._memory.count_prefetched()
    assert (along["brought"], along["used"]) == (1, 0) and along["bytes"] > 200


def test_what_is_watched_was_not_prefetched(model, run, monkeypatch):
    monkeypatch.setattr("opatlas.client.watching.FIRST_POLL_S", 0.01)
    client, told = run(), threading.Event()
    client.when_known(lambda _: told.set(), model[0])
    assert told.wait(60)
    client.close()
    assert (row().memory_hits, row().prefetched) == (1, jobs.Prefetched())


def test_what_is_asked_for_after_all_was_fetched_in_vain(model, run, monkeypatch):
    client = run(model[:2])
    client.lookup(model[0])
    later = time.monotonic() + 400
    monkeypatch.setattr(time, "monotonic", lambda: later)
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 400)
    client.predictor = RestOfModel([])
    assert [client.lookup(model[1]).source for _ in range(2)] == ["service", "memory"]
    monkeypatch.undo()
    client.close()
    assert client.counts["prefetched_used"] == 0


def test_a_service_that_cannot_be_asked_is_a_miss_that_it_does_not_see(model, run, tmp_path):
    with Client("http://127.0.0.1:9", "key", cache=tmp_path / "dead") as client:
        assert not client.lookup(model[0])
        assert client.counts["miss"] == 1
        client._write_uses()
        _, report = client.store.claim_report(0.0)
    assert report["lookups"] == {"missed": 1} and report["used"] == []
    assert report["missed"] == [{"operator": model[0].key, "lookups": 1}]


def test_a_remembered_miss_is_a_miss_of_its_operator_once(run, answer_lost, monkeypatch):
    monkeypatch.setattr("opatlas.client.cache.memory.MISS_LIFE_S", 600.0)
    client = run()
    for _ in range(3):
        assert not client.lookup("Relu", (7,))  # asked, then remembered twice
    assert not client.lookup("Relu", (8,))
    client._write_uses()

    def work():
        other = run()
        for _ in range(2):
            assert other.lookup("Relu", (7,)).source in ("cache", "memory")
        other._write_uses()
        other.lookup("Relu", (7,))  # never written down

    in_a_process(work)
    for _ in range(4):
        assert not client.lookup("Relu", (8,))
    answer_lost(client)
    client.close()
    client.close()
    run().close()
    found = row()
    misses = {one.operator.key: one.misses for one in LookupTally.objects.all()}
    seven, eight = (client.asked("Relu", (size,)).key for size in (7, 8))
    assert misses == {seven: 5, eight: 5}
    assert (found.misses, found.unasked_misses) == (10, 8)


def test_no_miss_is_lost_or_counted_twice_among_threads_that_report_meanwhile(run):
    client = run()
    client.lookup("Relu", (7,))
    again = threading.Barrier(5)

    def ask():
        again.wait()
        for _ in range(200):
            client.lookup("Relu", (7,))

    def write():
        again.wait()
        for _ in range(20):
            client._write_uses()

    threads = [threading.Thread(target=work) for work in (ask, ask, ask, ask, write)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    client.close()
    assert row().misses == LookupTally.objects.get().misses == client.counts["miss"] == 801
