"""The order of steps, branch by branch, against a served catalogue; requests are counted on its side."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import Counter

import numpy as np
import pytest
from django.db.models import Sum

from catalog.best import revoked
from catalog.best.withdrawing import withdraw
from catalog.models import Best, Environment, Implementation, Measurement, Miss, Usage
from catalog.usage import journal
from catalog.usage.draining import drain_journal
from opatlas.client import Client, Refused, RestClient, RestOfModel, ServiceError, Trust, steps, usage
from opatlas.client.cache import memory
from opatlas.client.service import door
from opatlas.client.usage import UsageReporter
from opatlas.errors import CallerError, LoadError, OpatlasError
from opatlas.identity import Setting
from opatlas.load.buffers import empty
from opatlas.load.signing import new_key, public_bytes
from tests.opatlas.client.forking import fork
from tests.opatlas.load.kernels import ADD, add_operator


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    assert condition()


class Says:
    """A predictor that says what it is told to."""

    def __init__(self, *operators):
        self.operators = operators
        self.asked = Counter()

    def related(self, asked):
        self.asked[asked.key] += 1
        return self.operators


# ---- the order of steps ---------------------------------------------------------------------------------


def test_a_hit_is_asked_for_once_and_known_to_the_machine(publish_add, job, requests):
    publish_add()
    first = job()
    assert (answer := first.lookup(add_operator())) and answer.source == "service"
    assert answer.best["median_us"] == 10.0 and answer.stage == "first"
    assert [first.lookup(add_operator()).source for _ in range(3)] == ["memory"] * 3
    second = job()
    assert [second.lookup(add_operator()).source for _ in range(2)] == ["cache", "memory"]
    assert requests == ["/api/v1/lookup"]
    assert second.lookup(add_operator()).best == answer.best


def test_a_hit_says_why_it_is_trusted_whoever_gives_it(publish_add, job, signing_key):
    publish_add()
    Environment.objects.update(versions={"gcc": "14.2"})
    Measurement.objects.update(max_error=0.25, tolerance=1.0, tier="T2")
    first, second = job(), job()
    given = [client.lookup(add_operator()) for client in (first, first, second)]
    assert [answer.source for answer in given] == ["service", "memory", "cache"]
    signer = hashlib.sha256(public_bytes(signing_key)).hexdigest()
    evidence = {"max_error": 0.25, "tolerance": 1.0, "tier": "T2", "environment": {"gcc": "14.2"}}
    for answer in given:
        assert answer.evidence == evidence | {"signer": signer}
        assert answer.why_trusted.endswith(f"with gcc 14.2; signed by the key {signer[:12]}…")
    empty = first.lookup("Relu", (7,))
    assert (empty.evidence, empty.why_trusted) == ({}, "")


@pytest.fixture
def long_moments(monkeypatch):
    """For which a miss is remembered: on a busy host two seconds are over before the next lookup."""
    monkeypatch.setattr(memory, "MISS_LIFE_S", 60.0)


def test_a_miss_is_empty_remembered_for_a_moment_and_never_counts_as_cached(
    job, requests, monkeypatch, long_moments
):
    client = job()
    empty = client.lookup("Relu", (7,))
    assert not empty and empty.state == "waiting" and Miss.objects.count() == 1
    assert not client.lookup("Relu", (7,)) and not job().lookup("Relu", (7,))
    assert len(requests) == 1
    assert (client.counts["memory"], client.counts["cache"], client.counts["miss"]) == (0, 0, 2)
    client._memory.entries.clear()
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + memory.MISS_LIFE_S)
    client.lookup("Relu", (7,))
    assert len(requests) == 2


def test_not_cached_it_joins_what_is_related_and_all_is_one_request(publish_add, job, requests, long_moments):
    for size in (1000, 999, 998):
        publish_add(size)
    predictor = Says(add_operator(999), add_operator(998), add_operator(1000), add_operator(7))
    client = job(predictor=predictor)
    assert client.lookup(add_operator(1000)).source == "service"
    assert requests == ["/api/v1/lookup"]
    assert [client.lookup(add_operator(size)).source for size in (999, 998)] == ["memory", "memory"]
    assert client.counts["prefetched"] == 2
    assert Miss.objects.get().related, "who is related and not known became a miss"
    assert not client.lookup(add_operator(7))
    assert requests == ["/api/v1/lookup"]
    assert job().lookup(add_operator(998)).source == "cache", "it is the machine's"


def test_cached_it_is_given_at_once_and_what_is_related_is_fetched_meanwhile(publish_add, job, requests):
    for size in (1000, 999):
        publish_add(size)
    job().lookup(add_operator(1000))
    client = job(predictor=Says(add_operator(999)))
    held = threading.Event()
    ask = client.rest.ask
    client.rest.ask = lambda *given, **options: held.wait(60) and ask(*given, **options)
    assert client.lookup(add_operator(1000)).source == "cache", "though the service does not answer yet"
    assert len(requests) == 1
    held.set()
    until(lambda: client.counts["prefetched"] or client.counts["service"])
    assert client.lookup(add_operator(999)).source == "memory"
    assert len(requests) == 2


def test_nothing_related_that_is_not_cached_makes_no_request(publish_add, job, requests):
    for size in (1000, 999):
        publish_add(size)
    job().lookup_all([add_operator(1000), add_operator(999)])
    predictor = Says(add_operator(999), add_operator(1000))
    client = job(predictor=predictor)
    for _ in range(5):
        assert client.lookup(add_operator(1000))
    client.close()
    assert requests == ["/api/v1/lookup"], "the first client's"
    assert predictor.asked == {add_operator(1000).key: 1}, "asked once, not with every call"


def test_part_of_what_is_related_comes_back_and_is_kept(publish_add, job, requests):
    publish_add(999)
    client = job(predictor=Says(add_operator(999), add_operator(8)))
    assert not client.lookup(add_operator(1000)), "it is not among what came"
    assert client.lookup(add_operator(999)).source == "memory"
    assert len(requests) == 1 and Miss.objects.count() == 2


def test_many_are_one_request_and_come_in_order(publish_add, job, requests):
    publish_add(999)
    publish_add(998)
    client = job()
    client.lookup(add_operator(998))
    keys = [add_operator(size).key for size in (999, 5, 998, 999)]
    answers = client.lookup_all(
        [add_operator(999), add_operator(5), add_operator(998).key, add_operator(999)]
    )
    assert [answer.key for answer in answers] == keys
    assert [answer.source for answer in answers] == ["service", "service", "memory", "service"]
    assert [bool(answer) for answer in answers] == [True, False, True, True]
    assert len(requests) == 2


def test_the_rest_of_a_model_comes_with_its_first_operator(publish_add, job, requests):
    sizes = range(990, 1000)
    for size in sizes:
        publish_add(size)
    client = job()
    client.predictor = RestOfModel([client.asked(add_operator(size)) for size in sizes])
    assert all(client.lookup(add_operator(size)) for size in sizes)
    assert requests == ["/api/v1/lookup"]


def test_related_ones_are_not_counted_as_used(publish_add, job):
    publish_add(999)
    publish_add(1000)
    client = job(predictor=Says(add_operator(999)))
    client.lookup(add_operator(1000))
    (line,) = [json.loads(line) for path in journal.segments() for line in path.read_text().splitlines()]
    (hit,) = line["hits"]
    assert hit[0] == Best.objects.get(operator__key=add_operator(1000).key).operator_id


def test_a_handle_is_worked_out_once(publish_add, job, requests):
    publish_add()
    client = job()
    handle = client.handle(add_operator())
    answers = [handle() for _ in range(3)]
    assert [answer.source for answer in answers] == ["service", "memory", "memory"]
    assert answers[1] is answers[2], "nothing is made anew"
    assert handle.key == add_operator().key and len(requests) == 1


def test_whoever_does_not_wait_is_told_when_exploring_has_ended(publish_add, job, requests, monkeypatch):
    monkeypatch.setattr("opatlas.client.watching.FIRST_POLL_S", 0.05)
    client, told = job(), []
    client.lookup_all([add_operator(), add_operator(999)])
    client.when_known(told.append, add_operator())
    client.when_known(told.append, add_operator())
    client.when_known(told.append, add_operator(999))
    until(lambda: len(requests) >= 3)
    assert not told
    publish_add()
    until(lambda: len(told) == 2)
    x = np.ones(1000, np.float32)
    assert (told[0].load()(x, x) == 2).all()
    assert client.lookup(add_operator()).source == "memory", "and it is kept"
    Miss.objects.update(state="unsupported", reason="No route can.")
    until(lambda: len(told) == 3)
    assert not told[2] and told[2].reason == "No route can."
    until(lambda: client._watcher._thread is None)
    assert len(requests) < 40


def test_a_callback_that_fails_is_logged_and_keeps_nobody_else_from_being_told(
    publish_add, job, monkeypatch, caplog
):
    monkeypatch.setattr("opatlas.client.watching.FIRST_POLL_S", 0.02)
    publish_add()
    client, told = job(), []
    client.when_known(lambda answer: answer.of_the_job, add_operator())
    client.when_known(told.append, add_operator())
    until(lambda: told)
    assert told[0].hit and "no attribute 'of_the_job'" in caplog.text


def test_where_no_thread_may_be_had_the_job_goes_on_and_is_told_later(publish_add, job, monkeypatch, caplog):
    monkeypatch.setattr("opatlas.client.watching.FIRST_POLL_S", 0.02)
    publish_add()
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("opatlas-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    client, told = job(), []
    client.predictor = RestOfModel([client.asked(add_operator(size)) for size in (1000, 999)])
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        client.when_known(told.append, add_operator())
        client.refresh([add_operator()])
        assert client.lookup(add_operator()).hit
    assert not told and caplog.text.count("can't start new thread") == 1, "said once"
    client.when_known(told.append, add_operator(999))
    until(lambda: told)
    assert told[0].key == add_operator().key


# ---- what ends an entry ---------------------------------------------------------------------------------


def test_what_is_not_final_lives_for_seconds(publish_add, job, requests, monkeypatch):
    publish_add()
    Best.objects.update(final=False)
    client = job()
    assert client.lookup(add_operator()).expires_s == 10.0
    assert client.lookup(add_operator()).source == "memory"
    later = time.monotonic() + 11
    monkeypatch.setattr(time, "monotonic", lambda: later)
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 11)
    assert client.lookup(add_operator()).source == "service"


def test_waiting_for_a_stage_asks_though_something_is_known(publish_add, job, requests):
    publish_add()
    Best.objects.update(final=False)
    client = job()
    client.lookup(add_operator())
    began = time.monotonic()
    assert client.lookup(add_operator(), wait_s=0.2, wait_for="contest").stage == "first"
    assert time.monotonic() - began >= 0.15 and len(requests) == 2


def test_what_was_revoked_is_dropped_by_every_client_of_the_machine(publish_add, job, requests, monkeypatch):
    made = publish_add()
    publish_add(999)
    first, second = job(), job()
    assert first.lookup(add_operator()) and second.lookup(add_operator())
    withdraw(Implementation.objects.filter(pk=made.implementation.pk), "it is wrong")
    revoked.forget()
    first.lookup(add_operator(999))  # tells it
    assert not [answer for answer in [first.lookup(add_operator())] if answer.source == "memory"]
    monkeypatch.setattr(steps, "LOOK_S", 0.0)
    monkeypatch.setattr(memory, "LOOK_S", 0.0)
    assert second.lookup(add_operator()).best is None, "it read what the first was told"
    offline = job(offline=True)
    assert not offline.lookup(add_operator()), "offline too"


# ---- a service that is away, slow or lies ---------------------------------------------------------------


def test_offline_gives_what_is_known_beyond_its_time(publish_add, job, requests, monkeypatch):
    publish_add()
    job().lookup(add_operator())
    client = job(offline=True)
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 86400)
    assert client.lookup(add_operator()).source == "cache"
    assert client.lookup(add_operator(5)).reason == "The client is offline."
    assert len(requests) == 1


def test_a_dead_service_is_empty_told_once_and_left_alone_for_a_while(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(door, "FIRST_PAUSE_S", 600.0)
    with Client("http://127.0.0.1:9", "key", cache=tmp_path) as client:
        empty = client.lookup("Relu", (7,))
        assert not empty and empty.source == "nobody" and "cannot be reached" in empty.reason
        for size in range(100):
            assert not client.lookup("Relu", (size + 1,))
        assert client.counts["requests"] == 1, "those cost nothing"
    assert len([record for record in caplog.records if record.name == "opatlas"]) == 1


def test_strict_clients_raise(job, tmp_path):
    client = Client("http://127.0.0.1:9", "key", cache=tmp_path, strict=True)
    with client, pytest.raises(ServiceError, match="cannot be reached"):
        client.lookup("Relu", (7,))


def test_a_wrong_key_is_empty_and_says_so(live_server, tmp_path, transactional_db):
    with Client(live_server.url, "opk_wrong", cache=tmp_path) as client:
        empty = client.lookup("Relu", (7,))
        assert not empty and "key" in empty.reason.lower()


def test_two_keys_on_one_machine_share_no_entries(publish_add, job, live_server, make_key, tmp_path):
    publish_add()
    job().lookup(add_operator())
    other = Client(live_server.url, make_key("lookup"), cache=tmp_path / "cache", offline=True)
    with other as stranger:
        assert not stranger.lookup(add_operator())


# ---- threads and forks ----------------------------------------------------------------------------------


def test_threads_share_a_client(publish_add, job):
    for size in range(990, 1000):
        publish_add(size)
    client, found = job(), []

    def work():
        for size in range(990, 1000):
            found.append((size, client.lookup(add_operator(size)).key))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80 and all(key == add_operator(size).key for size, key in found)


def test_a_forked_process_asks_by_itself(publish_add, job):
    publish_add()
    publish_add(999)
    client = job(predictor=Says(add_operator(998)))
    client.lookup(add_operator())
    client._memory._lock.acquire()  # held by a thread that the child has not
    child = fork()
    if not child:
        status = 1
        try:
            status = 0 if client.lookup(add_operator(999)).source == "service" else 1
        finally:
            os._exit(status)
    client._memory._lock.release()
    assert os.waitpid(child, 0)[1] == 0
    assert client.lookup(add_operator()).source == "memory"


# ---- loading --------------------------------------------------------------------------------------------


def test_a_hit_is_loaded_from_what_the_one_request_brought(publish_add, job, requests):
    publish_add()
    x = np.arange(1000, dtype=np.float32)
    answer = job().lookup("Add", x, x)
    function = answer.load()
    assert (function(x, 2 * x) == 3 * x).all()
    files = [path for path in requests if path != "/api/v1/lookup"]
    assert len(files) == 1 and files[0].endswith("/files/kernel.so"), "the manifest came with the answer"
    assert (job(offline=True).lookup("Add", x, x).load()(x, x) == 2 * x).all(), "without the service"
    assert len(requests) == 2


def test_each_client_is_told_what_it_can_load_itself(publish_add, job, requests):
    """Two of one cache: what the one may load is not given to the other, now or later."""
    publish_add()
    every, recipes = job(), job(accepts={"kinds": ["recipe"]})
    assert every.lookup(add_operator()).best["kind"] == "c-abi"
    assert not recipes.lookup(add_operator())
    assert job().lookup(add_operator()).source == "cache"
    assert not job(accepts={"kinds": ["recipe"]}, offline=True).lookup(add_operator())
    assert requests.count("/api/v1/lookup") == 2


def test_tensors_in_tensors_out_without_a_copy_on_the_way_in(publish_add, job):
    import torch

    publish_add()
    x = torch.arange(1000, dtype=torch.float32)
    function = job().lookup("Add", x, x).load()
    made = function(x, x)
    assert isinstance(made, torch.Tensor) and torch.equal(made, 2 * x)
    again = function(x.mul_(2), x)
    assert torch.equal(again, 2 * x) and not torch.equal(again, made), (
        "each call's output is the caller's own"
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e5m2"])
def test_tensors_of_every_type_are_read_where_they_lie(dtype):
    import torch

    from opatlas.client.loading.buffers import host_array, like_given
    from opatlas.identity.operator import Value

    tensor = torch.arange(8).to(getattr(torch, dtype)).requires_grad_(dtype != "float8_e5m2")
    array = host_array(tensor, Value(dtype, (8,)), "input 0")
    assert array.dtype.name == dtype and array.ctypes.data == tensor.data_ptr()
    again = like_given(tensor, array)
    assert again.dtype is tensor.dtype and again.data_ptr() == tensor.data_ptr()


def test_bound_to_the_callers_tensors(publish_add, job):
    """They are what the kernel itself reads and writes, and what is given back."""
    import torch

    publish_add()
    x, y, z = (torch.full((1000,), value) for value in (1.0, 2.0, 0.0))
    function, tied = job().lookup("Add", x, y).load(), []
    bind = function.kernel.bind
    function.kernel.bind = lambda inputs, outputs: (
        tied.extend([*inputs.values(), *outputs]) or bind(inputs, outputs)
    )
    bound = function.bind([x, y], [z])
    assert [array.ctypes.data for array in tied] == [one.data_ptr() for one in (x, y, z)]
    bound()
    assert bound.outputs()[0] is z and torch.equal(z, x + y)
    bound.poison()
    assert z.isnan().all()


def test_bound_to_the_callers_buffers(publish_add, job):
    publish_add()
    x, y = np.ones(1000, np.float32), np.ones(1000, np.float32)
    bound = job().lookup(add_operator()).load().bind([x, y])
    x[:] = 41
    bound()
    assert (bound.outputs()[0] == 42).all()


def test_bound_to_the_callers_outputs_as_well(publish_add, job):
    publish_add()
    function = job().lookup(add_operator()).load()
    x = np.ones(1000, np.float32)
    unaligned = np.zeros(1001, np.float32)[1:]
    for output in (np.zeros(1000, np.float32), unaligned):
        bound = function.bind([x, x], [output])
        bound()
        assert (output == 2).all() and bound.outputs()[0] is output
    with pytest.raises(OpatlasError, match="output 0"):
        function.bind([x, x], [np.zeros(999, np.float32)])
    with pytest.raises(CallerError, match="has 1 outputs; 2 are given"):
        function.bind([x, x], [x, x])


@pytest.mark.parametrize("wrong", [(np.ones(999, np.float32),) * 2, (np.ones(1000, np.float32),)])
def test_wrong_inputs_are_refused(publish_add, job, wrong):
    publish_add()
    function = job().lookup(add_operator()).load()
    with pytest.raises(OpatlasError):
        function(*wrong)


def test_whom_the_caller_trusts_decides(publish_add, job, tmp_path, signing_key):
    publish_add()
    assert job(trust=Trust.in_keys([public_bytes(signing_key)])).lookup(add_operator()).load()
    stranger = Trust.in_keys([public_bytes(new_key(tmp_path / "stranger.pem"))])
    with pytest.raises(Refused, match="not trusted"):
        job(trust=stranger).lookup(add_operator()).load()


def test_a_damaged_file_of_the_cache_is_fetched_again(publish_add, job, tmp_path):
    publish_add()
    x = np.ones(1000, np.float32)
    job().lookup(add_operator()).load()
    (kernel,) = (tmp_path / "cache").rglob("kernel.so")
    kernel.write_bytes(b"damaged")
    assert (job().lookup(add_operator()).load()(x, x) == 2).all()


def test_nothing_is_loaded_from_where_others_may_write(publish_add, job, tmp_path):
    publish_add()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    hit = job().lookup(add_operator())
    with pytest.raises(LoadError, match="name one of your own"):
        hit.load()
    assert hit and not list((tmp_path / "cache").iterdir())


def test_an_empty_answer_cannot_be_loaded(job):
    with pytest.raises(CallerError, match="nothing to load"):
        job().lookup("Relu", (7,)).load()


# ---- reported use ---------------------------------------------------------------------------------------


@pytest.fixture
def at_once(monkeypatch):
    """Reports are sent whenever a client is closed."""
    monkeypatch.setattr(usage, "REPORT_S", -1.0)


def test_a_short_process_leaves_its_report_to_the_next(publish_add, job, requests, monkeypatch):
    publish_add()
    job().lookup(add_operator())
    short = job()
    short.lookup(add_operator())
    short.close()
    assert requests == ["/api/v1/lookup"] and short.store.counts()["reports"] == 1
    monkeypatch.setattr(usage, "REPORT_S", 0.0)
    job().close()
    assert requests == ["/api/v1/lookup", "/api/v1/usage"] and used() == {add_operator().key: 2}


def used():
    """Calls by operator, of everything that was counted."""
    drain_journal()
    rows = Usage.objects.values("operator__key").annotate(total=Sum("calls"))
    return {row["operator__key"]: row["total"] for row in rows}


def test_hits_of_the_caches_are_counted_when_they_are_reported(publish_add, job, at_once):
    publish_add()
    publish_add(999)
    first = job(job="run", predictor=Says(add_operator(999)))
    for _ in range(3):
        first.lookup(add_operator())
    first.lookup(add_operator(999))  # came along
    first.close()
    second = job(job="run")
    second.lookup(add_operator())
    second.close()
    second.close()
    assert used() == {add_operator().key: 1 + 2 + 1, add_operator(999).key: 1}
    assert set(Usage.objects.values_list("job__name", flat=True)) == {"run"}


def test_what_a_killed_process_wrote_down_is_reported_by_the_next(publish_add, job, live_server, at_once):
    publish_add()
    killed = job(job="run")
    killed.lookup(add_operator())
    killed.lookup(add_operator())
    killed._write_uses()
    killed._memory.entries.clear()
    killed._reporter = UsageReporter("run", None, print)  # SIGKILL: nothing of it is ever sent
    assert used() == {add_operator().key: 1}
    job().close()
    assert used() == {add_operator().key: 2}


def test_a_report_whose_answer_was_lost_counts_once(publish_add, job, monkeypatch, answer_lost, at_once):
    publish_add()
    client = job()
    client.lookup(add_operator())
    client.lookup(add_operator())
    answer_lost(client)
    monkeypatch.setattr("opatlas.client.usage.LEAVE_S", 0.0)
    client._report()
    assert used() == {add_operator().key: 2}
    assert client.store.counts()["reports"] == 0


def test_what_is_predicted_fetched_or_watched_is_not_used(publish_add, job, requests, caplog, at_once):
    for size in (1000, 999, 998):
        publish_add(size)
    operators = [add_operator(size) for size in (1000, 999, 998)]
    warm = job()
    warm.lookup_all(operators[:2])
    client = job(predictor=Says(*operators))
    for operator in operators[:2]:
        client.lookup(operator)
    until(lambda: client.counts["prefetched"] == 1)
    told = []
    client.when_known(told.append, operators[2])
    until(lambda: told)
    assert client.counts["memory"] == 1 and client.counts["cache"] == 2
    client.close()
    assert used() == {operators[0].key: 2, operators[1].key: 2, operators[2].key: 1}
    assert not [record for record in caplog.records if record.exc_info]


def test_uses_that_cannot_be_written_down_are_kept(publish_add, job, monkeypatch, at_once):
    publish_add()
    client = job()
    client.lookup(add_operator())
    client.lookup(add_operator())
    with monkeypatch.context() as full:
        full.setattr(client.store, "keep_report", lambda *_: False)
        client._report()
    client._report()
    assert used() == {add_operator().key: 2}


def test_without_a_cache_and_without_a_service_closing_is_quiet(publish_add, job, monkeypatch):
    publish_add()
    client = job(cache=False)
    assert client.lookup(add_operator()) and client.lookup(add_operator()).source == "memory"

    def broken(*_, **__):
        raise ServiceError("The connection broke.")

    monkeypatch.setattr(client.rest, "call", broken)
    client.close()
    monkeypatch.undo()
    client.close()
    assert used() == {add_operator().key: 2}


def test_a_forked_process_reports_nothing_of_its_parents(publish_add, job, at_once):
    publish_add()
    client = job()
    client.lookup(add_operator())
    client.lookup(add_operator())
    child = fork()
    if not child:
        status = 1
        try:
            assert client.counts["memory"] == 0
            client.close()  # as at its end
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    client.close()
    assert used() == {add_operator().key: 2}


# ---- what one wrong thing must not cost -----------------------------------------------------------------


def test_an_operator_that_the_service_refuses_costs_no_other_its_answer(publish_add, job, monkeypatch):
    publish_add()
    publish_add(999)
    wrong = {"op": "Relu", "inputs": [{"shape": [5], "dtype": "float32"}]}
    client = job()
    asked = client.asked(wrong)
    asked.document = {"op": "NoSuch", "inputs": []}  # as another version of ONNX may see it
    found = client.lookup_all([add_operator(), asked, add_operator(999)])
    assert [bool(answer) for answer in found] == [True, False, True]
    assert "NoSuch" in found[1].reason
    client.predictor = Says(asked)
    client._memory.entries.pop(asked.key, None)
    assert client.lookup("Sigmoid", (5,)).state == "waiting", "nor is it left alone for that"


def test_more_than_one_request_takes_are_several(publish_add, job, requests):
    publish_add()
    answers = job().lookup_all([*(add_operator(size) for size in range(1, 600)), add_operator()])
    assert len(answers) == 600 and answers[-1] and not any(answers[:-1])
    assert len(requests) == 2


def test_asked_by_its_key_first_and_then_with_its_graph(job):
    client = job()
    assert client.lookup(add_operator().key).status == "need_graph"
    client._memory.entries.clear()
    assert client.lookup(add_operator()).state == "waiting"


def test_many_load_the_same_at_once(publish_add, job):
    publish_add()
    clients, x, made = [job() for _ in range(8)], np.ones(1000, np.float32), []
    answers = [client.lookup(add_operator()) for client in clients]
    threads = [threading.Thread(target=lambda one=one: made.append(one.load()(x, x))) for one in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8 and all((one == 2).all() for one in made)


def test_more_revoked_than_can_be_listed_reaches_every_process(publish_add, job, requests, monkeypatch):
    for size in (1000, 999, 998):
        publish_add(size)
    first, second = job(), job()
    assert first.lookup(add_operator()) and second.lookup(add_operator())
    monkeypatch.setattr("catalog.best.revoked.MOST", 1)
    withdraw(Implementation.objects.exclude(operator__key=add_operator().key), "wrong")
    revoked.forget()
    first.lookup(add_operator(7))
    before = len(requests)
    monkeypatch.setattr(steps, "LOOK_S", 0.0)
    monkeypatch.setattr(memory, "LOOK_S", 0.0)
    assert second.lookup(add_operator()).source == "service" and len(requests) == before + 1
    revoked.forget()


def test_a_hit_that_was_revoked_on_its_way_is_no_hit(publish_add, job, monkeypatch):
    made = publish_add()
    monkeypatch.setattr(
        "catalog.api.lookup.revocations",
        lambda scopes, since: revoked.Revocations((made.implementation.artifact.sha256,)),
    )
    client = job()
    assert "revoked" in client.lookup(add_operator()).reason
    assert client.store.counts()["entries"] == 0 and not client._memory.entries


def test_threads_with_weights_of_their_own(publish_prepared_add, job):
    publish_prepared_add()
    x = np.ones(1000, np.float32)
    function = job().lookup(add_operator(constant=True)).load()
    wrong = []

    def work(value):
        w = np.full(1000, value, np.float32)
        for _ in range(50):
            if not (function(x, w) == 1 + value).all():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(float(value),)) for value in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    w = np.full(1000, 3, np.float32)
    function.prepare({1: w})
    w[:] = 7
    assert (function(x) == 4).all(), "weights are copied"
    assert (function(x, w) == 8).all(), "and packed anew where they are given"


def test_what_was_revoked_meanwhile_is_not_loaded(publish_add, job, monkeypatch):
    made = publish_add()
    publish_add(999)
    first, second = job(), job()
    answer = second.lookup(add_operator())
    withdraw(Implementation.objects.filter(pk=made.implementation.pk), "it is wrong")
    revoked.forget()
    first.lookup(add_operator(999))  # is told
    second._memory.looked_at = 0.0  # a second later
    with pytest.raises(Refused, match="revoked"):
        answer.load()
    with pytest.raises(Refused, match="revoked"):
        job(offline=True).load(answer)


def test_whoever_waits_for_what_cannot_be_loaded_is_told(publish_add, job, monkeypatch):
    monkeypatch.setattr("opatlas.client.watching.FIRST_POLL_S", 0.02)
    publish_add()
    client, told = job(accepts={"kinds": ["recipe"]}), []
    client.when_known(told.append, add_operator())
    client.when_known(told.append, "o1:" + "0" * 64)
    until(lambda: len(told) == 2)
    assert {answer.state or answer.status for answer in told} == {"explored", "need_graph"}
    client.close()
    client.when_known(told.append, add_operator())
    until(lambda: len(told) == 3)


@pytest.mark.parametrize(
    ("url", "key"), [("localhost:8000", "key"), ("http://", "key"), ("http://here", "a b")]
)
def test_an_address_that_is_none_is_said_when_the_client_is_made(tmp_path, url, key):
    with pytest.raises(CallerError, match=r"no service address|An API key"):
        Client(url, key, cache=tmp_path)
    with pytest.raises(CallerError):
        RestClient(url, key)


def test_as_many_as_may_be_are_refused_and_remembered(publish_add, job, requests):
    publish_add()
    client = job()
    wrong = []
    for size in range(1, 31):
        asked = client.asked("Relu", (size,))
        asked.document = {"op": "NoSuch", "inputs": []}
        wrong.append(asked)
    found = client.lookup_all([*wrong, add_operator()])
    assert found[-1] and [answer.state for answer in found[:-1]] == ["refused"] * 30
    before = len(requests)
    client.predictor = Says(*wrong, add_operator(999))
    client._memory.entries.clear()
    client.store.clear()
    assert client.lookup(add_operator()) and len(requests) == before + 1, "they are not asked for again"


def test_a_refusal_of_the_whole_request_is_not_repeated_at_once(job, requests, monkeypatch):
    monkeypatch.setattr(door, "FIRST_PAUSE_S", 600.0)
    client = job(job="x" * 300)
    for size in range(1, 20):
        assert "200 printable characters" in client.lookup("Relu", (size,)).reason or size > 1
    assert len(requests) == 1


def test_one_outage_met_by_many_threads_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(door, "FIRST_PAUSE_S", 10.0)
    with Client("http://127.0.0.1:9", "key", cache=tmp_path) as client:
        threads = [threading.Thread(target=client.lookup, args=("Relu", (size,))) for size in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client._door._pause_s <= 40


def test_a_caller_may_go_on_with_its_document(job):
    client, document = job(), {"op": "Relu", "inputs": [{"shape": [5], "dtype": "float32"}]}
    handle = client.handle(document)
    document["inputs"][0]["shape"] = [6]
    assert handle().state == "waiting"


def test_a_stage_that_was_passed_is_not_waited_for(publish_add, job, requests):
    publish_add()
    Best.objects.update(final=False, stage="contest")
    client = job()
    client.lookup(add_operator())
    for stage in ("first", "contest"):
        assert client.lookup(add_operator(), wait_s=0.1, wait_for=stage).source == "memory"
    assert len(requests) == 1


def test_a_client_that_nobody_closes_leaves_its_uses_written_down(publish_add, job, live_server, tmp_path):
    import gc

    publish_add()
    job().lookup(add_operator())

    def work():
        options = {"cache": tmp_path / "cache", "setting": Setting(threads=1), "offline": True}
        client = Client(live_server.url, job_key, **options)
        client.lookup(add_operator())

    job_key = job()._address["key"]
    work()
    gc.collect()
    assert job().store.counts()["reports"] == 1


def test_a_list_longer_than_a_service_takes_known_artifacts(publish_add, job, monkeypatch):
    made = publish_add()
    client = job()
    answer = client.lookup(add_operator())
    keys = [f"o1:{number:064x}" for number in range(2100)]
    document = {"target": answer.target, "setting": answer.setting} | answer.to_json()
    client.store.keep(client._memory.place, {key: (document | {"key": key}, -1.0) for key in keys})
    assert made and client.lookup_all([*keys, add_operator()])[0].status == "need_graph"


def test_only_what_is_not_cached_goes_along(publish_add, job, requests, monkeypatch):
    publish_add(999)
    publish_add(998)
    client = job(predictor=Says(add_operator(999), add_operator(998)))
    client.predictor, says = RestOfModel([]), client.predictor
    client.lookup(add_operator(999))
    client.predictor, sent, ask = says, [], client.rest.ask
    monkeypatch.setattr(
        client.rest, "ask", lambda *given, **more: sent.append(more["related"]) or ask(*given, **more)
    )
    client.lookup(add_operator())
    assert [[item["key"] for item in related] for related in sent] == [[add_operator(998).key]]


def test_a_refused_guess_is_worth_one_more_request_and_no_further(publish_add, job, requests):
    publish_add()
    client = job()
    wrong = [client.asked("Relu", (size,)) for size in range(1, 6)]
    for asked in wrong:
        asked.document = {"op": "NoSuch", "inputs": []}
    client.predictor = Says(*wrong)
    assert client.lookup(add_operator())
    assert len(requests) == 2


def test_weights_are_copied_also_where_the_kernel_packs_nothing(publish_add, job):
    operator = add_operator(constant=True)
    publish_add(source=ADD, operator=operator)
    x, w = np.ones(1000, np.float32), empty(operator.inputs[1], 64)
    w[:] = 3
    function = job().lookup(operator).load()
    function.prepare({1: w})
    w[:] = 7
    assert (function(x) == 4).all()


def test_a_key_under_anothers_name_is_trusted_by_nobody(tmp_path):
    ours, theirs = (public_bytes(new_key(tmp_path / name)) for name in ("ours.pem", "theirs.pem"))
    name = hashlib.sha256(ours).hexdigest()
    assert Trust.in_rows({name: {"public_key": ours.hex(), "retired_at": None}}).keys == {name: ours}
    assert Trust.in_rows({name: {"public_key": theirs.hex(), "retired_at": None}}).keys == {}
