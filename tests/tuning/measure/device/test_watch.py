"""A device under watch: its memory, its doubts, its rounds."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from opatlas.noise import INVALID
from tests.tuning.measure.device.simulated import CALM, NO_GPU, SimulatedMonitor
from tuning.measure.device.watch import (
    DEFAULTS_IN_A_ROW,
    DeviceTurn,
    DeviceWatch,
    claim_bytes,
    summary,
)
from tuning.measure.outcome import Status
from tuning.measure.timing.quiet import Turn
from tuning.measure.timing.timer import choose_rounds, too_noisy

GIB = 1 << 30


@pytest.fixture
def monitor() -> SimulatedMonitor:
    return SimulatedMonitor()


@pytest.fixture
def watch(monitor: SimulatedMonitor) -> DeviceWatch:
    return DeviceWatch(NO_GPU, monitor)


def test_a_process_that_the_driver_names_has_its_own_claim(
    watch: DeviceWatch, monitor: SimulatedMonitor
) -> None:
    watch.enter(10, 3 * GIB)
    watch.enter(11, 2 * GIB)
    monitor.processes = {10: 3 * GIB, 11: 2 * GIB + 1}
    assert watch.over(10) == ""
    assert watch.over(11) == "used 2048 MiB of the device's memory; at most 2048 MiB"
    watch.leave(11)
    assert watch.over(11) == "", "who has ended, or never came, is nobody's business"


def test_where_no_process_is_named_all_claims_together_bound_what_has_come(
    watch: DeviceWatch, monitor: SimulatedMonitor
) -> None:
    monitor.now = replace(CALM, used_bytes=5 * GIB)  # somebody else's, before ours came
    watch.enter(10, 3 * GIB)
    watch.enter(11, 2 * GIB)
    monitor.now = replace(CALM, used_bytes=10 * GIB)
    assert watch.over(11) == ""
    monitor.now = replace(CALM, used_bytes=10 * GIB + 1)
    assert "used 5120 MiB" in watch.over(11)


def test_nothing_is_tried_on_a_device_that_fails_its_self_test(watch: DeviceWatch) -> None:
    tests: list[str] = []

    def self_test(found: str | None) -> str | None:
        tests.append("run")
        return found

    assert watch.prove(lambda: self_test("wrong")) == "" and not tests, "nothing has gone wrong on it"
    watch.saw(Status.WRONG_RESULT)
    assert watch.prove(lambda: self_test("wrong")) == "" and not tests, "a wrong result is no fault"
    watch.saw(Status.CRASHED)
    assert watch.prove(lambda: self_test(None)) == ""
    assert watch.prove(lambda: self_test("")) == "" and len(tests) == 2, "still in doubt after no proof"
    assert watch.prove(lambda: self_test("wrong")) == "" and len(tests) == 2
    watch.saw(Status.TIMED_OUT)
    assert "cuda:0 does not compute correctly after a fault: wrong" in watch.prove(lambda: self_test("wrong"))
    assert watch.prove(lambda: self_test("")) != "" and len(tests) == 4, "it failed twice, and stays so"
    another = DeviceWatch(NO_GPU)
    another.saw(Status.CRASHED)
    ends = ["too slow", ""]
    assert another.prove(lambda: ends.pop(0)) == "" and not ends, "once is no proof"
    assert not another.doubted
    another.saw(Status.CRASHED)
    unclear = ["wrong", None]
    assert another.prove(lambda: unclear.pop(0)) == "" and not unclear
    assert another.doubted, "wrong once, and then no answer"


def test_defaults_that_fail_in_a_row_after_a_fault_are_the_devices(watch: DeviceWatch) -> None:
    for _ in range(DEFAULTS_IN_A_ROW):
        watch.default_ran("it cannot do that")
    assert not watch.unwell, "without a fault they are the operators'"
    watch.saw(Status.CRASHED)
    watch.default_ran("unspecified launch failure")
    watch.default_ran("")
    assert watch.prove(lambda: "wrong") == "", "one that ran is a proof"
    watch.saw(Status.CRASHED)
    for _ in range(DEFAULTS_IN_A_ROW):
        watch.default_ran("unspecified launch failure")
    assert "has run no default since a fault: unspecified launch failure" in watch.unwell


def test_a_round_in_which_the_device_was_slowed_down_is_invalid(
    watch: DeviceWatch, monitor: SimulatedMonitor
) -> None:
    readings: list = []
    calm = DeviceTurn(watch, host(0.0), readings)
    warm = replace(CALM, sm_mhz=1700, temperature_c=60, slowed=("power cap",))
    monitor.now = replace(warm, held_back_ns={"power cap": 1000000})
    calm.look()
    monitor.now = replace(CALM, sm_mhz=345, slowed=("idle",))
    assert calm.disturbance() == 0.0
    hot = DeviceTurn(watch, host(0.0), readings)
    hot_one = replace(CALM, sm_mhz=900, temperature_c=88, slowed=("hardware thermal slowdown",))
    monitor.now = replace(hot_one, held_back_ns={"power cap": 3500000})
    hot.look()
    monitor.now = replace(CALM, sm_mhz=345, slowed=("idle",))
    assert hot.disturbance() == INVALID
    assert summary(readings) == {
        "looks": 2,
        "sm_mhz": [900, 1700],
        "memory_mhz": [2619, 2619],
        "temperature_c": [60, 88],
        "slowed": {"power cap": 1, "hardware thermal slowdown": 1},
        "held_back_ms": {"power cap": 2.5},
        "used_bytes": CALM.used_bytes,
    }, "as it is while it works, and not before and after"


def test_what_slowed_the_device_down_between_two_looks_has_been_counted(
    watch: DeviceWatch, monitor: SimulatedMonitor
) -> None:
    monitor.now = replace(CALM, held_back_ns={"power cap": 5, "hardware thermal slowdown": 7})
    turn = DeviceTurn(watch, host(0.0), [])
    turn.look()
    monitor.now = replace(CALM, held_back_ns={"power cap": 10**12, "hardware thermal slowdown": 7})
    assert turn.disturbance() == 0.0, "who always meets its power cap runs at that speed"
    monitor.now = replace(CALM, held_back_ns={"power cap": 10**12, "hardware thermal slowdown": 10**12})
    assert turn.disturbance() == INVALID


def test_a_counter_that_one_look_could_not_read_says_nothing(
    watch: DeviceWatch, monitor: SimulatedMonitor
) -> None:
    """It counts since the driver was loaded."""
    readings: list = []
    turn = DeviceTurn(watch, host(0.0), readings)
    turn.look()
    monitor.now = replace(CALM, held_back_ns={"hardware thermal slowdown": 10**12})
    turn.look()
    assert turn.disturbance() == 0.0
    assert summary(readings)["held_back_ms"] == {}


def test_a_turn_is_judged_by_its_own_looks(watch: DeviceWatch, monitor: SimulatedMonitor) -> None:
    readings = [replace(CALM, slowed=("hardware thermal slowdown",))]
    turn = DeviceTurn(watch, host(0.0), readings)
    turn.look()
    assert turn.disturbance() == 0.0 and len(readings) == 2


def test_a_host_that_keeps_the_launching_process_waiting_disturbs_a_devices_turn(watch: DeviceWatch) -> None:
    assert DeviceTurn(watch, host(0.3), []).disturbance() == 0.3


def host(disturbed: float) -> Turn:
    class HostTurn(Turn):
        def disturbance(self) -> float:
            return disturbed

    return HostTurn(pid=0, delay_ns=0, stolen_us=0, started=time.perf_counter())


def test_invalid_rounds_never_count() -> None:
    assert choose_rounds([0.5, INVALID, 0.2, INVALID], 4) == [0, 2]
    assert "slowed down in 3 of 5 rounds" in too_noisy([0.0, INVALID, INVALID, 0.0, INVALID], [])
    assert too_noisy([0.0, 0.0, 0.0, INVALID], []) == ""


def test_a_claim_knows_the_operator_and_leaves_half_to_the_default(watch: DeviceWatch) -> None:
    assert claim_bytes(GIB, 80 * GIB) == 5 * GIB
    assert claim_bytes(100 * GIB, 80 * GIB) == 40 * GIB
    assert watch.why_too_large(GIB) == ""
    assert "it has 81920 MiB" in watch.why_too_large(13 * GIB)
