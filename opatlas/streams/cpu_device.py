"""The processor as a device: a thread for each stream. Kernels run at the same time as far as they let go of
Python's lock, which compiled kernels and frameworks do."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue

import numpy as np

from opatlas.errors import first_line
from opatlas.streams.device import Call, StreamsFailed, StreamsLost, StreamStalled

DRAINING_S = 0.5
"""For streams to end what they are at, once a run has failed; a thread that is still at work then may write
later, and the device is lost."""


class CpuDevice:
    """``enter``: called in each stream's thread before its first work, with the stream's number; what it
    raises fails every run of that stream.

    Work begins when :meth:`synchronize` is called. Threads start with a stream's first work, and once more in
    a forked child, where none is left.
    """

    def __init__(self, enter: Callable[[int], None] | None = None) -> None:
        self.is_lost = False
        self._enter = enter
        self._streams: dict[int, CpuStream] = {}
        self._inboxes: dict[int, SimpleQueue[_Batch | None]] = {}
        self._process = os.getpid()
        self._stop = weakref.finalize(self, _stop, self._inboxes)

    def stream(self, number: int) -> CpuStream:
        if number not in self._streams:
            self._streams[number] = CpuStream()
        return self._streams[number]

    def synchronize(self, timeout_s: float) -> None:
        """As :class:`opatlas.streams.device.StreamDevice` says."""
        batches = {number: one.taken() for number, one in self._streams.items() if one.calls}
        if self.is_lost:
            raise StreamsLost("The device's streams are lost: one of them never ended.")
        if not batches:
            return
        run = _Run(set(batches), [event for _, events in batches.values() for event in events])
        try:
            for number, (calls, _) in batches.items():
                self._inbox(number).put(_Batch(run, number, calls))
            if not run.ended.wait(timeout_s):
                late = ", ".join(map(str, sorted(run.at_work)))
                raise StreamStalled(f"Stream {late} did not end within {timeout_s:g} s.")
        except BaseException as error:  # Ctrl-C too: nothing may go on behind the caller's back
            self.is_lost = True  # until it is known: the wait may be interrupted once more
            run.fail(error)
            self.is_lost = not run.ended.wait(DRAINING_S)
            raise
        if run.error is not None:
            raise run.error

    def forget(self) -> None:
        self._streams.clear()

    def close(self) -> None:
        self._stop()

    def _inbox(self, number: int) -> SimpleQueue[_Batch | None]:
        if self._process != os.getpid():
            self._process = os.getpid()
            self._inboxes.clear()
        if number not in self._inboxes:
            inbox = self._inboxes[number] = SimpleQueue()
            work = partial(_work, inbox, None if self._enter is None else partial(self._enter, number))
            threading.Thread(target=work, name=f"opatlas-stream-{number}", daemon=True).start()
        return self._inboxes[number]


class HostMark:
    """A moment of the host's own clock."""

    at_s = math.nan

    def take(self) -> None:
        self.at_s = time.perf_counter()


class CpuStream:
    """Keeps what is to be done until its device begins."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._events: list[threading.Event] = []

    def launch(self, call: Call) -> None:
        self.calls.append(call)

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        self.calls.append(partial(np.copyto, target, source, casting="no"))

    def record(self) -> threading.Event:
        event = threading.Event()
        self._events.append(event)
        self.calls.append(event.set)
        return event

    def wait(self, event: threading.Event) -> None:
        self._events.append(event)
        self.calls.append(event.wait)  # without a bound of its own: a run that fails sets all its events

    def mark(self) -> HostMark:
        mark = HostMark()
        self.calls.append(mark.take)
        return mark

    def taken(self) -> tuple[list[Call], list[threading.Event]]:
        """All of it, and the events that are in it; the stream is empty then."""
        made = self.calls, self._events
        self.calls, self._events = [], []
        return made


@dataclass
class _Run:
    """One run of all streams."""

    at_work: set[int]
    events: list[threading.Event]
    error: BaseException | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, error: BaseException) -> None:
        """Nobody begins anything more. The first error is the one that is told."""
        with self._lock:
            self.error = self.error or error
        for event in self.events:
            event.set()

    def leave(self, stream: int) -> None:
        with self._lock:
            self.at_work.discard(stream)
            if not self.at_work:
                self.ended.set()


@dataclass
class _Batch:
    """A stream's share of a run."""

    run: _Run
    stream: int
    calls: list[Call]

    def carry_out(self, refused: Exception | None) -> None:
        try:
            if refused is not None:
                raise refused
            for call in self.calls:
                if self.run.error is not None:
                    break
                call()
        except BaseException as error:  # whatever a kernel raises: whoever waits is told, and nobody hangs
            failed = StreamsFailed(f"Stream {self.stream} failed: {first_line(error)}")
            failed.__cause__ = error
            self.run.fail(failed)
        finally:
            self.run.leave(self.stream)


def _work(inbox: SimpleQueue[_Batch | None], enter: Call | None) -> None:
    """A stream's thread. It knows nothing of its device, so that one that is dropped ends it."""
    refused = None
    try:
        if enter is not None:
            enter()
    except Exception as error:
        refused = error
    while (batch := inbox.get()) is not None:
        batch.carry_out(refused)
        del batch  # which holds buffers


def _stop(inboxes: dict[int, SimpleQueue[_Batch | None]]) -> None:
    for inbox in inboxes.values():
        inbox.put(None)
    inboxes.clear()
