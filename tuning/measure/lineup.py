"""Several artifacts of one operator in a single race, each in fresh processes: figures side by side.

The final of a contest, a kernel's evaluation against who is served, and every re-timing of what was
published are such line-ups.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from opatlas.evidence import Evidence, Ratios
from opatlas.noise import (
    MARGIN,
    MOST_SITTINGS,
    SITTINGS,
    UNUSABLE_INTERVAL,
    UNUSABLE_OF_OURS,
)
from tuning.measure.bench import Limits, LiveBench, race_facts
from tuning.measure.outcome import DEFAULT, NO_MATTER, LineUp, Matter, Outcome, Status
from tuning.measure.sandbox.process import ChildFailed
from tuning.measure.scrutiny.after_race import Scrutiny
from tuning.measure.starting_line import checked, failure, race_on, warmed
from tuning.measure.subject import Subject
from tuning.measure.timing.stats import pool, pool_pairs, timing, usual_variance
from tuning.measure.timing.timer import LINE_UP, Effort, RaceResult, race, times_us, too_noisy
from tuning.routes.base import BuiltArtifact


def line_up(
    bench: LiveBench,
    artifacts: Sequence[BuiltArtifact],
    effort: Effort = LINE_UP,
    limits: Limits | None = None,
    *,
    sittings: int = SITTINGS,
    matter: Matter = NO_MATTER,
) -> LineUp:
    """Check every artifact, then time all of them in turns with the default, in fresh processes of each in
    every sitting.

    What fails (is wrong, does not load, breaks on the way) gets its status, and the others run without it.
    While the first two are not told apart, and ``matter`` says that it matters, the race goes on with those
    that may be the fastest.
    """
    limits = limits or Limits()
    if not bench.default.ok:
        return LineUp(tuple(bench.no_default() for _ in artifacts))
    if any(map(bench.is_submitted, artifacts)) and (reason := bench.renew()):
        return LineUp(tuple(Outcome(Status.UNSUPPORTED, reason) for _ in artifacts))
    return _LineUp(bench, artifacts, effort, limits).run(sittings, matter)


class _LineUp:
    def __init__(
        self, bench: LiveBench, artifacts: Sequence[BuiltArtifact], effort: Effort, limits: Limits
    ) -> None:
        self.bench = bench
        self.artifacts = artifacts
        self.effort = effort
        self.limits = limits
        self.sittings = 0
        self.seen: dict[int, list[Outcome]] = {number: [] for number in range(len(artifacts))}
        self.pairs: dict[tuple[int, int], list[Ratios]] = {}
        self.default: list[Evidence] = []  # its own, of each sitting
        self.failed: dict[int, Outcome] = {}
        self.noisy: dict[int, Outcome] = {}  # the last sitting of each that said nothing

    def run(self, sittings: int, matter: Matter) -> LineUp:
        began = time.monotonic()
        self.sittings = sittings
        taking_part = list(self.seen)
        with self.bench.machine_lock():
            for number in range(max(sittings, MOST_SITTINGS)):
                if number >= sittings:
                    taking_part = self._undecided(matter, time.monotonic() - began)
                taking_part = [one for one in taking_part if one not in self.failed]
                if not taking_part:
                    break
                if number:
                    self.bench.drop_default()  # a process keeps its luck: the default's too
                _Sitting(self).run(taking_part)
        self.bench.spread.learn(self._ratios())
        return self._found(time.monotonic() - began)

    def _found(self, spent_s: float = 0.0) -> LineUp:
        usual = usual_variance(self._ratios(), self.bench.spread.variance)
        outcomes = tuple(self.failed.get(number) or self._pooled(number, usual) for number in self.seen)
        # Each two once; a wide prior would call a first result's two equal, whatever their samples say.
        alike = usual_variance([found for (one, other), found in self.pairs.items() if one < other])
        pairs = {pair: pool_pairs(found, alike) for pair, found in self.pairs.items()}
        sittings = max(map(len, self.seen.values()), default=0)
        itself = pool(self.default, usual).as_default if self.default else None
        return LineUp(outcomes, pairs, sittings, spent_s, itself)

    def _ratios(self) -> list[list[Ratios]]:
        """Of everybody who was timed, by sitting."""
        return [ratios for number in self.seen if (ratios := [t.ratios for t in self._timings(number)])]

    def _timings(self, number: int) -> list[Evidence]:
        return [one.timing for one in self.seen[number] if one.timing is not None]

    def _pooled(self, number: int, usual: float) -> Outcome:
        """The last sitting's outcome with the timings of all; NOISY where most of them said nothing."""
        seen = self.seen[number]
        if 2 * len(seen) < self.sittings or not seen:
            nothing = Outcome(Status.NOISY, "it was in no sitting that could be judged")
            return self.noisy.get(number, nothing)
        return replace(
            seen[-1],
            timing=pool(self._timings(number), usual),
            max_error=max(one.max_error or 0.0 for one in seen),
            facts={**seen[-1].facts, "sittings": len(seen)},
        )

    def _undecided(self, matter: Matter, spent_s: float) -> list[int]:
        """Who must run again: the leader and those that it is not told apart from."""
        if spent_s > matter.seconds:
            return []
        found = self._found()
        leader, *others = found.order() or [DEFAULT]
        pairs = {other: pair for other in others if (pair := found.pairs.get((other, leader))) is not None}
        # Where even the bound is a small matter, they are equal enough.
        open_gap = max(MARGIN, matter.least_gap)
        rivals = [n for n, pair in pairs.items() if pair.low <= 1.0 and pair.high - 1.0 > open_gap]
        return [leader, *rivals] if rivals else []


