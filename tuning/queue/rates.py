"""How long slices and stages took lately, for all predictions of time.

A slice leaves its trials (all of one fence) and, if it tuned, a row of its own with its seconds. Only the
latest few thousand are read, so the cost does not grow with the history.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from statistics import median
from typing import NamedTuple

from tuning.conf import conf
from tuning.models import Stage, State, Trial, TuningSlice

LATEST_TRIALS = 3_000
LATEST_TUNINGS = 1_000
ENOUGH = 3
"""Stages of one kind of operator that outweigh those of all kinds."""

_FOR_S = 30.0
PAGES_S = 3.0
"""How old they may be on a page: parts of pages refresh as often."""

_lately: tuple[float, Rates] | None = None

ASSUMED_S = {Stage.FIRST: 5.0, Stage.CONTEST: 20.0}
_NAMES = {Stage.FIRST: "first result", Stage.CONTEST: "contest", Stage.TUNE: "tuning slice"}


@dataclass(frozen=True, slots=True)
class PastSlice:
    """One slice that has ended: ``seconds`` from its first trial's beginning to its last one's end."""

    exploration: int
    stage: int
    round: int
    op_type: str
    worker: str  # who held it: a worker's name, and its process id after a slash
    seconds: float
    ended_at: datetime
    stage_over: bool  # the exploration has left this stage (of that round)


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of one stage, or of one slice of tuning; ``count`` is how many it is the median of."""

    seconds: float
    count: int
    name: str
    op_type: str = ""

    def __str__(self) -> str:
        if not self.count:
            return f"{self.seconds:.0f} s assumed for a {self.name}, since none has ended yet"
        kind = f" of {self.op_type}" if self.op_type else ""
        plural = "s" if self.count > 1 else ""
        return f"{self.seconds:.1f} s, the median of {self.count} past {self.name}{plural}{kind}"


class Rates:
    """Paces from past slices. ``tunings`` are (op type, seconds) of slices of tuning."""

    def __init__(self, slices: Sequence[PastSlice], tunings: Sequence[tuple[str, float]]) -> None:
        self.slices = slices
        self._seconds: dict[tuple[int, str], list[float]] = defaultdict(list)
        stages: dict[tuple[int, int, int, str], float] = defaultdict(float)
        for one in slices:
            if one.stage_over and one.stage != Stage.TUNE:
                stages[one.exploration, one.round, one.stage, one.op_type] += one.seconds
        for (_, _, stage, op_type), seconds in stages.items():
            self._add(stage, op_type, seconds)
        for op_type, seconds in tunings:
            self._add(Stage.TUNE, op_type, seconds)

    def _add(self, stage: int, op_type: str, seconds: float) -> None:
        self._seconds[stage, op_type].append(seconds)
        self._seconds[stage, ""].append(seconds)

    def pace(self, stage: int, op_type: str = "") -> Pace:
        """For this kind of operator if enough of it was explored; else for all kinds; else assumed."""
        name = _NAMES[Stage(stage)]
        for kind, enough in ((op_type, ENOUGH), ("", 1)):
            seconds = self._seconds.get((stage, kind), [])
            if len(seconds) >= enough:
                return Pace(median(seconds), len(seconds), name, kind)
        assumed = ASSUMED_S.get(Stage(stage), conf().tune_slice_s + 5.0)
        return Pace(assumed, 0, name)

    @cached_property
    def _by_worker(self) -> Mapping[str, Sequence[PastSlice]]:
        """Once for all workers: pages ask for each of them."""
        found: dict[str, list[PastSlice]] = defaultdict(list)
        for one in self.slices:
            found[name_of(one.worker)].append(one)
        return found

    def per_hour(self, worker: str) -> float | None:
        """Slices that a worker does in an hour of work, by the mean of its latest; None if it did none."""
        seconds = [max(one.seconds, 0.1) for one in self._by_worker.get(name_of(worker), ())]
        return 3600 * len(seconds) / sum(seconds) if seconds else None

    def ended_since(self, moment: datetime, worker: str = "") -> int:
        """Slices that ended since then, among those read."""
        of = self._by_worker.get(name_of(worker), ()) if worker else self.slices
        return sum(one.ended_at >= moment for one in of)


