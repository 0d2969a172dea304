"""A CUDA device as a device of streams, over :mod:`opatlas.load.cuda`'s driver: streams and events are the
driver's own, so the host goes on while they run. Proven by a simulated driver alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from opatlas.errors import first_line
from opatlas.identity.place.kinds import CPU, CUDA, DeviceKind
from opatlas.load.cuda.driver import CudaDriver, DeviceFailed
from opatlas.streams.device import Call, StreamsFailed, StreamsLost, StreamStalled
from opatlas.streams.manners import Classified, manner_of_copy

LOOK_S = 5e-5
"""Between two looks at whether a stream has ended: the driver's own wait has no bound."""


@dataclass(frozen=True, slots=True)
class DeviceBytes:
    """Bytes of the device's memory."""

    address: int
    nbytes: int


Memory = DeviceBytes | np.ndarray


class CudaDevice:
    """Launches begin as soon as the driver has them; :meth:`synchronize` waits for their end, bounded.

    What the driver reports (an illegal address) loses the device, as it does its process; a stream that does
    not end in time as well, since nobody can take a launch back.
    """

    def __init__(self, driver: CudaDriver) -> None:
        self.is_lost = False
        self._driver = driver
        self._streams: dict[int, CudaStream] = {}
        self._origin: Any = None  # of the clock that this run's marks tell
        self._events: list[Any] = []  # of this run
        self._spent: list[Any] = []  # of the one before, whose marks may be looked at yet

    def stream(self, number: int) -> CudaStream:
        if self.is_lost:
            raise StreamsLost("The device's streams are lost: one of them failed, or never ended.")
        if number not in self._streams:
            made = _driven(self, number, self._driver.make_stream)
            self._streams[number] = CudaStream(self, number, made)
        return self._streams[number]

    def synchronize(self, timeout_s: float) -> None:
        """As :class:`opatlas.streams.device.StreamDevice` says."""
        if self.is_lost:
            raise StreamsLost("The device's streams are lost: one of them failed, or never ended.")
        ends = {one.number: one.record() for one in self._streams.values()}
        bound = time.monotonic() + timeout_s
        while ends:
            for number, event in list(ends.items()):
                if _driven(self, number, partial(self._driver.has_happened, event)):
                    del ends[number]
            if ends and time.monotonic() > bound:
                self.is_lost = True
                late = ", ".join(map(str, sorted(ends)))
                raise StreamStalled(f"Stream {late} did not end within {timeout_s:g} s.")
            if ends:
                time.sleep(LOOK_S)
        for event in self._spent:
            self._driver.drop_event(event)
        self._spent, self._events, self._origin = self._events, [], None

    def forget(self) -> None:
        """What was launched runs already: it is waited for by whoever waits next."""

    def close(self) -> None:
        """A lost device's streams are left to the driver, which would wait for them."""
        if not self.is_lost:
            for event in (*self._spent, *self._events):
                self._driver.drop_event(event)
            for one in self._streams.values():
                self._driver.drop_stream(one.handle)
        self._streams, self._spent, self._events = {}, [], []

    def origin(self, stream: CudaStream) -> Any:
        if self._origin is None:
            self._origin = stream.record()
        return self._origin

    def recorded(self, stream: CudaStream) -> Any:
        event = _driven(self, stream.number, lambda: self._driver.record_in(stream.handle))
        self._events.append(event)
        return event


class CudaStream:
    """A stream of the driver's."""

    def __init__(self, device: CudaDevice, number: int, handle: Any) -> None:
        self.number, self.handle = number, handle
        self._device, self._driver = device, device._driver

    def launch(self, call: Call) -> None:
        _driven(self._device, self.number, lambda: self._driver.launch_in(self.handle, call))

    def copy(self, target: Memory, source: Memory) -> None:
        """Between the host's and the device's memory, or within either; of the same bytes."""
        if target.nbytes != source.nbytes:
            raise StreamsFailed(f"A copy of {source.nbytes} bytes does not fit into {target.nbytes}.")
        ends = _end(target), _end(source)
        _driven(self._device, self.number, lambda: self._driver.copy_in(self.handle, *ends, source.nbytes))

    def record(self) -> Any:
        return self._device.recorded(self)

    def wait(self, event: Any) -> None:
        _driven(self._device, self.number, lambda: self._driver.wait_in(self.handle, event))

    def mark(self) -> CudaMark:
        return CudaMark(self._driver, self._device.origin(self), self.record())


@dataclass(frozen=True)
class CudaMark:
    """An event, by the device's clock, from the first mark on."""

    _driver: CudaDriver
    _origin: Any
    _event: Any

    @property
    def at_s(self) -> float:
        return self._driver.between_us(self._origin, self._event) / 1e6


def manner_of_transfer(target: Memory, source: Memory) -> Classified:
    """Whether who launches this copy goes on at once, as for any kernel."""
    return manner_of_copy(_kind(source), _kind(target))


def _end(memory: Memory) -> int | np.ndarray:
    return memory.address if isinstance(memory, DeviceBytes) else memory


def _kind(memory: Memory) -> DeviceKind:
    return CUDA if isinstance(memory, DeviceBytes) else CPU


def _driven(device: CudaDevice, number: int, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except DeviceFailed as error:
        device.is_lost = True
        raise StreamsLost(f"Stream {number} failed: {first_line(error)}") from error
    except StreamsFailed:
        raise
    except Exception as error:
        raise StreamsFailed(f"Stream {number} failed: {first_line(error)}") from error
