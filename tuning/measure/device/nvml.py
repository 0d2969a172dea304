"""What a device says of itself while it works: clocks, temperature, why it is slowed down, memory in use.

NVML is asked through ``nvidia-ml-py`` where that is installed. Nothing is ever set.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from opatlas.errors import first_line
from tuning.measure.device.gpus import Gpu

REASONS: Mapping[int, str] = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
"""Bits of ``nvmlDeviceGetCurrentClocksThrottleReasons``, and what people call them."""


POLICIES: Mapping[str, str] = {
    "NVML_PERF_POLICY_THERMAL": "hardware thermal slowdown",
    "NVML_PERF_POLICY_POWER": "power cap",
}
"""Policies of ``nvmlDeviceGetViolationStatus``, and their words in ``REASONS``: the driver counts for how
long each has held clocks back. Its other policies (limits of the board and of the voltage) hold a healthy
device at its highest clocks as well."""


class NoMonitor(Exception):
    """Nothing here can ask the device: one sentence."""


@dataclass(frozen=True)
class Reading:
    """One look. Clocks in MHz, the temperature in °C; ``slowed``: words of ``REASONS``."""

    sm_mhz: int
    memory_mhz: int
    temperature_c: int
    slowed: tuple[str, ...]
    used_bytes: int
    total_bytes: int
    held_back_ns: Mapping[str, int] = field(default_factory=dict)
    """Since the driver was loaded, by what: ``POLICIES``. What happened between two looks shows in it."""


class Monitor(Protocol):
    """Of one device. ``read`` and ``used_by`` may raise :class:`NoMonitor`."""

    def read(self) -> Reading: ...

    def held_back_ns(self) -> Mapping[str, int]:
        """Those counters alone, as far as they are there: every question takes the driver a while."""
        ...

    def used_by(self) -> Mapping[int, int]:
        """Bytes on the device by process; of those that the driver can name."""
        ...


def open_monitor(gpu: Gpu) -> Monitor:
    """Raises :class:`NoMonitor`."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        raise NoMonitor("nvidia-ml-py is not installed") from None
    return NvmlMonitor(gpu, library)


class NvmlMonitor:
    """``library`` is the module ``pynvml``, or what has its functions."""

    def __init__(self, gpu: Gpu, library: Any) -> None:
        self._library = library
        self._ask("nvmlInit")
        if gpu.uuid:
            self._handle = self._ask("nvmlDeviceGetHandleByUUID", gpu.uuid)
        else:
            self._handle = self._ask("nvmlDeviceGetHandleByIndex", gpu.number)
        # A part has memory and processes of its own; clocks and temperature are the whole GPU's.
        whole = "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"
        self._whole = self._ask(whole, self._handle) if gpu.is_part else self._handle

    def read(self) -> Reading:
        clock, memory = self._library, self._ask("nvmlDeviceGetMemoryInfo", self._handle)
        bits = int(self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", self._whole))
        return Reading(
            sm_mhz=int(self._ask("nvmlDeviceGetClockInfo", self._whole, clock.NVML_CLOCK_SM)),
            memory_mhz=int(self._ask("nvmlDeviceGetClockInfo", self._whole, clock.NVML_CLOCK_MEM)),
            temperature_c=int(self._ask("nvmlDeviceGetTemperature", self._whole, clock.NVML_TEMPERATURE_GPU)),
            slowed=tuple(word for bit, word in REASONS.items() if bits & bit),
            used_bytes=int(memory.used),
            total_bytes=int(memory.total),
            held_back_ns=self.held_back_ns(),
        )

    def held_back_ns(self) -> Mapping[str, int]:
        """Of the counters that this driver and device have."""
        found = {}
        for policy, reason in POLICIES.items():
            with suppress(NoMonitor, AttributeError):
                number = getattr(self._library, policy)
                found[reason] = int(
                    self._ask("nvmlDeviceGetViolationStatus", self._whole, number).violationTime
                )
        return found

    def used_by(self) -> Mapping[int, int]:
        found = self._ask("nvmlDeviceGetComputeRunningProcesses", self._handle)
        return {int(one.pid): int(one.usedGpuMemory) for one in found if one.usedGpuMemory is not None}

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._library, function)(*arguments)
        except Exception as error:  # NVMLError is no Exception of ours; a driver may lack a function
            raise NoMonitor(f"{function} fails: {first_line(error, 120)}") from error
