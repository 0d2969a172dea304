"""When the host leaves us alone, on planted counters: /proc and the clock say what a test wants."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from opatlas.noise import STEAL_STEP_US
from tuning.measure.timing import quiet
from tuning.measure.timing.quiet import Turn, wait_until_quiet

PID = 4711


class Host:
    """``delay_ns`` of process 4711 alone, ``stolen_us`` and ``waiting_us`` of the host; sleeping passes time,
    during which others wait for ``pressed`` of it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.delay_ns = 7_000_000
        self.stolen_us = 30_000
        self.waiting_us = 5_000.0
        self.pressed = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
        self.waiting_us += self.pressed * seconds * 1e6


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()

    def now() -> float:
        return made.now_s

    monkeypatch.setattr(quiet, "time", SimpleNamespace(perf_counter=now, monotonic=now, sleep=made.sleep))
    counters = SimpleNamespace(
        delay_ns=lambda pid: made.delay_ns if pid == PID else 10**15 + int(made.now_s * 1e9),
        stolen_us=lambda: made.stolen_us,
        waiting_us=lambda: made.waiting_us,
    )
    monkeypatch.setattr(quiet, "procfs", counters)
    return made


def disturbance(host: Host, seconds: float, *, delay_ns: int = 0, stolen_us: int = 0) -> float:
    turn = Turn.start(PID)
    host.now_s += seconds
    host.delay_ns += delay_ns
    host.stolen_us += stolen_us
    return turn.disturbance()


def test_nothing_in_the_way_is_quiet(host: Host) -> None:
    assert disturbance(host, 0.1) == 0.0


def test_a_process_that_waited_a_tenth_of_its_turn_was_disturbed_by_a_tenth(host: Host) -> None:
    assert disturbance(host, 0.1, delay_ns=10_000_000) == pytest.approx(0.1)


def test_what_the_hypervisor_took_counts_as_much(host: Host) -> None:
    assert disturbance(host, 1.0, stolen_us=200_000) == pytest.approx(0.2)
    assert disturbance(host, 1.0, stolen_us=200_000, delay_ns=300_000_000) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("steps", "seconds", "counts"),
    [(1, 0.049, False), (1, 0.05, True), (1, 0.2, True), (2, 0.049, True)],
)
def test_one_step_of_steal_time_says_nothing_about_a_short_turn(
    host: Host, steps: int, seconds: float, counts: bool
) -> None:
    host.now_s = 0.0  # so that differences of times are exact
    found = disturbance(host, seconds, stolen_us=steps * STEAL_STEP_US)
    assert found == pytest.approx(steps * STEAL_STEP_US / (seconds * 1e6) if counts else 0.0)


def test_a_turn_of_no_length_is_taken_for_a_microsecond(host: Host) -> None:
    assert disturbance(host, 0.0, delay_ns=500) == pytest.approx(0.5)


def test_a_quiet_host_is_waited_for_one_window_only(host: Host) -> None:
    assert wait_until_quiet(5.0)
    assert host.slept == [0.02]


@pytest.mark.parametrize(("pressed", "becomes_quiet"), [(0.24, True), (0.26, False), (0.9, False)])
def test_others_may_press_for_a_quarter_of_the_time(host: Host, pressed: float, becomes_quiet: bool) -> None:
    host.pressed = pressed
    assert wait_until_quiet(1.0, window_s=0.25) is becomes_quiet
    assert host.slept == [0.25] * (
        1 if becomes_quiet else 5
    )  # at the very end of the time it looks once more


def test_exactly_a_quarter_is_too_much(host: Host) -> None:
    host.now_s, host.waiting_us, host.pressed = 0.0, 0.0, 0.25
    assert not wait_until_quiet(0.0, window_s=1.0)


def test_it_ends_as_soon_as_the_pressure_does(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.pressed = 0.9
    sleep = host.sleep

    def eased_after_three(seconds: float) -> None:
        host.pressed = 0.9 if len(host.slept) < 3 else 0.0
        sleep(seconds)

    monkeypatch.setattr(quiet.time, "sleep", eased_after_three)
    assert wait_until_quiet(60.0)
    assert len(host.slept) == 4
