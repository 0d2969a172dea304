"""What a driver's own code must do, over a stand-in for the driver's library (``libcuda.c``) and on a device.

``python -m tests.opatlas.load.cuda.driver_checks MODULE CLASS [IMAGE]`` prints what each check says; the
image is ``SOURCE``, compiled for the device that is there."""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from opatlas.load.cuda.driver import DeviceFailed, DeviceOutOfMemory
from opatlas.load.cuda.staging import HALF_BYTES
from tests.opatlas.load.cuda.test_module import kernel
from tests.opatlas.load.cuda.test_plan import launch, plan

SIMULATED = IMAGE = b"SIMULATED\0"
SOURCE = """
extern "C" __global__ void twice(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = 2 * x[i];
}
extern "C" __global__ void beyond(const float* x, float* y, int n) {
    y[(1ull << 40) + threadIdx.x] = x[0];
}
"""


class Doubling:
    """The image's kernel, on eight numbers."""

    def __init__(self, device: Any, function: str = "twice", shared_bytes: int = 0) -> None:
        self.device, self.given = device, np.arange(8, dtype=np.float32)
        self.x, self.y = device.allocate(32), device.allocate(32)
        device.to_device(self.x, self.given)
        device.fill(self.y, 32, 0)
        device.synchronize()
        self.module = device.load(IMAGE)
        arguments = [np.uint64(self.x), np.uint64(self.y), np.int32(8)]
        self.run = device.launcher(self.module, function, (1, 1, 1), (8, 1, 1), shared_bytes, arguments)

    def is_right(self) -> bool:
        made = np.empty(8, np.float32)
        self.device.to_host(made, self.y)
        return bool((made == 2 * self.given).all())


def copies_and_fills(device: Any) -> None:
    given = np.arange(3_000_000, dtype=np.float32)
    back, at = np.empty_like(given), device.allocate(given.nbytes)
    device.to_device(at, given)
    device.to_host(back, at)
    assert (back == given).all()
    assert device._pages.nbytes == 2 * HALF_BYTES, "not page-locked"
    device.copy(at, at + given.nbytes // 2, given.nbytes // 2)
    device.to_host(back, at)
    assert (back[: given.size // 2] == given[given.size // 2 :]).all()
    device.fill(at, given.nbytes, 255)
    device.to_host(back, at)
    assert np.isnan(back).all()
    device.free(at)
    locked = device.host_memory(1000)
    assert device._pages.nbytes == 2 * HALF_BYTES + 1000
    del locked
    gc.collect()
    assert device._pages.nbytes == 2 * HALF_BYTES


def launches(device: Any) -> None:
    doubling = Doubling(device, shared_bytes=60 << 10)
    first = device.record()
    doubling.run()
    last = device.record()
    device.synchronize()
    assert doubling.is_right()
    assert 0 <= device.elapsed_us(first, last) < 60e6
    device.unload(doubling.module)


def refuses(device: Any) -> None:
    assert _raised(lambda: device.load(b"no module\0"), DeviceFailed)
    assert _raised(lambda: Doubling(device, "nothing"), DeviceFailed)
    assert _raised(lambda: device.allocate(1 << 40), DeviceOutOfMemory)


def any_thread_may_call(device: Any) -> None:
    """One that has called nothing of CUDA's; what it leaves is no end of the process."""
    doubling = Doubling(device)

    def work() -> None:
        doubling.run()
        assert doubling.is_right()
        own = Doubling(device)
        own.run()
        assert own.is_right()
        assert 0 <= device.elapsed_us(device.record(), _after(device)) < 60e6
        device.free(own.x)
        device.host_memory(1000)

    _in_a_thread(work)


def another_device_may_be_current(device: Any) -> None:
    """As where a job uses two: it finds its own current afterwards."""
    doubling, other, library = Doubling(device), ctypes.c_void_p(), ctypes.CDLL("libcuda.so.1")
    if library.cuDevicePrimaryCtxRetain(ctypes.byref(other), 1):
        return  # this machine has one

    def work() -> None:
        library.cuCtxSetCurrent(other)
        doubling.run()
        assert doubling.is_right()
        own = Doubling(device)
        own.run()
        assert own.is_right()
        now = ctypes.c_void_p()
        library.cuCtxGetCurrent(ctypes.byref(now))
        assert now.value == other.value

    _in_a_thread(work)


def graphs(device: Any) -> None:
    doubling = Doubling(device)
    replay = device.capture(doubling.run)
    assert not doubling.is_right(), "nothing runs while it is captured"
    replay()
    assert doubling.is_right()
    _in_a_thread(replay)


def streams(device: Any) -> None:
    """A thread's launches go where it says, and no other's."""
    doubling, stream = Doubling(device), device.make_stream()
    seen = []

    def within() -> None:
        doubling.run()
        seen.append(device.stream)
        _in_a_thread(lambda: seen.append(device.stream))

    device.launch_in(int(stream), within)
    assert seen == [int(stream), 0]
    event = device.record_in(stream)
    assert IMAGE != SIMULATED or not doubling.is_right(), "the default stream waits for no other"
    while not device.has_happened(event):
        pass
    assert doubling.is_right()
    device.drop_event(event)
    device.drop_stream(stream)


def a_kernel_goes_into_the_streams_of_others(device: Any) -> None:
    """Constants and buffers are the same in any."""
    arguments = [{"packed": 0}, {"output": 0}, {"int32": 32}]
    document = plan(
        prepare=[launch(function="twice", arguments=[{"input": 1}, {"packed": 0}, {"int32": 32}])],
        run=[launch(function="twice", arguments=arguments)],
        workspace_bytes=0,
        arch=device.arch,
    )
    loaded, stream = kernel(device, document, IMAGE), device.make_stream()
    weights = np.full((4, 8), 0.5, np.float32)
    loaded.prepare({1: weights})
    bound = loaded.bind({0: weights}, stream=int(stream))
    bound()
    assert (bound.outputs()[0] == 4 * weights).all()
    bound = loaded.bind({0: weights})
    bound()
    assert (bound.outputs()[0] == 4 * weights).all()
    loaded.close()


def a_fault_is_told_and_stays(device: Any) -> None:
    """The last of them: nothing works after it."""
    beyond, kept = Doubling(device, "beyond"), device.host_memory(1000)
    beyond.run()
    assert _raised(device.synchronize, DeviceFailed)
    assert _raised(lambda: device.allocate(1), DeviceFailed)
    assert _raised(beyond.run, DeviceFailed)
    del kept  # what it does not take back raises nothing


CHECKS = (
    *(copies_and_fills, launches, refuses, any_thread_may_call, another_device_may_be_current, graphs),
    *(streams, a_kernel_goes_into_the_streams_of_others, a_fault_is_told_and_stays),
)


def _after(device: Any) -> Any:
    last = device.record()
    device.synchronize()
    return last


def _raised(work: Callable[[], Any], kind: type[Exception]) -> bool:
    try:
        work()
    except kind:
        return True
    return False


def _in_a_thread(work: Callable[[], Any]) -> None:
    wrong: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if wrong:
        raise wrong[0]


def main(module: str, name: str, image: str = "") -> None:
    global IMAGE
    IMAGE = Path(image).read_bytes() if image else SIMULATED
    device = getattr(importlib.import_module(module), name)(0)
    for check in CHECKS:
        try:
            check(device)
            said = ""
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        print(json.dumps([check.__name__, said]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