class _Sitting:
    """One sitting: fresh processes of the default and of everybody, checked, and timed in turns."""

    def __init__(self, whole: _LineUp) -> None:
        self.whole = whole
        self.bench = whole.bench
        self.subjects: dict[int, Subject] = {}

    def run(self, numbers: Sequence[int]) -> None:
        artifacts = [(number, self.whole.artifacts[number]) for number in numbers]
        with checked(self.bench, artifacts, self.whole.limits) as (self.subjects, failed):
            self.whole.failed |= failed | warmed(self.bench, self.subjects)
            self.whole.failed |= race_on(self.bench, self.subjects, self._race)

    def _race(self, default: Subject) -> None:
        runners = [subject.live_runner for subject in self.subjects.values()]
        # Our own code is looked at in one sitting: there is nothing that it would know of another.
        scrutinies = {
            number: self.bench.scrutiny(subject, default)
            for number, subject in self.subjects.items()
            if self.bench.is_submitted(subject.artifact) or not self.whole.seen[number]
        }
        strangers = any(self.bench.is_submitted(one.artifact) for one in self.subjects.values())
        for runner in (default.live_runner, *runners):
            runner.lead_in = strangers  # nobody pays for what one of them left in the caches

        def watch(rounds: int) -> None:
            for scrutiny in scrutinies.values():
                scrutiny.watch.each_round(rounds)

        result = race([default.live_runner, *runners], self.whole.effort, self.bench.flush(), watch)
        outcomes = {
            number: self._scrutinised(number, scrutinies.get(number), result, found)
            for number, found in zip(list(self.subjects), result.timings, strict=True)
        }
        for number, outcome in outcomes.items():
            if outcome.ok:
                self.whole.seen[number].append(outcome)
            elif outcome.status is Status.NOISY and not self.bench.is_submitted(self.whole.artifacts[number]):
                self.whole.noisy[number] = outcome  # this sitting says nothing
            else:
                self.whole.failed[number] = outcome
        own = result.track.evidence(default.live_runner, self.whole.effort.rounds)
        self.whole.default.append(own)
        slower = {
            number: raced.ratio_to_default / outcome.ratio if raced.is_sound and outcome.ratio else 1.0
            for (number, outcome), raced in zip(outcomes.items(), result.timings, strict=True)
            if outcome.ok
        }
        self._pair(slower, default)

    def _scrutinised(
        self, number: int, scrutiny: Scrutiny | None, result: RaceResult, found: Evidence
    ) -> Outcome:
        subject = self.subjects[number]
        subject.evidence.facts.update(race_facts(subject.live_runner, result.rounds, result.noisy_rounds))
        unusable = UNUSABLE_INTERVAL if self.bench.is_submitted(subject.artifact) else UNUSABLE_OF_OURS
        detail = too_noisy(result.track.noise(subject.live_runner), [found], unusable)
        status = Status.NOISY if detail else Status.OK
        try:
            if scrutiny is not None:
                verdict, doubt, found = self.bench.scrutinised(scrutiny, found)
                if verdict is Status.NOISY:
                    status, detail = verdict, doubt
        except ChildFailed as failed:
            if failed.culprit is not None and failed.culprit is not subject.runner:
                raise
            return failure(subject, failed)
        return subject.outcome(status, detail, timing=found)

    def _pair(self, slower: Mapping[int, float], default: Subject) -> None:
        """The ratios of every two that were right, over the rounds that both ran. ``slower``: so many times
        as slow as in these rounds each counts, after its scrutiny."""
        runners = {number: self.subjects[number].live_runner for number in slower}
        runners[DEFAULT] = default.live_runner
        for one, other in combinations(runners, 2):
            raced = timing(*times_us(runners[one], runners[other], self.whole.effort.rounds))
            found = raced.with_ratio_times(slower.get(one, 1.0) / slower.get(other, 1.0)).ratios
            self.whole.pairs.setdefault((one, other), []).append(found)
            turned = Ratios(1 / found.ratio, 1 / found.high, 1 / found.low)
            self.whole.pairs.setdefault((other, one), []).append(turned)
