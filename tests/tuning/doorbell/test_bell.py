"""Doorbells: a broker that hangs or is gone delays nobody."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tuning.celery import broker_options
from tuning.doorbell import bell as bells
from tuning.doorbell.bell import Bell

LONG_S = 60.0
"""What happens at all happens within this, on any host."""


def test_a_hanging_broker_does_not_delay_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = threading.Event()
    monkeypatch.setattr(bells, "_ring_now", lambda capability: hang.wait(LONG_S))
    bell = Bell()
    began = time.monotonic()
    for _ in range(100):
        bell.ring({"cpu.zen3"})
    assert time.monotonic() - began < LONG_S / 2, "a ring hangs for twice as long"
    assert not bell.flush(0.05)
    hang.set()
    assert bell.flush(LONG_S)


def test_bells_that_wait_for_the_same_queue_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[str] = []
    free = threading.Event()
    monkeypatch.setattr(bells, "_ring_now", lambda capability: (free.wait(LONG_S), rung.append(capability)))
    bell = Bell()
    for _ in range(50):
        bell.ring({"cpu.zen3", "cpu.zen5"})
    free.set()
    assert bell.flush(LONG_S)
    assert 2 <= len(rung) <= 4
    assert set(rung) == {"cpu.zen3", "cpu.zen5"}


def test_a_broker_that_refuses_is_logged_and_forgotten(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tuning.celery import app

    def refuse(name: str, **kwargs: Any) -> None:
        raise ConnectionRefusedError("nobody listens")

    monkeypatch.setattr(app, "send_task", refuse)
    bells._ring_now("cpu.zen3")
    assert "nobody listens" in caplog.text


@pytest.fixture
def embedded(tmp_path: Path) -> Any:
    """A connection to an embedded broker of its own."""
    from kombu import Connection

    from tuning.doorbell.filesystem_broker import Transport

    # kombu remembers bindings per process, whatever the folder: another test's must not count here.
    Transport.global_state.clear()
    options = broker_options("", tmp_path)
    with Connection(
        options["broker_url"], transport=options["broker_transport"],
        transport_options=options["broker_transport_options"],
    ) as connection:  # fmt: skip
        yield connection


def test_the_embedded_broker_keeps_one_bell_per_queue(embedded: Any) -> None:
    first, second = embedded.SimpleQueue("cpu.zen3"), embedded.SimpleQueue("cpu.zen5")
    for _ in range(5):
        first.put({"x": 1})
    second.put({"x": 2})
    assert (first.qsize(), second.qsize()) == (1, 1)
    assert first.get(timeout=LONG_S).payload == {"x": 1}
    assert first.qsize() == 0
    first.put({"x": 3})
    assert first.get(timeout=LONG_S).payload == {"x": 3}
    assert second.get(timeout=LONG_S).payload == {"x": 2}


def test_the_embedded_broker_ignores_what_a_crash_left(embedded: Any, tmp_path: Path) -> None:
    # kombu remembers bindings for the process: a queue name is used with one folder only.
    queue = embedded.SimpleQueue("cpu.zen4")
    (tmp_path / "broker" / "bells" / "00000_dead.cpu.zen4.msg").write_text("")
    assert queue.qsize() == 1
    with pytest.raises(queue.Empty):
        queue.get(timeout=0.3)
    queue.put({"x": 1})
    assert queue.get(timeout=LONG_S).payload == {"x": 1}
