"""Random work in any order that its events allow gives what it gives one by one; without one of them it does
not."""

from __future__ import annotations

import pytest

from opatlas.streams.device import StreamsFailed, StreamsLost, StreamStalled, run_program
from opatlas.streams.ordering import StreamProgram, findings, program_of
from tests.opatlas.streams.null_device import Faults, NullDevice
from tests.opatlas.streams.work import RandomWork, Result, without_each_wait

GRAPHS, SEEDS = 100, 100


def ran(work: RandomWork, program: StreamProgram, device: NullDevice) -> Result:
    calls, result = work.calls()
    run_program(device, program, calls, 1.0)
    return result


def test_ten_thousand_interleavings_give_what_one_by_one_gives() -> None:
    orders = 0
    for graph in range(GRAPHS):
        work = RandomWork(graph)
        program, wanted = program_of(work.tasks), work.one_by_one()
        seen = set()
        for seed in range(SEEDS):
            device = NullDevice(seed)
            assert ran(work, program, device) == wanted
            seen.add(tuple(device.order))
        orders += len(seen)
    assert orders > GRAPHS * SEEDS / 10  # else not much was interleaved


def test_without_an_event_a_wrong_result_comes_out() -> None:
    """What the checker calls missing is missed."""
    removed = shown = 0
    for graph in range(12):
        work = RandomWork(graph)
        wanted = work.one_by_one()
        for _, less in without_each_wait(program_of(work.tasks)):
            removed += 1
            assert findings(work.tasks, less)
            shown += any(ran(work, less, NullDevice(seed)) != wanted for seed in range(100))
    assert removed > 40 and shown > 0.8 * removed  # some write over what nobody reads any more


def work_of_three() -> tuple[RandomWork, StreamProgram]:
    work = RandomWork(3)
    return work, program_of(work.tasks)


def test_the_same_seed_gives_the_same_order() -> None:
    work, program = work_of_three()
    one, other = NullDevice(5), NullDevice(5)
    ran(work, program, one)
    ran(work, program, other)
    assert one.order == other.order


def test_a_kernel_that_never_ends_is_a_stall_and_the_device_is_lost() -> None:
    work, program = work_of_three()
    device = NullDevice(1, Faults(hangs_at=4))
    with pytest.raises(StreamStalled, match="did not end within 1 s"):
        ran(work, program, device)
    assert device.is_lost
    with pytest.raises(StreamsLost):
        ran(work, program, device)


def test_an_event_that_never_comes_is_a_stall() -> None:
    work, program = work_of_three()
    device = NullDevice(1, Faults(swallows=0))
    with pytest.raises(StreamStalled, match="did not end"):
        ran(work, program, device)
    assert not device.is_lost
    assert ran(work, program, device) == work.one_by_one()


def test_a_device_that_disappears_says_so_from_then_on() -> None:
    work, program = work_of_three()
    device = NullDevice(1, Faults(lost_at=2))
    for _ in range(2):
        with pytest.raises(StreamsLost, match="The device is gone"):
            ran(work, program, device)


def test_a_launch_that_fails_is_told_with_its_stream() -> None:
    device = NullDevice(1)
    device.stream(2).launch(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(StreamsFailed, match="Stream 2 failed: division by zero"):
        device.synchronize(1.0)
