"""The race on children with a made-up clock: order, early stops, noise, fixed costs."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opatlas import noise
from tuning.measure.outcome import Status
from tuning.measure.sandbox.process import ChildFailed
from tuning.measure.timing import timer
from tuning.measure.timing.timer import Effort, Runner, choose_rounds, race

BRIEF = Effort(seconds=0.0, rounds=5, stop_losers=True)


@dataclass
class FakeChild:
    """Takes ``per_call_us`` a call and ``fixed_us`` a batch, with a little noise; really takes no time."""

    per_call_us: float
    fixed_us: float = 20.0
    noise: float = 0.01
    pid: int = field(default_factory=os.getpid)
    log: list[str] = field(default_factory=list)
    name: str = "child"

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(7)

    def run_ns(self, calls: int, timeout_s: float) -> int:
        self.log.append(f"{self.name} {calls}")
        factor = 1 + self.noise * self.rng.standard_normal()
        return int((self.fixed_us + calls * self.per_call_us) * 1e3 * max(0.5, factor))

    def pause(self) -> None:
        self.log.append(f"{self.name} stop")

    def resume(self) -> None:
        self.log.append(f"{self.name} go")


def runner(child: FakeChild, *, cold: bool = False) -> Runner:
    made = Runner(child, timeout_s=10.0)  # type: ignore[arg-type]
    made.calibrate(cold=cold)
    child.log.clear()
    return made


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The made-up clock runs on a machine that is never disturbed."""
    monkeypatch.setattr(timer, "wait_until_quiet", lambda *windows_s: True)
    monkeypatch.setattr(timer.Turn, "disturbance", lambda self: 0.0)


@pytest.mark.parametrize("per_call_us", [0.8, 12.0, 300.0, 9000.0])
def test_what_a_batch_costs_once_cancels(per_call_us: float) -> None:
    result = race([runner(FakeChild(per_call_us)), runner(FakeChild(per_call_us, fixed_us=45.0))], BRIEF)
    (timing,) = result.timings
    assert timing.median_us == pytest.approx(per_call_us, rel=0.03)
    assert timing.ratio_to_default == pytest.approx(1.0, rel=0.03)


def test_twice_the_work_is_half_the_ratio() -> None:
    (timing,) = race([runner(FakeChild(50.0)), runner(FakeChild(100.0))], BRIEF).timings
    assert timing.ratio_to_default == pytest.approx(0.5, rel=0.03)
    assert timing.ratio_low <= timing.ratio_to_default <= timing.ratio_high


def test_batches_are_of_about_a_millisecond_and_even() -> None:
    made = runner(FakeChild(10.0))
    assert made.calls % 2 == 0
    assert 80 <= made.calls <= 120


def test_a_long_call_and_a_cold_one_are_batches_of_their_own() -> None:
    assert runner(FakeChild(20_000.0)).single
    assert runner(FakeChild(10.0), cold=True).calls == 1


