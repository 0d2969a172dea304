"""Timing from outside: the parent's clock, batches of k and 2k calls, candidates in turns with the default.

Whoever is not on turn is stopped (SIGSTOP): worker threads of OpenMP, ONNX Runtime and OpenBLAS spin for
milliseconds after a call, and would take the other's cores. Each turn starts with untimed runs that wake
the threads and warm the caches (unless the setting wants them cold).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np

from opatlas import noise as limits
from opatlas.evidence import Evidence
from tuning.measure.device.nvml import Reading
from tuning.measure.device.watch import DeviceTurn, DeviceWatch
from tuning.measure.outcome import Status
from tuning.measure.sandbox.process import Child, ChildFailed
from tuning.measure.shared_tensors import BUFFERS
from tuning.measure.timing.quiet import Turn, wait_until_quiet
from tuning.measure.timing.stats import per_call_us, timing

Flush = Callable[[Child], None]
"""Makes the caches cold that this child's next run will read."""


@dataclass(frozen=True)
class Effort:
    """How long to sample: until ``seconds`` are spent, with at least ``rounds`` quiet rounds."""

    seconds: float
    rounds: int
    stop_losers: bool

    @property
    def patience_s(self) -> float:
        """After this no more quiet rounds are waited for, if there are a few rounds at all."""
        return max(0.5, 4 * self.seconds)

    @property
    def limit_s(self) -> float:
        """After this it ends, whatever there is."""
        return 3 * self.patience_s


CONTEST = Effort(seconds=0.35, rounds=5, stop_losers=True)
LINE_UP = Effort(seconds=0.12, rounds=5, stop_losers=False)
"""Of one sitting in fresh processes; a line-up has several."""
DEFAULT_ALONE = Effort(seconds=0.08, rounds=5, stop_losers=False)


