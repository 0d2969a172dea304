"""A simulated CUDA device: the driver's interface over NumPy.

A module's image is JSON, ``{"functions": {name: what}, "us": 200}``, of ``KERNELS`` below, and how long each
of its launches takes of the device's clock. As on a real device, launches return at once and happen when
somebody waits; an address that was never given out is an illegal one, told by whoever waits next and by
everybody after it.
"""

from __future__ import annotations

import json
import mmap
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opatlas.load.cuda import driver
from opatlas.load.cuda.driver import DeviceFailed, DeviceOutOfMemory
from opatlas.load.cuda.staging import StagedCopies, Wait

LEFT_OVER = np.frombuffer(mmap.mmap(-1, 1 << 12), np.uint8)
"""What fresh memory holds: what the last launch of ``relu`` wrote, in any process that was forked from one
where this was imported."""
CACHE_BYTES = 1 << 20
ROOM_BYTES = 32 << 20
"""What is so large is there to empty caches with: nothing is written there, which would take the host
long."""
ILLEGAL = "the device answers CUDA_ERROR_ILLEGAL_ADDRESS"


def install() -> None:
    """Whoever opens a driver in this process gets this one."""
    driver.DRIVERS = (("simulated", __name__, "SimulatedDriver"),)


class SimulatedDriver(StagedCopies):
    """``memory_bytes`` is all that it has; ``locked_bytes`` what it has locked of the host's."""

    def __init__(
        self, device: int = 0, *, arch: str = "sm_90", version: int = 13000, memory_bytes: int = 1 << 28
    ) -> None:
        super().__init__()
        self.number = device
        self.arch = arch
        self.version = version
        self.locked_bytes = 0
        self.free_bytes = memory_bytes
        self.allocated: dict[int, np.ndarray] = {}
        self.waiting: list[Callable[[], None]] = []
        self.launches = 0
        self.broken = ""
        self.busy_until_ns = 0
        self.elsewhere_until_ns = 0  # another stream
        self.late: list[tuple[int, Callable[[], None]]] = []  # when, what: nobody can wait for it
        self.stream = 0
        self.captures: list[Callable[[], None]] | None = None
        self.graph_launches = 0
        self.filled_bytes = 0
        self.cached: set[int] = set()  # what was read since more than the cache was written
        self.remembered: dict[bytes, np.ndarray] = {}  # by kernels that cheat
        self._next = 0x7F00_0000_0000

    def allocate(self, nbytes: int) -> int:
        self._check()
        if nbytes > self.free_bytes:
            raise DeviceOutOfMemory("the device answers CUDA_ERROR_OUT_OF_MEMORY")
        address = self._next
        self._next += -(-nbytes // 256) * 256 + 4096
        room = nbytes >= ROOM_BYTES
        self.allocated[address] = np.zeros(nbytes, np.uint8) if room else np.resize(LEFT_OVER, nbytes).copy()
        self.free_bytes -= nbytes
        return address

    def free(self, address: int) -> None:
        self.free_bytes += self.allocated.pop(address).nbytes

    def lock_pages(self, nbytes: int) -> np.ndarray:
        self.locked_bytes += nbytes
        made = np.empty(nbytes, np.uint8)
        weakref.finalize(made, self._unlock, nbytes)
        return made

    def _unlock(self, nbytes: int) -> None:
        self.locked_bytes -= nbytes

    def begin_to_device(self, address: int, source: np.ndarray) -> Wait:
        def copy() -> None:
            self.bytes_at(address, source.nbytes)[...] = source

        self.waiting.append(copy)
        return self.synchronize

    def begin_to_host(self, target: np.ndarray, address: int) -> Wait:
        def copy() -> None:
            target[...] = self.bytes_at(address, target.nbytes)

        self.waiting.append(copy)
        return self.synchronize

    def fill(self, address: int, nbytes: int, byte: int) -> None:
        self.filled_bytes += nbytes
        if nbytes >= CACHE_BYTES:
            self.waiting.append(self.cached.clear)
        if nbytes < ROOM_BYTES:
            self.waiting.append(lambda: self.bytes_at(address, nbytes).fill(byte))

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._check()
        self.waiting.append(lambda: self._copied(target, source, nbytes))

    def _copied(self, target: int, source: int, nbytes: int) -> None:
        self.bytes_at(target, nbytes)[...] = self.bytes_at(source, nbytes)

    def load(self, image: bytes) -> Any:
        self._check()
        try:
            content = json.loads(image.rstrip(b"\0"))
            functions, us = content["functions"], content.get("us", 0)
        except (ValueError, KeyError):
            raise DeviceFailed("the device answers CUDA_ERROR_INVALID_IMAGE") from None
        return {name: (KERNELS[what], us) for name, what in functions.items()}

    def unload(self, module: Any) -> None:
        module.clear()

    def launcher(
        self,
        module: Any,
        function: str,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        arguments: Sequence[np.generic],
    ) -> Callable[[], None]:
        if function not in module:
            raise DeviceFailed("the device answers CUDA_ERROR_NOT_FOUND to cuModuleGetFunction")
        work, us = module[function]

        def launch() -> None:
            self._check()
            if self.captures is not None:
                self.captures.append(launch)
                return
            self.launches += 1
            self.waiting.append(lambda: self._run(work, us, time.perf_counter_ns(), arguments))

        return launch

    def record(self) -> list[int]:
        happened: list[int] = []
        launched_ns = time.perf_counter_ns()
        self.waiting.append(lambda: happened.append(max(self.busy_until_ns, launched_ns)))
        return happened

    def elapsed_us(self, first: list[int], last: list[int]) -> float:
        return (last[0] - first[0]) / 1e3

    def capture(self, launch: Callable[[], None]) -> Callable[[], None]:
        self.captures = []
        launch()
        captured, self.captures = self.captures, None

        def replay() -> None:
            self.graph_launches += 1
            for one in captured:
                one()

        return replay

    def _run(self, work: Callable[..., Any], us: float, launched_ns: int, arguments: Sequence[Any]) -> None:
        took_us = work(self, *arguments)
        begin_ns = max(self.busy_until_ns, launched_ns)
        self.busy_until_ns = begin_ns + int(1e3 * (us if took_us is None else took_us))

    def synchronize(self) -> None:
        self._check()
        while self.waiting:
            self.waiting.pop(0)()
        while time.perf_counter_ns() < max(self.busy_until_ns, self.elsewhere_until_ns):
            pass
        while self.late and self.late[0][0] <= time.perf_counter_ns():
            self.late.pop(0)[1]()
        self._check()

    def floats(self, address: Any, count: Any) -> np.ndarray:
        """What a kernel sees at an address."""
        return self.bytes_at(int(address), 4 * int(count)).view(np.float32)

    def bytes_at(self, address: int, nbytes: int) -> np.ndarray:
        for start, memory in self.allocated.items():
            if start <= address and address + nbytes <= start + memory.nbytes:
                return memory[address - start : address - start + nbytes]
        self.broken = ILLEGAL
        return np.empty(nbytes, np.uint8)

    def _check(self) -> None:
        if self.broken:
            raise DeviceFailed(self.broken)


def relu(device: SimulatedDriver, x: Any, y: Any, count: Any) -> None:
    made = np.maximum(device.floats(x, count), 0)
    device.floats(y, count)[...] = made
    left = made.view(np.uint8)[: LEFT_OVER.size]
    LEFT_OVER[: left.size] = left


def scaled(device: SimulatedDriver, x: Any, weights: Any, y: Any, count: Any) -> None:
    device.floats(y, count)[...] = device.floats(x, count) * device.floats(weights, count)


def inverted(device: SimulatedDriver, x: Any, y: Any, count: Any) -> None:
    device.floats(y, count)[...] = 1 / device.floats(x, count)


def beyond(device: SimulatedDriver, *arguments: Any) -> None:
    """Writes where nothing is."""
    device.floats(1 << 40, 1)[...] = 0


def uncorrectable(device: SimulatedDriver, *arguments: Any) -> None:
    """Meets memory that is broken."""
    device.broken = "the device answers CUDA_ERROR_ECC_UNCORRECTABLE"


def half(device: SimulatedDriver, x: Any, y: Any, count: Any) -> None:
    """Leaves the second half as it was."""
    relu(device, x, y, int(count) // 2)


def overrunning(device: SimulatedDriver, x: Any, y: Any, count: Any) -> None:
    """Writes a little more than its output."""
    relu(device, x, y, count)
    device.floats(int(y) + 4 * int(count), 1)[...] = 0


def into_the_input(device: SimulatedDriver, x: Any, y: Any, count: Any) -> None:
    relu(device, x, y, count)
    device.floats(x, 1)[...] = 1


def hanging(device: SimulatedDriver, *arguments: Any) -> float:
    return 1e12


def remembering(device: SimulatedDriver, x: Any, y: Any, count: Any) -> float:
    """Looks inputs up that it has seen, and hands out what it computed then: 25 us for 200."""
    seen = device.floats(x, count).tobytes()
    if seen in device.remembered:
        device.floats(y, count)[...] = device.remembered[seen]
        return 25
    relu(device, x, y, count)
    device.remembered[seen] = device.floats(y, count).copy()
    return 200


def kept(device: SimulatedDriver, x: Any, y: Any, count: Any) -> float:
    """Leaves its output where the input is the one of the last call with it: 25 us for 200."""
    seen = device.floats(x, count).tobytes()
    if seen in device.remembered:
        return 25
    relu(device, x, y, count)
    device.remembered = {seen: np.empty(0)} if len(device.remembered) > 1 else {**device.remembered, seen: y}
    return 200


def on_another_stream(device: SimulatedDriver, x: Any, y: Any, count: Any) -> float:
    """25 us of the stream that is timed, 200 of another."""
    relu(device, x, y, count)
    begin_ns = max(device.elsewhere_until_ns, time.perf_counter_ns())
    device.elsewhere_until_ns = begin_ns + 200_000
    return 25


def not_waited_for(device: SimulatedDriver, x: Any, y: Any, count: Any) -> float:
    """Its result comes half a second after whoever waits for the device was told that all has ended."""
    made = np.maximum(device.floats(x, count), 0)
    device.late.append((time.perf_counter_ns() + 500_000_000, lambda: _write(device, y, made)))
    return 25


def _write(device: SimulatedDriver, y: Any, made: np.ndarray) -> None:
    device.floats(y, made.size)[...] = made


def left_over(device: SimulatedDriver, x: Any, y: Any, count: Any, workspace: Any) -> float:
    """Computes nothing: what it finds in fresh memory is what somebody else computed."""
    device.floats(y, count)[...] = device.floats(workspace, count)
    return 25


def cached(device: SimulatedDriver, x: Any, y: Any, count: Any) -> float:
    """200 us where its input is in the cache, 800 where it is not."""
    relu(device, x, y, count)
    if int(x) in device.cached:
        return 200
    device.cached.add(int(x))
    return 800


def rounded(device: SimulatedDriver, x: Any, y: Any, count: Any) -> float:
    """As TF32 would have it: ten bits of each number's fraction."""
    bits = device.floats(x, count).view(np.uint32) & np.uint32(0xFFFFE000)
    device.floats(y, count)[...] = np.maximum(bits.view(np.float32), 0)
    return 25


KERNELS: dict[str, Callable[..., float | None]] = {
    work.__name__: work
    for work in (
        *(relu, scaled, inverted, beyond, uncorrectable, half, overrunning),
        *(into_the_input, hanging, remembering, kept),
        *(on_another_stream, not_waited_for, left_over, rounded, cached),
    )
}
