"""One device under watch: who may use how much of its memory, whether it computes, how its rounds went."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from opatlas.identity.place.kinds import CUDA
from opatlas.noise import INVALID, NOISY_SHARE, SLOWED_BY
from tuning.measure.device.gpus import Gpu
from tuning.measure.device.nvml import Monitor, NoMonitor, Reading, open_monitor
from tuning.measure.outcome import Status

logger = logging.getLogger(__name__)

CONTEXT_BYTES = 2 << 30
"""What a process takes on a device beside its tensors: its context, libraries' code and workspaces."""
TENSORS = 3
"""A process has the timed buffers, those of unseen values and a kernel's workspace: so many times what the
operator's inputs and outputs take in one set of each."""
DEFAULTS_IN_A_ROW = 3

FAULTS = frozenset({Status.CRASHED, Status.TIMED_OUT, Status.OUT_OF_MEMORY, Status.CHEATED})
"""After these nobody knows whether the device still computes."""


class DeviceWatch:
    """Of one laboratory's device. Several threads may ask.

    Without a monitor (``why_not`` says why) allocators alone bound its memory, and rounds are judged as the
    host's are.
    """

    torch_device = CUDA.name
    """As PyTorch calls it in a process that sees it alone."""

    def __init__(self, gpu: Gpu, monitor: Monitor | None = None, why_not: str = "") -> None:
        self.gpu = gpu
        self.monitor = monitor
        self.why_not = why_not
        self.unwell = ""
        """Why nothing may be tried on it any more: it failed its self-test."""
        self._suspect = False
        self._defaults_failed = 0
        self._proving = threading.Lock()
        self._claims: dict[int, int] = {}
        self._lock = threading.Lock()
        self.total_bytes = 0
        self._before_bytes = 0  # what others used when nobody of ours did
        if (reading := self.reading()) is not None:
            self.total_bytes, self._before_bytes = reading.total_bytes, reading.used_bytes

    def reading(self) -> Reading | None:
        """None where nobody can tell."""
        if self.monitor is None:
            return None
        try:
            return self.monitor.read()
        except NoMonitor as error:
            self.why_not = str(error)
            return None

    def held_back_ns(self) -> Mapping[str, int]:
        """The counters of what held clocks back; none where nobody can tell."""
        return self.monitor.held_back_ns() if self.monitor is not None else {}

    def enter(self, pid: int, claim_bytes: int) -> None:
        """A process that may use so many bytes on the device."""
        with self._lock:
            if not self._claims and (reading := self.reading()) is not None:
                self._before_bytes = reading.used_bytes
            self._claims[pid] = claim_bytes

    @property
    def room_bytes(self) -> int:
        """What nobody has claimed; 0 where the device does not tell its size."""
        with self._lock:
            return max(0, self.total_bytes - self._before_bytes - sum(self._claims.values()))

    @property
    def doubted(self) -> bool:
        """Whether something went wrong on it, and it has not proved itself since."""
        return self._suspect or bool(self.unwell)

    def leave(self, pid: int) -> None:
        """It has ended."""
        with self._lock:
            self._claims.pop(pid, None)

    def over(self, pid: int) -> str:
        """Why this process must end for what it uses; empty where it need not.

        Where the driver names no processes (containers), what is beyond all claims together counts against
        this one: the others are stopped, and take nothing meanwhile.
        """
        with self._lock:
            claim, claims = self._claims.get(pid), sum(self._claims.values())
        if self.monitor is None or claim is None:
            return ""
        try:
            used = self.monitor.used_by().get(pid)
            if used is None:
                used, claim = self.monitor.read().used_bytes - self._before_bytes, claims
        except NoMonitor:
            return ""
        if used <= claim:
            return ""
        return f"used {used >> 20} MiB of the device's memory; at most {claim >> 20} MiB"

    def why_too_large(self, one_set_bytes: int) -> str:
        """Why two processes, the default and a candidate, do not fit beside each other; empty where they
        do."""
        needed = 2 * (CONTEXT_BYTES + TENSORS * one_set_bytes)
        if not self.total_bytes or needed <= self.total_bytes:
            return ""
        there = f"it has {self.total_bytes >> 20} MiB"
        return f"measuring it needs {needed >> 20} MiB of the device's memory; {there}"

    def saw(self, status: Status) -> None:
        """How somebody ended on it."""
        if status in FAULTS:
            self._suspect = True

    def prove(self, self_test: Callable[[], str | None]) -> str:
        """Let the device compute what is known, where something has gone wrong on it since it last did;
        why it is unwell, or nothing. One at a time. A test that proves nothing (None) leaves it in doubt."""
        with self._proving:
            if self._suspect and not self.unwell:
                # Twice: a host that is busy for a moment is no broken device.
                why = self_test() and self_test()
                self._suspect = why is None
                if why:
                    self.unwell = f"{self.gpu.name} does not compute correctly after a fault: {why}"
        return self.unwell

    def default_ran(self, failed: str) -> None:
        """An operator's default was checked for the first time; ``failed``: why it was not right. Of one
        operator that says little, of several in a row after a fault it does."""
        if not failed:
            self._suspect, self._defaults_failed = False, 0
        elif self._suspect:
            self._defaults_failed += 1
            if self._defaults_failed == DEFAULTS_IN_A_ROW and not self.unwell:
                self.unwell = f"{self.gpu.name} has run no default since a fault: {failed}"


