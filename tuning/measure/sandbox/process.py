"""The parent's handle on one child: ask, time, watch, stop. Whatever the child does ends in ChildFailed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opatlas import memory
from tuning.measure import procfs
from tuning.measure.device.watch import DeviceWatch
from tuning.measure.outcome import Status
from tuning.measure.sandbox import wire
from tuning.measure.sandbox.child import DONE, RUN, RUN_UNSEEN
from tuning.measure.sandbox.foreign import plain, plain_answer
from tuning.measure.shared_tensors import ARMED

TICK_S = 0.02
SCAN_EVERY_TICKS = 5
MAX_PROCESSES = 64
MAX_LOG_BYTES = 16 << 20
LOG_TAIL_BYTES = 4000
TIMED_NICENESS = -15
TRESPASS = "asked the system for what no kernel needs (processes, other processes, sockets, mounts; SIGSYS)"
SPIN_NS = 20_000_000
MEMORY_RESERVE = 1 / 32
"""Part of the machine's memory that must stay free: memory files and tmpfs count for no process."""


class ChildFailed(Exception):
    """A child that cannot answer any more, or answered that it cannot: status and one sentence."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.culprit: object = None  # whose run it was, where several take turns


@dataclass(frozen=True)
class Bounds:
    """What one child may use. Bytes of the host beyond what it shares with its zygote."""

    memory_bytes: int
    disk_bytes: int
    device_bytes: int = 0  # on a device with memory of its own; 0: it has no business there


@dataclass(frozen=True)
class Unseen:
    """A run on new values. ``spin``: a CPU is free for the parent to wait on; else it sleeps, and the time
    holds its waking."""

    calls: int
    poison: bool
    lead_in: bool
    spin: bool


@dataclass(frozen=True)
class Took:
    """Nanoseconds of a run on new values; of CPU time of its first thread, which takes them too, and of all
    others; and from its flag to its answer."""

    elapsed_ns: int
    first_ns: int
    others_ns: int
    answer_ns: int


class Child:
    """One forked child. Not thread-safe: the calling thread waits and watches at once."""

    def __init__(
        self,
        channel: socket.socket,
        log_path: Path,
        folder: Path,
        bounds: Bounds,
        wait_status: Callable[[float], int | None],
        break_all: Callable[[], None],
        killed_for_memory: Callable[[], int],
        device: DeviceWatch | None = None,
    ) -> None:
        self.channel = channel
        self.log_path = log_path
        self.folder = folder  # its writable work folder; the parent removes it
        self.bounds = bounds
        self._wait_status = wait_status
        self._break_all = break_all
        self._killed_for_memory = killed_for_memory
        self._killed_before = killed_for_memory()
        self._device = device if bounds.device_bytes else None
        self.pid = 0
        self.pidfd = -1
        self.base_bytes = 0
        self.peak_bytes = 0
        self.paused = False
        self.closed = False

    def greet(self, deadline: float) -> None:
        """Wait for the child's first word, from which the kernel tells its pid outside the sandbox."""
        while True:
            packet = self._packet(deadline)
            if packet.body and "hello" in packet.body and packet.pid > 0:
                break
        try:
            self.pidfd = os.pidfd_open(packet.pid)
        except ProcessLookupError:
            return  # a short piece of work can be done by now; its answer waits in the channel
        self.pid = packet.pid
        self.base_bytes = procfs.resident_bytes(self.pid)
        if self._device is not None:
            self._device.enter(self.pid, self.bounds.device_bytes)

    def ask(self, command: Mapping[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        """Send a command (None: only wait for the next answer) and return the answer.

        Raises :class:`ChildFailed` for a crash, a timeout, too much memory or disk. An answer with
        ``error`` is returned as it is: what it means depends on what was asked.
        """
        deadline = time.monotonic() + timeout_s
        if command is not None:
            self._send(json.dumps(command).encode())
        packet = self._packet(deadline)
        if packet.body is None:
            raise ChildFailed(Status.CRASHED, "answered something that is no message")
        answer = plain_answer(packet.body)
        if answer.get("family") == "memory":
            raise ChildFailed(Status.OUT_OF_MEMORY, str(answer.get("error", "")))
        return answer

    def run_ns(self, calls: int, timeout_s: float, meanwhile: Callable[[], None] = lambda: None) -> int:
        """Time ``calls`` runs from out here, the handshake included: nanoseconds. ``meanwhile`` is done while
        they run: what it takes may be among them."""
        # The answer repeats a secret: what a kernel sends to this socket on its own cannot pass for it.
        nonce = os.urandom(8)
        message = RUN + calls.to_bytes(8, "little") + nonce
        deadline = time.monotonic() + timeout_s
        poll = self._poller().poll
        started = time.perf_counter_ns()
        self._send(message)
        meanwhile()
        # The usual batch ends before the first tick: nothing is looked at meanwhile.
        if not poll(TICK_S * 1e3):
            self._watch_until(deadline)
        elapsed = time.perf_counter_ns() - started
        self._must_be_done(nonce)
        return elapsed

    def run_unseen_ns(self, ask: Unseen, timeout_s: float, start: memoryview, done: memoryview) -> Took:
        """Let it take new values and time its runs on them: both sides spin on flags in shared memory, so
        that less than 1 us is not the runs' own, where a packet costs 15."""
        end, nonce = os.urandom(8), os.urandom(8)
        deadline = time.monotonic() + timeout_s
        now, cpu_before = time.perf_counter_ns, procfs.cpu_split_ns(self.pid)
        self._send(RUN_UNSEEN + bytes((ask.calls, ask.poison, ask.lead_in)) + end + nonce)
        self._watch_while_arming(done, deadline)
        started = now()
        start[0] += 1
        flagged = _spin(done, int.from_bytes(end, "little"), started + SPIN_NS) if ask.spin else None
        self._watch_until(deadline)
        answered = now()
        self._must_be_done(nonce)
        first, others = procfs.spent_ns(self.pid, cpu_before)
        elapsed = (flagged or answered) - started
        return Took(elapsed, first, others, answered - flagged if flagged else 0)

    def _must_be_done(self, nonce: bytes) -> None:
        if self._answer() != DONE + nonce:
            raise ChildFailed(Status.CRASHED, "answered something else than the end of its runs")

    def _answer(self) -> bytes:
        """What lies in the channel; raises where it has ended instead."""
        try:
            answer = self.channel.recv(wire.MAX_PACKET_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            answer = b""
        except OSError as error:
            raise self._ended() from error
        if not answer:
            raise self._ended()
        return answer

    def pause(self) -> None:
        """Stop it where it is: threads that spin for work would disturb whoever runs next."""
        if not self.paused:
            self._signal(signal.SIGSTOP)
            self.paused = True

    def resume(self) -> None:
        if self.paused:
            self._signal(signal.SIGCONT)
            self.paused = False

    def outrank(self) -> None:
        """Put its threads before other processes' where we may (root): less noise for all that are timed.

        Turns are a few milliseconds, so others wait no longer. Linux's autogroups (one for each session, as
        every child is) ignore niceness between each other: theirs is set too.
        """
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.pid}/autogroup").write_text(str(TIMED_NICENESS))
        for task in procfs.threads(self.pid):
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, task, TIMED_NICENESS)

    def spread(self, threads: int) -> None:
        """Give each of its ``threads`` busiest threads a CPU of its own, where it uses all there are.

        On a busy host the scheduler may put two threads of a pool on one CPU and leave them there; each then
        spins through the other's time, and a call takes a hundred times as long.
        """
        cpus = sorted(os.sched_getaffinity(0))
        if threads < 2 or threads < len(cpus):
            return
        busiest = sorted(procfs.threads(self.pid), key=lambda task: -procfs.thread_cpu_ns(self.pid, task))
        for cpu, task in zip(cpus, busiest[:threads], strict=False):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(task, {cpu})

    def relatives(self) -> int:
        """Processes that it started and that still live."""
        return len(procfs.family(self.pid))

    def highest_bytes(self) -> int:
        """The most memory it held beyond what it shares with its zygote, as far as was seen."""
        highest = procfs.highest_bytes(self.pid)
        self.peak_bytes = max(self.peak_bytes, highest - self.base_bytes if highest else 0)
        return self.peak_bytes

    def log_tail(self) -> str:
        """The end of what it printed."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_TAIL_BYTES))
                return plain(log.read(LOG_TAIL_BYTES).decode(errors="replace"), LOG_TAIL_BYTES)
        except OSError:
            return ""

    def close(self) -> None:
        """Kill it with its descendants. Once is enough; again is harmless."""
        if self.closed:
            return
        self.closed = True
        self.highest_bytes()
        for pid in procfs.family(self.pid) if self.pid else ():
            procfs.kill(pid)
        self._signal(signal.SIGKILL)
        if self._wait_status(2.0) is None and self.pidfd >= 0 and not _readable(self.pidfd):
            self._break_all()
        self.channel.close()
        if self._device is not None:
            self._device.leave(self.pid)
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def _send(self, message: bytes) -> None:
        try:
            self.channel.send(message)
        except OSError as error:
            raise self._ended() from error

    def _packet(self, deadline: float) -> wire.Packet:
        self._watch_until(deadline)
        try:
            packet = wire.receive(self.channel)
        except OSError as error:
            raise self._ended() from error
        for fd in packet.fds:
            os.close(fd)  # nobody asked for descriptors
        if packet.closed:
            raise self._ended()
        return packet

    def _poller(self) -> select.poll:
        poller = select.poll()
        poller.register(self.channel, select.POLLIN)
        if self.pidfd >= 0:
            poller.register(self.pidfd, select.POLLIN)
        return poller

    def _watch_until(self, deadline: float) -> None:
        """Return when the channel can be read; raise when the child ended or broke a bound."""
        poller = self._poller()
        for tick in itertools.count():
            if self._look(poller, TICK_S, tick, deadline):
                return

    def _watch_while_arming(self, done: memoryview, deadline: float) -> None:
        """Return when the child waits for the parent's flag; raise as above, or where it answers instead."""
        poller = self._poller()
        for tick in itertools.count():
            if _spin(done, ARMED, time.perf_counter_ns() + SPIN_NS):
                return
            if self._look(poller, 0.0, tick, deadline):
                self._answer()
                raise ChildFailed(Status.CRASHED, "answered before it was told to begin")

    def _look(self, poller: select.poll, wait_s: float, tick: int, deadline: float) -> bool:
        """Whether the channel can be read, after at most ``wait_s``."""
        events = poller.poll(wait_s * 1e3)
        if any(fd == self.channel.fileno() for fd, _ in events):
            return True
        if events:
            raise self._ended()
        if time.monotonic() > deadline:
            raise ChildFailed(Status.TIMED_OUT, "took longer than it may")
        self._check_memory()
        if tick % SCAN_EVERY_TICKS == 0:
            self._check_rest()
        if self.pidfd < 0 and (status := self._wait_status(0.0)) is not None:
            raise _died(status)
        return False

    def _check_memory(self, others_bytes: int = 0) -> None:
        if not self.pid:
            return
        used = procfs.resident_bytes(self.pid) - self.base_bytes + others_bytes
        self.peak_bytes = max(self.peak_bytes, used)
        if used > self.bounds.memory_bytes:
            self._signal(signal.SIGKILL)
            raise ChildFailed(
                Status.OUT_OF_MEMORY, f"used {used >> 20} MiB; at most {self.bounds.memory_bytes >> 20} MiB"
            )
        if _memory_runs_out():
            self._signal(signal.SIGKILL)
            raise ChildFailed(Status.OUT_OF_MEMORY, "left the machine with too little memory")

    def _check_rest(self) -> None:
        """The bounds that cost a scan: processes, their memory, files, output."""
        if not self.pid:
            return
        relatives = procfs.family(self.pid)
        if len(relatives) > MAX_PROCESSES:
            self._break_all()
            raise ChildFailed(Status.CRASHED, f"started more than {MAX_PROCESSES} processes")
        # A forked copy shares what its parent shares with the zygote.
        self._check_memory(sum(max(0, resident - self.base_bytes) for _, resident in relatives.values()))
        if self._device is not None and (why := self._device.over(self.pid)):
            self._signal(signal.SIGKILL)
            raise ChildFailed(Status.OUT_OF_MEMORY, why)
        disk = self.bounds.disk_bytes
        if procfs.folder_bytes(self.folder, disk) > disk:
            self._signal(signal.SIGKILL)
            raise ChildFailed(Status.CRASHED, f"wrote more than {disk >> 20} MiB of files")
        try:
            written = self.log_path.stat().st_size
        except OSError:
            return
        if written > MAX_LOG_BYTES:
            self._signal(signal.SIGKILL)
            raise ChildFailed(Status.CRASHED, f"printed more than {MAX_LOG_BYTES >> 20} MiB")

    def _ended(self) -> ChildFailed:
        status = self._wait_status(1.0)
        if status is None:
            self._signal(signal.SIGKILL)
            return ChildFailed(Status.CRASHED, "closed its channel")
        if self._killed_for_memory() > self._killed_before:
            return ChildFailed(Status.OUT_OF_MEMORY, "the system ended it: its sandbox used too much memory")
        return _died(status)

    def _signal(self, number: int) -> None:
        if self.pidfd < 0:
            return
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return


def _memory_runs_out() -> bool:
    there = memory.available_bytes()
    return there is not None and there < memory.total_bytes() * MEMORY_RESERVE


def _died(status: int) -> ChildFailed:
    if status == -1:
        return ChildFailed(Status.CRASHED, "its zygote ended with it")
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        if name == "SIGSYS":
            return ChildFailed(Status.CHEATED, TRESPASS)
        detail = "wrote a file larger than it may" if name == "SIGXFSZ" else f"ended by {name}"
        return ChildFailed(Status.CRASHED, detail)
    return ChildFailed(Status.CRASHED, f"exited with code {os.waitstatus_to_exitcode(status)}")


def _spin(flag: memoryview, wanted: int, deadline_ns: int) -> int | None:
    """Wait for a flag: when it was seen, in ns, or None where it did not come in time."""
    now, rounds = time.perf_counter_ns, 0
    while flag[0] != wanted:
        rounds += 1
        if not rounds & 0xFF and now() > deadline_ns:
            return None
    return now()


def _readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])
