"""Streams of the processor: each in its order, ordered among each other by events, every failure told in a
bounded time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from opatlas.streams import cpu_device
from opatlas.streams.cpu_device import CpuDevice
from opatlas.streams.device import StreamsFailed, StreamsLost, StreamStalled, run_program
from opatlas.streams.hazards import StreamTask
from opatlas.streams.ordering import program_of
from tests.opatlas.streams.work import RandomWork

LONG_S = 30.0


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    made = CpuDevice()
    yield made
    made.close()


def test_random_work_gives_what_one_by_one_gives(device: CpuDevice) -> None:
    for graph in range(60):
        work = RandomWork(graph)
        program = program_of(work.tasks)
        for _ in range(5):
            calls, result = work.calls()
            run_program(device, program, calls, LONG_S)
            assert result == work.one_by_one()


def test_streams_run_beside_each_other(device: CpuDevice) -> None:
    """Each waits for the other to have begun: one after the other would never end."""
    meeting = threading.Barrier(2, timeout=LONG_S)
    device.stream(0).launch(lambda: meeting.wait() and None)
    device.stream(1).launch(lambda: meeting.wait() and None)
    device.synchronize(LONG_S)


def test_a_copy_is_of_what_lies_there_when_its_turn_comes(device: CpuDevice) -> None:
    source, target = np.zeros(3), np.empty(3)
    device.stream(0).launch(lambda: source.fill(7))
    event = device.stream(0).record()
    device.stream(1).wait(event)
    device.stream(1).copy(target, source)
    device.synchronize(LONG_S)
    assert target.tolist() == [7, 7, 7]
    device.stream(0).copy(target, np.zeros(3, np.float32))
    with pytest.raises(StreamsFailed, match="Cannot cast"):
        device.synchronize(LONG_S)


def test_nothing_to_do_is_no_wait(device: CpuDevice) -> None:
    device.synchronize(0.0)


def failing() -> None:
    raise ValueError("out of luck")


def test_a_failure_is_told_to_who_waits_and_nothing_more_begins(device: CpuDevice) -> None:
    ran: list[str] = []
    device.stream(0).launch(failing)
    event = device.stream(0).record()
    device.stream(0).launch(lambda: ran.append("behind it"))
    device.stream(1).wait(event)
    device.stream(1).launch(lambda: ran.append("waiting for it"))
    with pytest.raises(StreamsFailed, match="Stream 0 failed: out of luck") as told:
        device.synchronize(LONG_S)
    assert isinstance(told.value.__cause__, ValueError)
    assert ran == [] and not device.is_lost
    device.stream(0).launch(lambda: ran.append("the next run"))
    device.synchronize(LONG_S)
    assert ran == ["the next run"]


def test_a_stream_that_ends_in_the_meantime_leaves_the_device_whole(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, fail = threading.Event(), cpu_device._Run.fail

    def failed(run: Any, error: BaseException) -> None:
        fail(run, error)
        go_on.set()

    monkeypatch.setattr(cpu_device._Run, "fail", failed)
    monkeypatch.setattr(cpu_device, "DRAINING_S", LONG_S)
    device.stream(0).launch(lambda: go_on.wait(LONG_S) and None)
    with pytest.raises(StreamStalled, match=r"Stream 0 did not end within 0.01 s"):
        device.synchronize(0.01)
    assert not device.is_lost


def test_a_stream_that_does_not_end_loses_the_device(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_device, "DRAINING_S", 0.05)
    go_on = threading.Event()
    device.stream(0).launch(lambda: go_on.wait(LONG_S) and None)
    event = device.stream(0).record()
    device.stream(1).wait(event)
    began = time.monotonic()
    with pytest.raises(StreamStalled, match="Stream 0, 1 did not end"):
        device.synchronize(0.05)
    assert device.is_lost and time.monotonic() - began < LONG_S / 2
    with pytest.raises(StreamsLost):
        device.synchronize(LONG_S)
    go_on.set()


def test_an_event_that_is_never_recorded_is_given_up(device: CpuDevice) -> None:
    device.stream(1).wait(threading.Event())
    with pytest.raises(StreamStalled, match="Stream 1 did not end"):
        device.synchronize(0.05)
    assert not device.is_lost


INTERRUPTED = f"""
import signal, sys, threading, time
from opatlas.streams import cpu_device
cpu_device.DRAINING_S = {LONG_S}
device, ran = cpu_device.CpuDevice(), []
def interrupt():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    while not device.is_lost:  # set while the interrupted wait is being ended
        time.sleep(0.001)
    time.sleep(0.05)
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    device.stream(0).launch(interrupt)
    device.stream(0).launch(lambda: ran.append(1))
    device.synchronize({LONG_S})
except KeyboardInterrupt:
    print(ran, device.is_lost)
device.close()
"""


def test_ctrl_c_leaves_nobody_at_work() -> None:
    """In a process of its own: a signal that comes late would end whoever runs the tests."""
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=240, check=False
    )
    assert (ended.stdout, ended.returncode) == ("[] False\n", 0), ended.stderr


def test_each_streams_thread_enters_once(device: CpuDevice) -> None:
    entered: list[int] = []
    own = CpuDevice(entered.append)
    for _ in range(3):
        own.stream(0).launch(lambda: None)
        own.stream(4).launch(lambda: None)
        own.synchronize(LONG_S)
    assert sorted(entered) == [0, 4]
    own.close()


def test_a_thread_that_cannot_be_set_up_fails_its_runs() -> None:
    def refuse(stream: int) -> None:
        raise OSError(f"no pool for {stream}")

    own = CpuDevice(refuse)
    for _ in range(2):
        own.stream(3).launch(lambda: None)
        with pytest.raises(StreamsFailed, match="Stream 3 failed: no pool for 3"):
            own.synchronize(LONG_S)
    own.close()


def test_what_was_handed_over_by_half_is_not_begun_with_the_next_run(device: CpuDevice) -> None:
    """Ctrl-C may come at any time."""
    ran: list[int] = []
    tasks = [StreamTask("MatMul", 0), StreamTask("Relu", 1)]

    class Calls(list[Any]):
        def __getitem__(self, number: Any) -> Any:
            if number == 1:
                raise KeyboardInterrupt
            return lambda: ran.append(number)

    with pytest.raises(KeyboardInterrupt):
        run_program(device, program_of(tasks), Calls(), LONG_S)
    device.stream(0).launch(lambda: ran.append(7))
    device.synchronize(LONG_S)
    assert ran == [7]


def named_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("opatlas-stream-7")]


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_device_that_is_dropped_ends_its_threads() -> None:
    own = CpuDevice()
    own.stream(7).launch(lambda: None)
    own.synchronize(LONG_S)
    assert named_threads()
    del own
    until(lambda: not named_threads())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_streams_of_its_own(device: CpuDevice) -> None:
    device.stream(0).launch(lambda: None)
    device.synchronize(LONG_S)
    child = os.fork()
    if child == 0:
        try:
            device.stream(0).launch(lambda: None)
            device.synchronize(LONG_S)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
