"""A CUDA device behind the one interface (figure 11, named in [0023]), by the simulated driver."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from opatlas.streams import cuda_device
from opatlas.streams.cuda_device import CudaDevice, DeviceBytes, manner_of_transfer
from opatlas.streams.device import Marks, StreamsFailed, StreamsLost, StreamStalled, run_program
from opatlas.streams.manners import Manner
from opatlas.streams.ordering import Act, findings, program_of
from tests.opatlas.load.cuda.simulated_streams import StreamingSimulation
from tests.opatlas.streams.work import RandomWork, without_each_wait


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "LOOK_S", 0.0)


def test_random_work_gives_what_one_by_one_gives_in_any_order() -> None:
    orders = set()
    for graph in range(20):
        work = RandomWork(graph)
        program, wanted = program_of(work.tasks), work.one_by_one()
        for seed in range(10):
            driver = StreamingSimulation(seed)
            calls, result = work.calls()
            run_program(CudaDevice(driver), program, calls, 5.0)
            assert result == wanted
            orders.add((graph, tuple(driver.order)))
    assert len(orders) > 150


def test_without_an_event_the_checker_tells_and_a_wrong_result_comes_out() -> None:
    removed = shown = 0
    for graph in range(8):
        work = RandomWork(graph)
        wanted = work.one_by_one()
        for _, less in without_each_wait(program_of(work.tasks)):
            removed += 1
            assert findings(work.tasks, less)
            for seed in range(60):
                calls, result = work.calls()
                run_program(CudaDevice(StreamingSimulation(seed)), less, calls, 5.0)
                if result != wanted:
                    shown += 1
                    break
    assert removed > 20 and shown > 0.7 * removed


def test_copies_between_devices_are_kernels_of_their_own_in_their_streams_order() -> None:
    """[0031]: CPU to GPU, a kernel, GPU to GPU, GPU to CPU, over two streams with one event."""
    driver = StreamingSimulation(1)
    device = CudaDevice(driver)
    x, y = np.array([-1.0, 2.0, -3.0], np.float32), np.zeros(3, np.float32)
    a, b, c = (DeviceBytes(driver.allocate(x.nbytes), x.nbytes) for _ in range(3))
    module = driver.load(json.dumps({"functions": {"f": "relu"}}).encode())
    arguments = [np.uint64(a.address), np.uint64(b.address), np.int32(3)]
    launch = driver.launcher(module, "f", (1,), (1,), 0, arguments)
    device.stream(0).copy(a, x)
    device.stream(0).launch(launch)
    device.stream(1).wait(device.stream(0).record())
    device.stream(1).copy(c, b)
    device.stream(1).copy(y, c)
    assert y.tolist() == [0, 0, 0], "the host goes on at once"
    device.synchronize(5.0)
    assert y.tolist() == [0, 2, 0]
    manners = [manner_of_transfer(*ends).manner for ends in ((a, x), (c, b), (y, c), (y, x))]
    assert manners == [Manner.ASYNC, Manner.ASYNC, Manner.SYNC, Manner.SYNC]
    with pytest.raises(StreamsFailed, match="A copy of 12 bytes does not fit into 4"):
        device.stream(0).copy(DeviceBytes(a.address, 4), x)


def test_a_kernel_reads_an_output_or_a_copy_of_one_and_writes_into_memory_that_was_asked_for() -> None:
    """[0032]: the inputs first, then memory of the device for the outputs, then the device's own kernel."""
    driver = StreamingSimulation(1)
    device = CudaDevice(driver)
    x, y, z = np.array([0.5, 2.0, -4.0], np.float32), np.zeros(3, np.float32), np.zeros(3, np.float32)
    module = driver.load(json.dumps({"functions": {"f": "inverted"}}).encode())

    def asked_for() -> DeviceBytes:
        return DeviceBytes(driver.allocate(x.nbytes), x.nbytes)

    def kernel(source: int, target: int) -> Any:
        arguments = [np.uint64(source), np.uint64(target), np.int32(3)]
        return driver.launcher(module, "f", (1,), (1,), 0, arguments)

    given, made, copied, again, from_copy = (asked_for() for _ in range(5))
    stream = device.stream(0)
    stream.copy(given, x)
    stream.launch(kernel(given.address, made.address))
    stream.copy(copied, made)
    stream.launch(kernel(made.address, again.address))
    stream.launch(kernel(copied.address, from_copy.address))
    stream.copy(y, again)
    stream.copy(z, from_copy)
    device.synchronize(5.0)
    assert y.tolist() == z.tolist() == x.tolist(), "1 ÷ (1 ÷ x), of the output and of its copy"
    driver.free(again.address)
    stream.launch(kernel(made.address, again.address))
    with pytest.raises(StreamsLost, match=r"Stream 0 failed: .*ILLEGAL_ADDRESS"):
        device.synchronize(1.0)


def test_marks_are_of_the_devices_clock() -> None:
    work, marks = RandomWork(5), Marks()
    run_program(CudaDevice(StreamingSimulation(2)), program_of(work.tasks), work.calls()[0], 5.0, marks)
    took = [end.at_s - begin.at_s for one, begin, end in marks if one.act is Act.LAUNCH]
    assert len(took) == len(work.tasks) and min(took) >= 1e-6


def test_an_event_that_never_comes_is_a_stall_and_the_device_is_lost() -> None:
    work = RandomWork(3)
    device = CudaDevice(StreamingSimulation(1, swallows=0))
    with pytest.raises(StreamStalled, match=r"did not end within 0\.05 s"):
        run_program(device, program_of(work.tasks), work.calls()[0], 0.05)
    assert device.is_lost
    with pytest.raises(StreamsLost):
        device.stream(0)
    device.close()


def test_an_illegal_address_is_told_with_its_stream_and_loses_the_device() -> None:
    driver = StreamingSimulation(1)
    device = CudaDevice(driver)
    device.stream(4).copy(DeviceBytes(12345, 4), np.zeros(1, np.float32))
    with pytest.raises(StreamsLost, match=r"Stream 4 failed: .*ILLEGAL_ADDRESS"):
        device.synchronize(1.0)
    assert device.is_lost


def test_a_closed_device_gives_its_streams_back() -> None:
    driver = StreamingSimulation(1)
    device = CudaDevice(driver)
    for _ in range(9):
        device.stream(0).launch(int)
        device.synchronize(1.0)
    assert len(driver.events) == 1, "those of runs before are dropped"
    device.close()
    assert not driver.streams and not driver.events
