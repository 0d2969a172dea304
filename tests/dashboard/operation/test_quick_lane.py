"""What is remembered is answered where granian hands a request over, all else the plain way."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.operation.quick_lane import lead

HEADERS = [("X-Request-ID", "a")]


class Proto:
    """As granian's."""

    said: Any = None

    def response_bytes(self, status: int, headers: Any, body: bytes) -> None:
        assert self.said is None, "one answer"
        self.said = status, headers, body


def quickly(sent: Any) -> Any:
    return (HEADERS, b"known") if sent["PATH_INFO"] == "/known" else None


def run(proto: Proto, sent: Any) -> None:
    proto.response_bytes(200, [], b"ran")


@pytest.fixture
def wrapped(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``wrapped(callback, options, format)``, as granian's worker calls it."""
    plain = SimpleNamespace(_wsgi_call_wrap=lambda callback, options, log=None: callback)
    monkeypatch.setitem(sys.modules, "granian.server.mp", plain)
    lead(run, quickly)
    return plain._wsgi_call_wrap


def test_this_application_alone_has_it(wrapped: Any) -> None:
    def other(proto: Any, sent: Any) -> None: ...

    assert wrapped(other, {}, None) is other
    assert wrapped(run, {}, None) is not run


@pytest.mark.parametrize("options, log", [({"url_path_prefix": "/a"}, None), ({}, "%(addr)s")])
def test_what_granian_does_itself_it_does_for_all(wrapped: Any, options: Any, log: Any) -> None:
    proto = Proto()
    wrapped(run, options, log)(proto, {"PATH_INFO": "/known"})
    assert proto.said == (200, [], b"ran")


def test_what_is_known_is_quick_and_all_else_is_run(wrapped: Any) -> None:
    known, other = Proto(), Proto()
    take = wrapped(run, {"url_path_prefix": None}, None)
    take(known, {"PATH_INFO": "/known"})
    take(other, {"PATH_INFO": "/page"})
    assert known.said == (200, HEADERS, b"known") and other.said == (200, [], b"ran")


def test_the_granian_that_is_installed_has_what_is_replaced() -> None:
    from granian.server import mp

    assert callable(mp._wsgi_call_wrap)


def test_another_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "granian.server.mp", SimpleNamespace())
    with pytest.raises(RuntimeError, match="install the version that is pinned"):
        lead(run, quickly)
