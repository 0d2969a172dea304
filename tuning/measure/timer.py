"""Timing from outside: the parent's clock, batches of k and 2k calls, candidates in turns with the default.

Whoever is not on turn is stopped (SIGSTOP): worker threads of OpenMP, ONNX Runtime and OpenBLAS spin for
milliseconds after a call, and would take the other's cores. Each turn starts with untimed runs that wake
the threads and warm the caches (unless the setting wants them cold).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tuning.measure.outcome import Status, Timing
from tuning.measure.process import Child, ChildFailed
from tuning.measure.quiet import Watch, wait_until_quiet
from tuning.measure.stats import per_call_us, timing

BATCH_NS = 3e6
LONG_CALL_NS = 4e6
"""Above this one call is a batch, and the handshake (tens of microseconds) is below 1 % of it."""
FIXED_SLACK_NS = 30e3
SLOWER_RATIO = 1 / 3
SLOWER_AFTER = 3
MOST_ROUNDS = 200
UNUSABLE_INTERVAL = 1.5
"""ratio_high ÷ ratio_low above which samples of a noisy host say nothing."""


@dataclass(frozen=True)
class Effort:
    """How long to sample: until ``seconds`` are spent, with at least ``rounds`` quiet rounds."""

    seconds: float
    rounds: int
    stop_losers: bool


CONTEST = Effort(seconds=0.35, rounds=5, stop_losers=True)
CONFIRM = Effort(seconds=1.6, rounds=12, stop_losers=False)
DEFAULT_ALONE = Effort(seconds=0.08, rounds=5, stop_losers=False)


@dataclass
class Runner:
    """One process on the track: how many calls make a batch, and its raw samples."""

    child: Child
    timeout_s: float
    calls: int = 1
    fixed_ns: float = 0.0
    single: bool = False  # one call is a batch: no 2k batch is run
    once_ns: list[float] = field(default_factory=list)
    twice_ns: list[float] = field(default_factory=list)

    def calibrate(self, *, cold: bool) -> None:
        """Find the handshake's cost and a batch size; the runs made for it warm everything up."""
        self.child.resume()
        self.fixed_ns = float(np.median([self._run(0) for _ in range(7)]))
        self._run(1)  # lazily started threads and allocations
        elapsed = self._run(1) - self.fixed_ns
        calls = 1
        while elapsed < BATCH_NS / 8 and calls < 1 << 20:
            calls *= 4
            elapsed = self._run(calls) - self.fixed_ns
        per_call = max(elapsed / calls, 10.0)
        self.single = cold or per_call > LONG_CALL_NS
        # Even, so that both buffers are used equally.
        self.calls = 1 if self.single else 2 * max(1, round(BATCH_NS / per_call / 2))
        self.child.pause()

    def sample(self, before: Callable[[], None] | None) -> None:
        """One turn. ``before`` makes the caches cold, where the setting says so."""
        self.child.resume()
        if before is not None:
            before()
        elif not self.single:
            self._run(max(2, self.calls // 4))
        self.once_ns.append(self._run(self.calls))
        if not self.single:
            self.twice_ns.append(self._run(2 * self.calls))
        self.child.pause()

    def times_us(self, chosen: Sequence[int] | None = None) -> list[float]:
        """Microseconds per call of the chosen samples (all)."""
        rounds = range(len(self.once_ns)) if chosen is None else chosen
        once = [self.once_ns[index] for index in rounds]
        if self.single:
            return [max(value - self.fixed_ns, 1.0) / 1e3 for value in once]
        twice = [self.twice_ns[index] for index in rounds]
        return per_call_us(once, twice, self.calls, self.fixed_ns + FIXED_SLACK_NS)

    def clear(self) -> None:
        self.once_ns.clear()
        self.twice_ns.clear()

    def _run(self, calls: int) -> int:
        try:
            return self.child.run_ns(calls, self.timeout_s)
        except ChildFailed as failed:
            failed.culprit = self
            raise


@dataclass(frozen=True)
class Race:
    """What came of it: ``timings`` of the runners after the first against the first, in order (of a single
    runner: against itself)."""

    status: Status
    detail: str
    timings: tuple[Timing, ...]
    rounds: int
    noisy_rounds: int


def race(
    runners: Sequence[Runner],
    effort: Effort,
    flush: Callable[[], None] | None = None,
    each_round: Callable[[int], None] | None = None,
) -> Race:
    """Time the runners in turns, the first being the default, in an order that alternates (ABBA).

    ``each_round(i)`` is called after round ``i`` (the checker looks at outputs of timed calls there). Stops
    early when a single candidate is clearly slower. Raises :class:`ChildFailed` when a runner breaks.
    """
    for runner in runners:
        runner.clear()
    wait_until_quiet(1.0)
    noisy: list[bool] = []
    began = time.perf_counter()
    while True:
        watch = Watch.start()
        for runner in runners if len(noisy) % 2 == 0 else list(reversed(runners)):
            runner.sample(flush)
        noisy.append(watch.noisy())
        if each_round is not None:
            each_round(len(noisy))
        finished = _finished(runners, noisy, effort, time.perf_counter() - began)
        if finished:
            break
        if noisy[-1]:
            wait_until_quiet(0.1)
    return _result(runners, noisy, effort)


def _finished(runners: Sequence[Runner], noisy: Sequence[bool], effort: Effort, spent_s: float) -> bool:
    rounds, quiet = len(noisy), len(noisy) - sum(noisy)
    if rounds >= MOST_ROUNDS or (rounds >= 3 and spent_s > 4 * effort.seconds):
        return True
    if effort.stop_losers and rounds >= SLOWER_AFTER and len(runners) == 2:
        ratios = np.array(runners[0].times_us()) / np.array(runners[1].times_us())
        if np.median(ratios) < SLOWER_RATIO or (rounds >= effort.rounds and np.max(ratios) < 0.8):
            return True
    return quiet >= effort.rounds and spent_s >= effort.seconds


def _result(runners: Sequence[Runner], noisy: Sequence[bool], effort: Effort) -> Race:
    chosen = [index for index, one in enumerate(noisy) if not one]
    # A host that was never quiet, or a candidate that crowds its own threads: all rounds, then.
    if len(chosen) < min(effort.rounds, SLOWER_AFTER):
        chosen = list(range(len(noisy)))
    default_us = runners[0].times_us(chosen)
    timings = tuple(timing(default_us, runner.times_us(chosen)) for runner in (runners[1:] or runners))
    status, detail = Status.OK, ""
    for one in timings:
        if effort.stop_losers and one.ratio_to_default < SLOWER_RATIO:
            status = Status.SLOWER
            detail = f"{1 / one.ratio_to_default:.1f} times slower than the default"
        elif sum(noisy) > len(noisy) / 2 and one.ratio_high / one.ratio_low > UNUSABLE_INTERVAL:
            status = Status.NOISY
            detail = f"{sum(noisy)} of {len(noisy)} rounds were disturbed and disagree"
    return Race(status, detail, timings, len(noisy), sum(noisy))


__all__ = ["CONFIRM", "CONTEST", "DEFAULT_ALONE", "ChildFailed", "Effort", "Race", "Runner", "race"]
