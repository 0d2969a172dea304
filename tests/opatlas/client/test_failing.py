"""What fails where a job runs: the default takes over, the machine knows, the service hears."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest
from django.utils import timezone

from catalog.models import Best
from opatlas.client import Refused
from opatlas.client.loading import failing
from opatlas.errors import CallerError, LoadError
from opatlas.identity import Node
from opatlas.load import KernelFailed, default
from opatlas.load.buffers import empty
from tests.opatlas.client.forking import fork
from tests.opatlas.load.kernels import (
    CRASHES,
    FAILS_LATER,
    LOADS_NOWHERE,
    PREPARED_ADD,
    REFUSES_WEIGHTS,
    add_operator,
)
from tuning.models import FailureReport, Recheck

SUB = replace(add_operator(constant=True), nodes=(Node("Sub", (0, 1), (2,)),))
SUBTRACT = PREPARED_ADD.replace("x[i] + packed", "x[i] - packed")
X, Y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)


@pytest.fixture(autouse=True)
def quick_default(monkeypatch):
    """Of the libraries the one that is imported anyway; and this process has run nothing yet."""
    numpy = tuple(call for call in default.CALLS if call["library"] == "numpy")
    monkeypatch.setattr(default, "CALLS", numpy)
    monkeypatch.setattr(failing, "_went_well", set())


@pytest.fixture
def told(monkeypatch):
    """What clients report, in order; ``told.answer`` is what the service says to it."""

    class Told(list):
        answer = "waiting"

        def take(self, rest, verb, path, report, *more):
            if path != "/api/v1/failures":
                return call(rest, verb, path, report, *more)
            self.append(report)
            return {
                "results": [{"artifact": one["artifact"], "state": self.answer} for one in report["failed"]]
            }

    from opatlas.client.service.rest import RestClient

    call, seen = RestClient.call, Told()
    monkeypatch.setattr(
        RestClient, "call", lambda rest, verb, path, *more: seen.take(rest, verb, path, *(more or (None,)))
    )
    return seen


def settled(client):
    """Everything that it does beside the job is done."""
    done = threading.Event()
    client.aside(done.set)
    assert done.wait(60)


def test_the_third_call_is_the_defaults_and_all_after_it(publish_add, job, told, caplog):
    made = publish_add(source=FAILS_LATER)
    client = job(job="of today")
    function = client.lookup(add_operator()).load()
    for _ in range(5):
        assert (function(X, Y) == X + 1).all(), "whole, and right"
    assert "the third call is one too many" in function.failure and "KernelFailed" in function.failure
    settled(client)
    (report,) = told
    (failed,) = report["failed"]
    assert failed == {
        "implementation": made.implementation.pk,
        "artifact": made.implementation.artifact.sha256,
        "where": "run",
        "error": "KernelFailed",
        "message": "the kernel failed: the third call is one too many",
    }
    assert report["job"] == "of today" and "numpy" in report["versions"]
    assert len([one for one in caplog.records if "does not work here" in one.message]) == 1


def test_what_was_bound_is_written_whole_into_the_callers_buffers(publish_add, job, told):
    publish_add(source=FAILS_LATER)
    function = job().lookup(add_operator()).load()
    z, other = np.zeros(1000, np.float32), np.zeros(1000, np.float32)
    bound, second = function.bind([X, Y], [z]), function.bind([X, X], [other])
    own = function.bind([Y, Y])
    held = own.outputs()[0]
    for one in (bound, own, bound, bound, second, own):
        z[...] = 0
        one()
    assert (other == 2 * X).all() and (held == 2).all() and own.outputs()[0] is held
    bound()
    assert (z == X + 1).all() and bound.outputs()[0] is z


def test_an_output_that_lies_in_an_input_is_not_written_by_what_fails(publish_add, job, told):
    publish_add(source=FAILS_LATER)
    function = job().lookup(add_operator()).load()
    x = empty(add_operator().inputs[0], 64)  # where a kernel writes without a copy between
    x[...] = X
    bound = function.bind([x, Y], [x])
    for _ in range(4):
        bound()
    assert (x == X + 4).all()


def test_weights_are_the_defaults_too(publish_add, job, told):
    publish_add(source=SUBTRACT, operator=SUB)
    function = job().lookup(SUB).load()
    weights = Y.copy()
    function.prepare({1: weights})
    weights[...] = 9  # a copy was taken
    big = np.full(1000, 2e30, np.float32)
    assert (function(X) == X - 1).all() and (function(big) == big - 1).all()
    assert "x is too large" in function.failure
    assert (function(X) == X - 1).all()
    function.prepare({1: X})
    assert not function(X).any()


def test_a_kernel_that_refuses_its_weights(publish_add, job, told):
    publish_add(source=REFUSES_WEIGHTS, operator=SUB)
    function = job().lookup(SUB).load()
    assert (function(X, Y) == X - 1).all() and "refuses its constants" in function.failure


def test_the_callers_own_errors_are_no_failures(publish_add, job, told):
    publish_add(source=SUBTRACT, operator=SUB)
    client = job()
    function = client.lookup(SUB).load()
    with pytest.raises(CallerError, match=r"prepare\(\) comes before"):
        function.bind([X, Y])
    function.prepare({1: Y})
    bound = function.bind([X])
    for wrong in (X[:5], X.astype(np.float64), X[::-1]):
        with pytest.raises(LoadError):
            function(wrong)
    function.prepare({1: X})
    with pytest.raises(KernelFailed, match="bind it again"):
        bound()
    again = function.bind([X])
    function.close()
    for call in (again, lambda: function(X)):
        with pytest.raises((KernelFailed, LoadError), match="closed"):
            call()
    settled(client)
    assert not function.failure and not told


def test_other_processes_run_the_default_until_a_worker_has_found_nothing(
    publish_add, job, told, monkeypatch
):
    publish_add(source=FAILS_LATER)
    first = job()
    function = first.lookup(add_operator()).load()
    for _ in range(3):
        function(X, Y)
    settled(first)
    other = job()
    function = other.lookup(add_operator()).load()
    assert "failed on this machine" in function.failure and (function(X, Y) == X + 1).all()
    settled(other)
    assert len(told) == 1, "it was told a moment ago"
    monkeypatch.setattr(failing, "ASK_AGAIN_S", -1.0)
    told.answer = "not_reproduced"
    assert other.lookup(add_operator()).load().failure
    settled(other)
    assert len(told) == 2
    function = other.lookup(add_operator()).load()
    assert not function.failure, "one more chance"
    for _ in range(3):
        assert (function(X, Y) == X + 1).all()
    assert function.failure
    settled(other)
    assert len(told) == 3
    assert other.lookup(add_operator()).load().failure
    settled(other)
    assert len(told) == 3 and other.lookup(add_operator()).load().failure, "and that was the last"


def test_one_that_kills_its_process_is_found_by_the_next(publish_add, job, told):
    publish_add(source=CRASHES)
    client = job()
    answer = client.lookup(add_operator())
    client.artifacts.fetch(answer, frozenset())
    child = fork()
    if not child:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        answer.load()(X, Y)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGSEGV
    function = job().lookup(add_operator()).load()
    assert "a process died" in function.failure and (function(X, Y) == X + 1).all()
    settled(client)
    function = client.lookup(add_operator()).load()
    assert function.failure and [one["failed"][0]["where"] for one in told] == ["crash"]


def test_one_that_is_being_tried_or_went_well_is_not_blamed(publish_add, job, told):
    publish_add()
    client = job()
    answer = client.lookup(add_operator())
    folder = client.artifacts.fetch(answer, frozenset()).folder
    with failing._being_tried(folder):
        assert not failing._was_left(folder), "somebody is at it"
        assert not answer.load().failure
    function = answer.load()
    function.bind([X, Y])()
    assert not list(folder.glob("*trying-*")) and not failing._was_left(folder)
    assert answer.best["artifact"] in failing._went_well


def test_what_cannot_be_loaded_is_told_once_and_tried_again(publish_add, job, told):
    publish_add(source=LOADS_NOWHERE)
    client = job()
    for _ in range(3):
        with pytest.raises(LoadError, match="opatlas_run"):
            client.lookup(add_operator()).load()
    settled(client)
    assert [one["failed"][0]["where"] for one in told] == ["load"]


def test_what_is_refused_is_no_failure(publish_add, job, told):
    publish_add(features=("zz_unheard_of",))
    client = job()
    with pytest.raises(Refused):
        client.lookup(add_operator()).load()
    settled(client)
    assert not told


def test_without_a_library_the_error_says_so_and_is_told(publish_add, job, told, monkeypatch):
    monkeypatch.setattr(default, "CALLS", ({"library": "torch", "call": "eager"},))
    monkeypatch.setitem(__import__("sys").modules, "opatlas.load.torch.recipe", None)
    publish_add(source=FAILS_LATER)
    client = job()
    function = client.lookup(add_operator()).load()
    function(X, Y), function(X, Y)
    with pytest.raises(LoadError, match=r"one too many.*default cannot be run here either.*torch"):
        function(X, Y)
    settled(client)
    assert len(told) == 1


def test_who_asks_nobody_leaves_the_report_to_the_next(publish_add, job, told):
    publish_add(source=FAILS_LATER)
    online = job()
    online.artifacts.fetch(online.lookup(add_operator()), frozenset())
    offline = job(offline=True)
    function = offline.lookup(add_operator()).load()
    for _ in range(3):
        function(X, Y)
    settled(offline)
    assert not told and offline.store.counts()["reports"] == 1
    online._reporter.send_all(online.rest, 5.0)
    assert len(told) == 1 and not online.store.counts()["reports"]


def test_a_service_from_before_takes_no_such_report(publish_add, job, monkeypatch):
    from opatlas.client.service.rest import RefusedRequest, RestClient

    publish_add(source=FAILS_LATER)
    client = job()
    call = RestClient.call

    def before(rest, verb, path, *more):
        if path == "/api/v1/failures":
            raise RefusedRequest("There is no such address.", "", 404)
        return call(rest, verb, path, *more)

    monkeypatch.setattr(RestClient, "call", before)
    function = client.lookup(add_operator()).load()
    for _ in range(3):
        assert (function(X, Y) == X + 1).all()
    settled(client)
    assert not client.store.counts()["reports"]


def test_a_mark_that_is_damaged_is_none(tmp_path):
    for text in ("", "[]", "{}", '{"state": "failing"}', json.dumps({"state": "failing", "report": 5})):
        (tmp_path / "failing.json").write_text(text)
        assert failing.read_mark(tmp_path).get("state") is None


def test_a_service_that_lies_of_others_changes_nothing(tmp_path):
    told = {"error": "E", "message": "m", "artifact": "a" * 64}
    mark = {"state": "failing", "where": "run", "final": False, "asked_at": 0.0, "report": told}
    failing.write_mark(tmp_path, mark)
    report = {"failed": [told]}
    for answer in (
        None,
        [],
        {"results": 5},
        {"results": [5]},
        {"results": [{"artifact": "../..", "state": "x"}]},
    ):
        failing.hear(report, answer, lambda artifact: tmp_path)
        assert failing.read_mark(tmp_path)["state"] == "failing"


def test_the_default_itself_has_no_other(publish_add, job, told):
    publish_add(source=FAILS_LATER)
    Best.objects.update(is_default=True)
    function = job().lookup(add_operator()).load()
    function(X, Y), function(X, Y)
    with pytest.raises(Exception, match="one too many"):
        function(X, Y)


def test_the_service_hears_of_it_and_says_what_became_of_it(publish_add, job, monkeypatch):
    made = publish_add(source=FAILS_LATER)
    client = job(job="of today")
    function = client.lookup(add_operator()).load()
    for _ in range(3):
        function(X, Y)
    settled(client)
    report, recheck = FailureReport.objects.get(), Recheck.objects.get()
    assert (report.implementation, report.job, report.where) == (made.implementation, "of today", "run")
    assert report.versions["numpy"] == np.__version__ and recheck.state == "waiting"
    Recheck.objects.update(state="not_reproduced", finished_at=timezone.now())
    monkeypatch.setattr(failing, "ASK_AGAIN_S", -1.0)
    assert client.lookup(add_operator()).load().failure
    settled(client)
    assert not client.lookup(add_operator()).load().failure, "one more chance"
