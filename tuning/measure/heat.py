"""A heat: many candidates in one line-up, a few rounds each, and more rounds for fewer of them.

After each of ``RUNGS`` rounds whoever has hardly a chance to be faster than the leader is dropped, with the
chance written down. What is left goes into a final (``lineup``): a heat ranks, it decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from itertools import islice

import numpy as np

from opatlas.noise import (
    DROPPED_BELOW,
    HEAT_PATIENCE_S,
    RUNGS,
    SLOWER_AFTER,
    SLOWER_RATIO,
    UNUSABLE_OF_OURS,
)
from tuning.measure.bench import Limits, LiveBench, race_facts
from tuning.measure.outcome import Outcome, Status
from tuning.measure.scrutiny.watch import Watch
from tuning.measure.starting_line import checked, race_on, warmed
from tuning.measure.subject import Subject
from tuning.measure.timing.chances import lead
from tuning.measure.timing.timer import Runner, Track, quiet_rounds, times_us, too_noisy
from tuning.routes.base import BuiltArtifact


def heat(bench: LiveBench, artifacts: Iterable[BuiltArtifact], limits: Limits | None = None) -> list[Outcome]:
    """Check every artifact as soon as it comes (they may still be building), then race all of them with the
    default; an outcome for each, in order.

    ``facts`` says after how many rounds it was dropped, and with what chance to be faster than the leader.
    For our own code only: what somebody submitted is timed alone with the default (``Bench.measure``),
    since its scrutiny needs more rounds than most get here.
    """
    limits = limits or Limits()
    if not bench.default.ok:
        return [bench.no_default() for _ in artifacts]
    outcomes: list[Outcome] = []
    waiting, together = iter(artifacts), bench.together()
    while True:
        with ExitStack() as stack:
            with bench.beside_builds():
                entrants = enumerate(islice(waiting, together))
                subjects, failed = stack.enter_context(checked(bench, entrants, limits))
                waiting = iter(list(waiting))  # nothing is built while somebody is timed
            if not subjects and not failed:
                return outcomes
            with bench.machine_lock():
                failed |= warmed(bench, subjects)
                found = failed | _Heat(bench, subjects).run()
            outcomes += [found[number] for number in sorted(found)]


class _Heat:
    def __init__(self, bench: LiveBench, subjects: dict[int, Subject]) -> None:
        self.bench = bench
        self.subjects = subjects
        self.outcomes: dict[int, Outcome] = {}

    def run(self) -> dict[int, Outcome]:
        broken = race_on(self.bench, self.subjects, self._race)
        return self.outcomes | broken

    def _race(self, default: Subject) -> None:
        racing = self.subjects
        runners = [subject.live_runner for subject in racing.values()]
        track = Track(default.live_runner, runners, self.bench.flush())
        watches = {number: Watch(subject, further=False) for number, subject in racing.items()}
        for rung in RUNGS:
            self._rounds(track, watches, rung)
            last = rung == RUNGS[-1]
            for number, chance in _chances(racing).items():
                # On a disturbed host times can be anything; who crowds itself disturbs only itself.
                dropped = chance < DROPPED_BELOW and quiet_rounds(track.default.noise) >= SLOWER_AFTER
                if dropped or last or len(racing) == 1:
                    self.outcomes[number] = _outcome(track, racing.pop(number), chance, dropped)
            if not racing:
                return

    def _rounds(self, track: Track, watches: Mapping[int, Watch], wanted: int) -> None:
        """Rounds until each has so many quiet ones, or patience ends."""
        runners = [subject.live_runner for subject in self.subjects.values()]
        while track.rounds < 2 * wanted:
            quiet = min(quiet_rounds(track.noise(runner)) for runner in runners)
            if quiet >= wanted or (track.rounds >= wanted and track.spent_s > HEAT_PATIENCE_S):
                return
            track.round(runners)
            for number in self.subjects:
                watches[number].each_round(track.rounds)


def _chances(racing: Mapping[int, Subject]) -> dict[int, float]:
    """Of each, to be as fast as the leader; the least hopeful first, the leader, who is, last."""
    runners = {number: subject.live_runner for number, subject in racing.items()}
    first = next(iter(runners.values()))

    def time_of(runner: Runner) -> float:
        return float(np.median(np.divide(*times_us(runner, first, RUNGS[0]))))

    leader = min(runners, key=lambda number: time_of(runners[number]))
    chances = {
        number: lead(*times_us(runners[leader], runner, RUNGS[0])).chance
        for number, runner in runners.items()
        if number != leader
    }
    return dict(sorted(chances.items(), key=lambda one: one[1])) | {leader: 1.0}


def _outcome(track: Track, subject: Subject, chance: float, dropped: bool) -> Outcome:
    runner = subject.live_runner
    timing = track.evidence(runner, RUNGS[0])
    noise = track.noise(runner)
    facts = race_facts(runner, len(noise), len(noise) - quiet_rounds(noise))
    subject.evidence.facts.update(facts, chance=round(chance, 4), dropped=dropped)
    if timing.ratio_high < SLOWER_RATIO:
        detail = f"{1 / timing.ratio_to_default:.1f} times slower than the default"
        return subject.outcome(Status.SLOWER, detail, timing=timing)
    if dropped:  # however disturbed: its chance knows how its rounds spread
        detail = f"dropped after {len(noise)} rounds: {chance:.2%} to win"
        return subject.outcome(Status.OK, detail, timing=timing)
    if why := too_noisy(noise, [timing], UNUSABLE_OF_OURS):
        return subject.outcome(Status.NOISY, why, timing=timing)
    return subject.outcome(Status.OK, timing=timing)