@dataclass
class Runner:
    """One process on the track: how many calls make a batch, and its raw samples."""

    child: Child
    timeout_s: float
    calls: int = 1
    fixed_ns: float = 0.0
    single: bool = False  # one call is a batch: no 2k batch is run
    lead_in: bool = False  # an untimed call before a single one, for what others left in the caches
    once_ns: list[float] = field(default_factory=list)
    twice_ns: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)  # how disturbed each turn was: 0 is quiet
    on_device: bool = False  # its calls launch
    device: DeviceWatch | None = None  # it runs there: the device says how its turns went
    readings: list[Reading] = field(default_factory=list)
    evict_bytes: int = 0  # on its device, written before each run that counts; its own clock counts then
    per_call_us: float = 0.0  # as it was calibrated, by the parent's clock

    def calibrate(self, *, cold: bool) -> None:
        """Find the handshake's cost and a batch size; the runs made for it warm everything up, on a device
        for as long as its clock needs."""
        self.child.resume()
        if self.on_device:
            self._warm_up()
        # The least: a handshake that was disturbed would be taken from every sample.
        self.fixed_ns = float(min(self._run(0) for _ in range(7)))
        self._run(1)  # lazily started threads and allocations
        calls = 1
        elapsed = self._least(1)
        while elapsed < limits.BATCH_NS / 8 and calls < 1 << 20:
            calls *= 4
            elapsed = self._least(calls)
        per_call = max(elapsed / calls, 10.0)
        self.per_call_us = per_call / 1e3
        self.single = cold or per_call > limits.LONG_CALL_NS
        # Even, so that both buffers are used equally.
        self.calls = 1 if self.single else 2 * max(1, round(limits.BATCH_NS / per_call / 2))
        self.child.pause()

    def sample(self, before: Flush | None, look: Callable[[], None] | None = None) -> None:
        """One turn. ``before`` makes the caches cold, where the setting says so; ``look`` looks at the device
        while it works, in a run that is not timed."""
        self.child.resume()
        if self.evict_bytes:
            if look is not None:
                self._run(max(2, int(limits.BATCH_NS / 1e3 / self.per_call_us)), look)
            # A packet and its answer take longer than many a kernel. What lies elsewhere than its clock looks
            # is found out where both clocks are held against each other (``clocks``).
            self.once_ns.append(1e3 * float(np.mean(self.each_us(self.evict_bytes, calls=1))))
            self.child.pause()
            return
        if before is not None:
            before(self.child)
        elif not self.single:
            self._run(self.calls if look else max(2, self.calls // 4), look)
        elif self.lead_in or look:
            self._run(1, look)
        self.once_ns.append(self._run(self.calls))
        if not self.single:
            self.twice_ns.append(self._run(2 * self.calls))
        self.child.pause()

    def turn(self) -> Turn | DeviceTurn:
        """Its turn begins."""
        if self.device is not None and self.device.monitor is not None:
            return DeviceTurn(self.device, Turn.start(self.child.pid), self.readings)
        return Turn.start(self.child.pid)

    def clocks(self) -> tuple[float, float]:
        """Microseconds of one batch by the device's clock and by the parent's. Raises ChildFailed where the
        child has no device."""
        per_call_ns = max(self.least_us() * 1e3, 1.0)
        calls = 2 * max(1, round(limits.CLOCKS_BATCH_NS / per_call_ns / 2))
        started = time.perf_counter_ns()
        answer = self.child.ask({"do": "by_its_clock", "calls": calls}, self.timeout_s)
        elapsed_us = (time.perf_counter_ns() - started - self.fixed_ns) / 1e3
        found = answer.get("device_us")
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise ChildFailed(Status.CRASHED, str(answer.get("error", "has no device")))
        return float(found), elapsed_us

    def each_us(self, evict_bytes: int, *, lead_in: bool = False, calls: int = 0) -> list[float]:
        """Microseconds of runs by the device's clock, caches emptied before each: of so many on each buffer,
        or of as many as fit into a while. Raises ChildFailed, also for what the host's clock denies."""
        calls = calls or min(limits.MOST_EACH, max(1, int(limits.EACH_NS / 1e3 / self.per_call_us)))
        command = {"do": "each_by_its_clock", "calls": calls, "evict_bytes": evict_bytes, "lead_in": lead_in}
        started = time.perf_counter_ns()
        try:
            answer = self.child.ask(command, self.timeout_s)
            found = answer.get("us")
            if not _numbers(found, BUFFERS * calls):
                raise ChildFailed(Status.CRASHED, str(answer.get("error", "has no device")))
            elapsed_us = (time.perf_counter_ns() - started) / 1e3
            if min(found) < 0 or sum(found) > elapsed_us:
                said = f"its device's clock says {sum(found):.3g} us of runs that took {elapsed_us:.3g} us"
                raise ChildFailed(Status.CHEATED, said)
        except ChildFailed as failed:
            failed.culprit = self
            raise
        return [max(one, limits.EVENT_STEP_US) for one in found]

    def run_again(self) -> None:
        """A batch that is not counted."""
        self.child.resume()
        self._run(self.calls)
        self.child.pause()

    def times_us(self, chosen: Sequence[int] | None = None) -> list[float]:
        """Microseconds per call of the chosen samples (all)."""
        rounds = range(len(self.once_ns)) if chosen is None else chosen
        once = [self.once_ns[index] for index in rounds]
        if self.evict_bytes:
            return [value / 1e3 for value in once]
        if self.single:
            return [max(value - self.fixed_ns, value / 2) / 1e3 for value in once]
        twice = [self.twice_ns[index] for index in rounds]
        return per_call_us(once, twice, self.calls, self.fixed_ns + limits.FIXED_SLACK_NS)

    def least_us(self) -> float:
        """Microseconds per call of the fastest batch with nothing taken off: no call can take longer than
        this and be counted as faster, whatever the host does."""
        batches = self.twice_ns or self.once_ns
        calls = 2 * self.calls if self.twice_ns else self.calls
        return min(batches) / calls / 1e3

    def clear(self) -> None:
        self.once_ns.clear()
        self.twice_ns.clear()
        self.noise.clear()
        self.readings.clear()

    def _warm_up(self) -> None:
        started, calls = time.perf_counter_ns(), 1
        while time.perf_counter_ns() - started < limits.WARM_UP_NS:
            if self._run(calls) < limits.BATCH_NS:
                calls = min(2 * calls, 1 << 20)

    def _least(self, calls: int) -> float:
        """Of a few batches, without the handshake; of one, where a call is long."""
        first = self._run(calls) - self.fixed_ns
        if first > 10 * limits.LONG_CALL_NS:
            return first
        return min(first, *(self._run(calls) - self.fixed_ns for _ in range(2)))

    def _run(self, calls: int, meanwhile: Callable[[], None] | None = None) -> int:
        try:
            if meanwhile is None:
                return self.child.run_ns(calls, self.timeout_s)
            return self.child.run_ns(calls, self.timeout_s, meanwhile)
        except ChildFailed as failed:
            failed.culprit = self
            raise


def _numbers(found: Any, count: int) -> TypeGuard[list[float]]:
    """Whether a child's answer is so many; it may be anything."""
    return (
        isinstance(found, list)
        and len(found) == count
        and all(isinstance(one, int | float) and math.isfinite(one) for one in found)
    )


class Track:
    """The rounds of one race, the default's among them.

    Who leaves has no samples of later rounds: two runners are compared over the rounds that both ran.
    """

    def __init__(self, default: Runner, runners: Sequence[Runner], flush: Flush | None = None) -> None:
        self.default = default
        self.rounds = 0
        self.crowded = 0  # disturbed rounds after which nobody pressed for the CPUs
        self._flush = flush
        for runner in (default, *runners):
            runner.clear()
        wait_until_quiet(limits.CALM_BEFORE_S)
        self.began = time.perf_counter()

    @property
    def spent_s(self) -> float:
        return time.perf_counter() - self.began

    def round(self, runners: Sequence[Runner]) -> None:
        """One turn of the default and of each, in an order that alternates (ABBA). Raises ChildFailed."""
        turns = [self.default, *(one for one in runners if one is not self.default)]
        for runner in turns if self.rounds % 2 == 0 else reversed(turns):
            turn = runner.turn()
            runner.sample(self._flush, turn.look if isinstance(turn, DeviceTurn) else None)
            runner.noise.append(turn.disturbance())
        self.rounds += 1
        if max(runner.noise[-1] for runner in turns) > limits.NOISY_SHARE:
            self.crowded += wait_until_quiet(limits.CALM_BETWEEN_S, limits.LOOK_BETWEEN_S)

    def noise(self, runner: Runner) -> list[float]:
        """How disturbed each of its rounds was: the worse of its turn and the default's."""
        return shared_noise(self.default, runner)

    def evidence(self, runner: Runner, wanted: int) -> Evidence:
        """Of a runner against the default, over the rounds that it ran."""
        return timing(*times_us(self.default, runner, wanted))


def quiet_rounds(noise: Sequence[float]) -> int:
    """How many rounds were disturbed by little enough."""
    return sum(one <= limits.NOISY_SHARE for one in noise)


def shared_noise(one: Runner, other: Runner) -> list[float]:
    """Of each round of one race that both ran, how disturbed the worse of their turns was."""
    return [max(turns) for turns in zip(one.noise, other.noise, strict=False)]


def times_us(over: Runner, under: Runner, wanted: int) -> tuple[list[float], list[float]]:
    """Microseconds per call of both, over the quiet rounds that both ran (``choose_rounds``)."""
    chosen = choose_rounds(shared_noise(over, under), wanted)
    return over.times_us(chosen), under.times_us(chosen)


@dataclass(frozen=True)
class RaceResult:
    """What came of it: ``timings`` of the runners after the first against the first, in order (of a single
    runner: against itself)."""

    status: Status
    detail: str
    timings: tuple[Evidence, ...]
    rounds: int
    noisy_rounds: int
    track: Track


def race(
    runners: Sequence[Runner],
    effort: Effort,
    flush: Flush | None = None,
    each_round: Callable[[int], None] | None = None,
) -> RaceResult:
    """Time the runners in turns, the first being the default.

    ``each_round(i)`` is called after round ``i`` (the checker looks at outputs of timed calls there). Stops
    early when a single candidate is clearly slower. Raises :class:`ChildFailed` when a runner breaks.
    """
    track = Track(runners[0], runners[1:], flush)
    while True:
        track.round(runners)
        if each_round is not None:
            each_round(track.rounds)
        noise = _worst(track, runners)
        if _finished(track, runners, noise, effort) or _crowds_itself(track, noise, effort):
            return _result(track, runners, noise, effort)


def _worst(track: Track, runners: Sequence[Runner]) -> list[float]:
    """Of each round, over all who ran."""
    return [max(runner.noise[number] for runner in runners) for number in range(track.rounds)]


def _finished(track: Track, runners: Sequence[Runner], noise: Sequence[float], effort: Effort) -> bool:
    quiet = quiet_rounds(noise)
    if track.rounds >= limits.MOST_ROUNDS or track.spent_s > effort.limit_s:
        return True
    if track.rounds >= limits.SLOWER_AFTER and track.spent_s > effort.patience_s:
        return True
    if effort.stop_losers and quiet >= limits.SLOWER_AFTER and len(runners) == 2:
        ratios = _quiet_ratios(runners, noise)
        if _hopeless(ratios):
            return True
        if quiet >= effort.rounds and max(ratios) < limits.CLEARLY_SLOWER:
            return True
        if quiet >= limits.SETTLED_ROUNDS and _settled(ratios):
            return True
    return quiet >= effort.rounds and track.spent_s >= effort.seconds


def _crowds_itself(track: Track, noise: Sequence[float], effort: Effort) -> bool:
    """Hardly a round was quiet, though nobody pressed for the CPUs after them: somebody has more threads than
    there are CPUs, and waiting longer changes nothing (XLA's pool is such a one)."""
    quiet = quiet_rounds(noise)
    enough = len(noise) >= max(limits.SETTLED_ROUNDS, 2 * effort.rounds)
    return (
        enough
        and track.spent_s >= effort.seconds
        and quiet <= len(noise) // limits.QUIET_ONE_IN
        and track.crowded >= int(limits.CALM_AFTER * len(noise))
    )


def _settled(ratios: Sequence[float]) -> bool:
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    # A median's standard error is 1.25 times a mean's; a normal's quartiles lie 1.35 deviations apart.
    return bool(
        limits.DEVIATIONS * 1.25 * (high - low) / 1.35 / len(ratios) ** 0.5 < limits.SETTLED_ERROR * middle
    )


def _hopeless(ratios: Sequence[float]) -> bool:
    """So much slower that more samples are a waste. Only quiet rounds can tell: on a disturbed host a few
    ratios can be anything."""
    return len(ratios) >= limits.SLOWER_AFTER and float(np.median(ratios)) < limits.SLOWER_RATIO


def _quiet_ratios(runners: Sequence[Runner], noise: Sequence[float]) -> list[float]:
    chosen = [index for index, one in enumerate(noise) if one <= limits.NOISY_SHARE]
    if not chosen:
        return []
    pairs = zip(runners[0].times_us(chosen), runners[1].times_us(chosen), strict=True)
    return [default / candidate for default, candidate in pairs]


def choose_rounds(noise: Sequence[float], wanted: int) -> list[int]:
    """The quiet rounds; where they are fewer than ``wanted``, the least disturbed ones (chosen by what the
    scheduler says, never by their times). A candidate that crowds its own threads is never quiet."""
    quiet = [index for index, one in enumerate(noise) if one <= limits.NOISY_SHARE]
    if len(quiet) >= wanted:
        return quiet
    valid = [index for index, one in enumerate(noise) if one < limits.INVALID] or range(len(noise))
    order = sorted(valid, key=lambda index: noise[index])
    return sorted(order[: max(wanted, len(noise) // limits.LEAST_DISTURBED_ONE_IN)])


def _result(track: Track, runners: Sequence[Runner], noise: Sequence[float], effort: Effort) -> RaceResult:
    timings = tuple(track.evidence(runner, effort.rounds) for runner in (runners[1:] or runners))
    status, detail = Status.OK, ""
    clearly = all(one.ratio_high < limits.SLOWER_RATIO for one in timings) and len(noise) >= effort.rounds
    only = effort.stop_losers and len(runners) == 2
    if only and (clearly or _hopeless(_quiet_ratios(runners, noise))):
        status = Status.SLOWER
        detail = f"{1 / timings[0].ratio_to_default:.1f} times slower than the default"
    elif why := too_noisy(noise, timings):
        status, detail = Status.NOISY, why
    noisy = len(noise) - quiet_rounds(noise)
    return RaceResult(status, detail, timings, len(noise), noisy, track)


def too_noisy(
    noise: Sequence[float], timings: Sequence[Evidence], unusable: float = limits.UNUSABLE_INTERVAL
) -> str:
    """Why these samples say nothing; empty where they do. ``unusable``: ratio_high ÷ ratio_low."""
    invalid = sum(one == limits.INVALID for one in noise)
    if invalid and len(noise) - invalid < limits.SLOWER_AFTER:
        return f"the device was slowed down in {invalid} of {len(noise)} rounds"
    noisy = len(noise) - quiet_rounds(noise)
    if noisy <= limits.DISTURBED_SHARE * len(noise):
        return ""
    apart = any(one.ratio_high / one.ratio_low > unusable for one in timings)
    if len(noise) >= limits.SLOWER_AFTER and not apart:
        return ""
    return f"{noisy} of {len(noise)} rounds were disturbed, and they disagree"
