"""Failpoints do what they are told where they are told, say who passed them, and are nothing when off."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator

import pytest

from catalog import failpoints
from tests.databases import ROOT
from tests.hostile.killing import forked

SOURCES = ("catalog", "tuning", "dashboard")


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def passing(place: str, times: int = 1) -> None:
    for _ in range(times):
        failpoints.at(place)


def test_a_process_is_killed_at_the_pass_that_was_named() -> None:
    assert forked(lambda: passing("published", 2), "published=kill@3") == 0
    assert os.WTERMSIG(forked(lambda: passing("published", 3), "published=kill@3")) == signal.SIGKILL
    assert forked(lambda: passing("settled", 5), "published=kill") == 0


def test_a_process_is_stopped_and_goes_on() -> None:
    child = os.fork()
    if child == 0:
        failpoints.arm("heartbeat=stop@1")
        failpoints.at("heartbeat")
        os._exit(7)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    os.kill(child, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_slow_disk_is_slow_at_every_pass() -> None:
    failpoints.arm("journal-appended=sleep:0.02, draining=sleep:9")
    began = time.monotonic()
    passing("journal-appended", 2)
    assert time.monotonic() - began >= 0.04


def test_every_pass_is_a_line_of_the_trace_with_what_it_says_of_itself(tmp_path) -> None:
    failpoints.arm("", tmp_path / "trace")
    failpoints.at("claimed", exploration_id=3, fence=2)
    failpoints.at("settled")
    first, second = map(json.loads, (tmp_path / "trace").read_text().splitlines())
    assert (first["place"], first["exploration_id"], first["fence"], first["pid"]) == (
        "claimed",
        3,
        2,
        os.getpid(),
    )
    assert second["s"] >= first["s"]


@pytest.mark.parametrize(
    ("faults", "said"),
    [("nowhere=kill", "no failpoint 'nowhere'"), ("settled=explode", "kill, stop or sleep"),
     ("settled=sleep", "kill, stop or sleep"),
     ("settled=kill@x", "kill, stop or sleep"), ("settled", "kill, stop")],
)  # fmt: skip
def test_what_cannot_be_armed_is_said(faults, said) -> None:
    with pytest.raises(ValueError, match=said):
        failpoints.arm(faults)


def test_nothing_is_armed_unless_somebody_says_so() -> None:
    assert failpoints.at is failpoints._off


def test_every_place_that_is_listed_is_passed_somewhere_and_no_other_is() -> None:
    passed = {
        name
        for package in SOURCES
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r'failpoints\.at\("([\w-]+)"', path.read_text())
    }
    of_tests = {"database-written", "database-committed"}
    assert passed == set(failpoints.PLACES) - of_tests