@dataclass
class FakeDeviceChild(FakeChild):
    """Its device's clock says ``device_us`` of each run on its two buffers."""

    device_us: float = 3.0

    def ask(self, command: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        self.log.append(f"{self.name} {command['do']} {command['evict_bytes']}")
        waited = time.perf_counter_ns() + 50_000
        while time.perf_counter_ns() < waited:
            pass
        return {"us": [self.device_us] * 2 * command["calls"]}


def test_a_cold_call_on_a_device_is_timed_by_its_own_clock() -> None:
    child = FakeDeviceChild(40.0, fixed_us=25.0, noise=0.0)
    made = runner(child, cold=True)
    made.evict_bytes = 1 << 20
    made.sample(None)
    assert made.times_us() == [3.0], "no packet's time is among it"
    assert child.log == ["child go", f"child each_by_its_clock {1 << 20}", "child stop"]
    child.device_us = 1e6
    with pytest.raises(ChildFailed, match=r"clock says 2e\+06 us of runs that took") as failed:
        made.sample(None)
    assert failed.value.status is Status.CHEATED and failed.value.culprit is made
    child.device_us = float("nan")
    with pytest.raises(ChildFailed, match="has no device"):
        made.sample(None)


def test_a_device_is_looked_at_while_it_works_and_not_while_it_is_timed() -> None:
    child = FakeChild(50.0)
    made = runner(child)
    looks: list[int] = []
    plain = child.run_ns

    def run_ns(calls: int, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> int:
        if meanwhile is not None:
            assert not made.once_ns
            meanwhile()
        return plain(calls, timeout_s)

    child.run_ns = run_ns  # type: ignore[method-assign,assignment]
    made.sample(None, lambda: looks.append(len(child.log)))
    assert looks == [1] and len(made.once_ns) == 1


def test_three_times_slower_stops_after_three_rounds() -> None:
    result = race([runner(FakeChild(50.0)), runner(FakeChild(200.0))], Effort(10.0, 12, stop_losers=True))
    assert (result.status, result.rounds) == (Status.SLOWER, 3)
    assert "4.0 times" in result.detail


def test_turns_alternate_and_only_one_process_is_awake() -> None:
    log: list[str] = []
    first, second = FakeChild(50.0, log=log, name="a"), FakeChild(50.0, log=log, name="b")
    runners = [runner(first), runner(second)]
    log.clear()
    race(runners, Effort(0.0, 2, stop_losers=False))
    assert [entry for entry in log if entry.endswith("go")] == ["a go", "b go", "b go", "a go"]
    awake: set[str] = set()
    for entry in log:
        name, _, what = entry.partition(" ")
        awake = awake | {name} if what == "go" else awake - {name} if what == "stop" else awake
        assert len(awake) <= 1


def test_disturbed_rounds_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter(range(10_000))
    child = FakeChild(50.0, noise=0.0)
    plain = child.run_ns
    disturbed: list[bool] = [False]

    def run_ns(calls: int, timeout_s: float) -> int:
        return plain(calls, timeout_s) * (5 if disturbed[0] else 1)

    def start(pid: int) -> object:
        disturbed[0] = next(turns) % 4 == 1  # the candidate's turn of every second round

        class Judged:
            @staticmethod
            def disturbance() -> float:
                return 0.5 if disturbed[0] else 0.0

        return Judged()

    racers = [runner(FakeChild(50.0, noise=0.0)), runner(child)]
    monkeypatch.setattr(child, "run_ns", run_ns)
    monkeypatch.setattr(timer.Turn, "start", start)
    result = race(racers, Effort(0.0, 4, stop_losers=False))
    assert result.noisy_rounds > 0
    assert result.timings[0].ratio_to_default == pytest.approx(1.0, rel=0.01)


def test_without_quiet_rounds_the_least_disturbed_count() -> None:
    assert choose_rounds([0.0, 0.5, 0.01], wanted=2) == [0, 2]
    assert choose_rounds([0.9, 0.5, 0.2, 0.3], wanted=2) == [2, 3]


def test_an_incumbent_takes_part() -> None:
    racers = [runner(FakeChild(100.0)), runner(FakeChild(50.0)), runner(FakeChild(80.0))]
    newcomer, incumbent = race(racers, Effort(0.0, 5, stop_losers=False)).timings
    assert newcomer.ratio_to_default > incumbent.ratio_to_default > 1


def test_a_contest_ends_when_the_ratio_is_known_well_enough() -> None:
    steady = [runner(FakeChild(50.0, noise=0.001)), runner(FakeChild(40.0, noise=0.001))]
    result = race(steady, Effort(5.0, 5, stop_losers=True))
    assert result.rounds == noise.SETTLED_ROUNDS
    assert result.timings[0].ratio_to_default == pytest.approx(1.25, rel=0.01)
    other = FakeChild(40.0, noise=0.1)
    other.rng = np.random.default_rng(11)
    restless = [runner(FakeChild(50.0, noise=0.1)), runner(other)]
    assert race(restless, Effort(0.5, 5, stop_losers=True)).rounds > 2 * noise.SETTLED_ROUNDS


def test_what_is_clearly_slower_than_the_default_ends_early() -> None:
    racers = [runner(FakeChild(50.0, noise=0.03)), runner(FakeChild(75.0, noise=0.03))]
    assert race(racers, Effort(5.0, 5, stop_losers=True)).rounds == 5
    assert race(racers, Effort(5.0, 5, stop_losers=False)).rounds > 5


def test_who_crowds_itself_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every turn disturbed, though the machine is quiet after each: more threads than CPUs, no patience."""
    monkeypatch.setattr(timer.Turn, "disturbance", lambda self: 0.5)
    effort = Effort(0.0, 5, stop_losers=False)
    racers = [runner(FakeChild(50.0)), runner(FakeChild(40.0))]
    result = race(racers, effort)
    assert result.rounds == result.noisy_rounds == max(noise.SETTLED_ROUNDS, 2 * effort.rounds)
    # Somebody else presses for the CPUs: that can pass, so it is waited for.
    monkeypatch.setattr(timer, "wait_until_quiet", lambda *windows_s: False)
    ticks_s = itertools.count(step=1e-3)
    monkeypatch.setattr(timer, "time", SimpleNamespace(perf_counter=lambda: next(ticks_s)))
    assert race(racers, Effort(0.05, 5, stop_losers=False)).rounds > result.rounds
