"""One thread answers what is remembered, others do the rest."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.operation import lanes
from dashboard.operation.lanes import Lanes, lead

HEADERS = [("X-Request-ID", "a")]


class Proto:
    """As granian's: the first answer counts, from whichever thread."""

    def __init__(self) -> None:
        self.answered, self.said, self.by = threading.Event(), None, ""

    def response_bytes(self, status: int, headers: Any, body: bytes) -> None:
        if self.said is None:
            self.said, self.by = (status, headers, body), threading.current_thread().name
            self.answered.set()


def quickly(sent: Any) -> Any:
    return (HEADERS, b"known") if sent["PATH_INFO"] == "/known" else None


def test_what_is_known_is_answered_where_it_arrives_while_all_others_are_slow() -> None:
    may_end, protos = threading.Event(), [Proto() for _ in range(3)]

    def run(proto: Proto, sent: Any) -> None:
        assert may_end.wait(30)
        proto.response_bytes(200, [], sent["PATH_INFO"].encode())

    both = Lanes(run, quickly, threads=2)
    for proto in protos:
        both.take(proto, {"PATH_INFO": "/page"})
    known = Proto()
    both.take(known, {"PATH_INFO": "/known"})
    assert known.said == (200, HEADERS, b"known") and known.by == threading.current_thread().name
    assert not any(proto.said for proto in protos)
    may_end.set()
    for proto in protos:
        assert proto.answered.wait(30) and proto.said == (200, [], b"/page") and proto.by.startswith("lane-")


def test_a_fault_is_a_500_and_costs_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    def run(proto: Proto, sent: Any) -> None:
        if sent["PATH_INFO"] == "/fault":
            raise SystemExit("a fault of the test's")
        proto.response_bytes(200, [], b"")

    both = Lanes(run, None, threads=1)
    faults, after = [Proto() for _ in range(3)], Proto()
    for proto in faults:
        both.take(proto, {"PATH_INFO": "/fault"})
    both.take(after, {"PATH_INFO": "/known"})
    assert after.answered.wait(30) and after.said == (200, [], b"")
    assert {proto.said[0] for proto in faults if proto.said} == {
        500
    } and "a fault of the test's" in caplog.text


class TestGranian:
    @pytest.fixture
    def wrapped(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """``wrapped(callback, options, format)``, as granian's worker calls it; how many threads began."""
        plain = SimpleNamespace(_wsgi_call_wrap=lambda callback, options, log=None: callback)
        monkeypatch.setitem(sys.modules, "granian.server.mp", plain)
        monkeypatch.setattr(lanes, "THREADS", 1)
        lead(run, quickly)
        return plain._wsgi_call_wrap

    def test_this_application_alone_is_led(self, wrapped: Any) -> None:
        def other(proto: Any, sent: Any) -> None: ...

        assert wrapped(other, {}, None) is other
        assert wrapped(run, {}, None) is not run

    @pytest.mark.parametrize("options, log", [({"url_path_prefix": "/a"}, None), ({}, "%(addr)s")])
    def test_what_granian_does_itself_it_does_for_all(self, wrapped: Any, options: Any, log: Any) -> None:
        proto = Proto()
        wrapped(run, options, log)(proto, {"PATH_INFO": "/known"})
        assert proto.answered.wait(30) and proto.said == (200, [], b"ran")

    def test_otherwise_it_is_quick(self, wrapped: Any) -> None:
        proto = Proto()
        wrapped(run, {"url_path_prefix": None}, None)(proto, {"PATH_INFO": "/known"})
        assert proto.said == (200, HEADERS, b"known")

    def test_the_one_that_is_installed_has_what_is_replaced(self) -> None:
        from granian.server import mp

        assert callable(mp._wsgi_call_wrap)

    def test_another_one_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "granian.server.mp", SimpleNamespace())
        with pytest.raises(RuntimeError, match="install the version that is pinned"):
            lead(run, quickly)


def run(proto: Proto, sent: Any) -> None:
    proto.response_bytes(200, [], b"ran")