def watched(gpu: Gpu) -> DeviceWatch:
    """With NVML where it can be asked; else it says why nobody watches."""
    try:
        return DeviceWatch(gpu, open_monitor(gpu))
    except NoMonitor as error:
        logger.warning("Nobody watches %s: %s.", gpu.name, error)
        return DeviceWatch(gpu, why_not=str(error))


class HostTurn(Protocol):
    """The same turn as the host's scheduler saw it (:class:`tuning.measure.timing.quiet.Turn`)."""

    started: float

    def disturbance(self) -> float: ...


@dataclass
class DeviceTurn:
    """One runner's turn as the device saw it, and the host. ``readings``: all of the runner's looks at the
    device, to which :meth:`look` adds this turn's, while it works: an idle one says nothing of its clocks."""

    watch: DeviceWatch
    host: HostTurn
    readings: list[Reading] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._earlier = len(self.readings)
        self._before = self.watch.held_back_ns()

    def look(self) -> None:
        if (reading := self.watch.reading()) is not None:
            self.readings.append(reading)

    def disturbance(self) -> float:
        """``INVALID`` where the device was slowed down while it worked, or counted for some of the turn that
        it was; else what the host's scheduler says: whoever launches may be kept waiting."""
        passed = passed_ns(self._before, self.watch.held_back_ns())
        held = max((passed.get(reason, 0) for reason in SLOWED_BY), default=0)
        took_ns = (time.perf_counter() - self.host.started) * 1e9
        if any(map(slowed, self.readings[self._earlier :])) or held > NOISY_SHARE * took_ns:
            return INVALID
        return self.host.disturbance()


def passed_ns(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Between two looks at the counters. One that only one of them could read says nothing: it began when the
    driver was loaded."""
    return {reason: after[reason] - before[reason] for reason in after if reason in before}


def slowed(reading: Reading) -> bool:
    """Whether what is timed meanwhile says nothing."""
    return any(reason in SLOWED_BY for reason in reading.slowed)


def summary(readings: Sequence[Reading]) -> dict[str, Any]:
    """What is written down of them beside a race's times: ranges, and every reason with how often it was
    seen."""
    if not readings:
        return {}
    counted: dict[str, int] = {}
    for reading in readings:
        for reason in reading.slowed:
            counted[reason] = counted.get(reason, 0) + 1
    sm, memory = [one.sm_mhz for one in readings], [one.memory_mhz for one in readings]
    passed = passed_ns(readings[0].held_back_ns, readings[-1].held_back_ns)
    held_back = {reason: round(value / 1e6, 1) for reason, value in passed.items()}
    warmth = [one.temperature_c for one in readings]
    return {
        "looks": len(readings),
        "sm_mhz": [min(sm), max(sm)],
        "memory_mhz": [min(memory), max(memory)],
        "temperature_c": [min(warmth), max(warmth)],
        "slowed": counted,
        "held_back_ms": held_back,
        "used_bytes": max(one.used_bytes for one in readings),
    }


def claim_bytes(tensor_bytes: int, total_bytes: int) -> int:
    """What one process may use on a device of so many bytes, for an operator whose inputs and outputs take
    ``tensor_bytes``; of a device that does not tell its size, what the operator needs."""
    wanted = CONTEXT_BYTES + TENSORS * tensor_bytes
    return min(wanted, total_bytes // 2) if total_bytes else wanted