def lately(most_s: float = _FOR_S) -> Rates:
    """Like :func:`rates`, at most ``most_s`` old, for frequent callers. They are the whole service's, whoever
    looks."""
    global _lately
    if _lately is None or time.monotonic() - _lately[0] > most_s:
        _lately = (time.monotonic(), rates())
    return _lately[1]


def forget() -> None:
    """Empty the cache: for tests that write slices."""
    global _lately
    _lately = None


def name_of(owner: str) -> str:
    """A worker's name from who held a lease: ``w1@host/4211`` was held by ``w1@host``."""
    name, _, process = owner.rpartition("/")
    return name if name and process.isdecimal() else owner


def rates() -> Rates:
    """From the latest slices: two statements."""
    tunings = list(
        TuningSlice.objects.order_by("-pk").values_list(
            "exploration_id", "exploration__operator__op_type", "seconds", "created_at"
        )[:LATEST_TUNINGS]
    )
    return Rates(_latest_slices(tunings), [(op_type, seconds) for _, op_type, seconds, _ in tunings])


class _PastTrial(NamedTuple):
    """What a trial says of its slice, and where its exploration stands now."""

    exploration: int
    fence: int
    stage: int
    round: int
    worker: str
    started_at: datetime | None
    created_at: datetime
    took_s: float
    op_type: str
    state_now: str
    fence_now: int
    stage_now: int
    round_now: int


_OF_TRIALS = (
    *("exploration_id", "fence", "stage", "round", "worker", "started_at", "created_at", "took_s"),
    *("exploration__operator__op_type", "exploration__state", "exploration__fence", "exploration__stage"),
    "exploration__round",
)


def _latest_slices(tunings: Sequence[tuple[int, str, float, datetime]]) -> list[PastSlice]:
    found = list(
        map(_PastTrial._make, Trial.objects.order_by("-pk").values_list(*_OF_TRIALS)[:LATEST_TRIALS])
    )
    groups: dict[tuple[int, int, int], list[_PastTrial]] = defaultdict(list)
    for trial in found:
        groups[trial.exploration, trial.fence, trial.round].append(trial)
    if len(found) == LATEST_TRIALS:  # the oldest may have been cut in two
        groups.popitem()
    by_exploration: dict[int, list[tuple[datetime, float]]] = defaultdict(list)
    for exploration, _, seconds, ended_at in reversed(tunings):
        by_exploration[exploration].append((ended_at, seconds))
    made = []
    for trials in groups.values():
        last = trials[0]
        if last.state_now == State.RUNNING and last.fence_now == last.fence:
            continue  # it has not ended
        made.append(_past_slice(trials, by_exploration[last.exploration]))
    return made


def _past_slice(trials: Sequence[_PastTrial], tunings: list[tuple[datetime, float]]) -> PastSlice:
    last, stage = trials[0], trials[0].stage
    began = min(one.started_at or one.created_at - timedelta(seconds=one.took_s) for one in trials)
    ended_at = max(one.created_at for one in trials)
    seconds = (ended_at - began).total_seconds()
    if stage == Stage.TUNE:  # its search came before its trials: the slice's own row knows
        place = bisect_left(tunings, (ended_at, 0.0))
        seconds = tunings[place][1] if place < len(tunings) else seconds
    over = last.round_now > last.round or last.stage_now > stage
    ended = last.state_now in (State.DONE, State.UNSUPPORTED)
    return PastSlice(
        last.exploration, stage, last.round, last.op_type, last.worker, seconds, ended_at,
        stage_over=over or ended,
    )  # fmt: skip
