"""The expected gain of the next slice of tuning, learnt from past slices. PURE.

A slice's gain is a share of the time, modelled as ``level × weight``. The weight falls with every earlier
slice (by a learnt factor) and with the room left above the machine's limits. The level is learnt from the
general to the particular: all slices, then those of the route, the op type, its family (op type and size
class), and this exploration. Each step is the least-squares fit to its own slices, drawn towards the step
above by the weight of a few slices. So few slices follow the general, many the particular.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import StatisticsError, correlation

from opatlas.noise import LEAST_GAIN
from tuning.measure.judging.roofline import CLOCK_HZ, FLOPS_PER_CYCLE, L1_BYTES_PER_CYCLE

PRIOR_GAIN = 0.08  # of a first slice, before anything was ever tuned
PRIOR_DECAY = 0.6  # what is left of a slice's gain for the one after it
DRAW = (4.0, 3.0, 3.0, 2.0, 1.0)  # slices that the step above counts for, from all slices to this exploration
LEAST_US_PER_S = 0.01  # saved time per second of tuning, below which the second is wasted
HONEST_SHARE = 8
"""One in so many hopeless ones is tried all the same, so that a wrong belief can be corrected."""
REACHABLE = 2.0
"""The best known code takes about this many times the roofline's floor, whose peaks no processor reaches
(measured: tuned convolutions reach 400 of the 830 GFLOP/s that it allows two cores)."""

_DECAYS = [0.3 + 0.05 * step for step in range(14)]
_LEAST_ROOM = 0.1


@dataclass(frozen=True, slots=True)
class SliceTraits:
    """What a slice's gain depends on."""

    exploration: int
    route: str
    op_type: str
    family: str
    number: int  # slices that this route had on this exploration before
    room: float = 1.0  # share of the best known time above what the machine could reach


@dataclass(frozen=True, slots=True)
class DoneSlice:
    """A slice that was done."""

    about: SliceTraits
    gained: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """A share of the time, and its source in a few words."""

    gain: float
    why: str


def duration_class(time_us: float) -> str:
    """In words, by the time of one run."""
    limits = ((20, "tiny"), (200, "small"), (2_000, "medium"), (20_000, "large"))
    return next((name for limit, name in limits if time_us < limit), "huge")


def family_of_slice(op_type: str, time_us: float) -> str:
    """The group of slices that are learnt from together."""
    return f"{op_type[:80]}, {duration_class(time_us)}"


def room_of(time_us: float, flops: float, bytes_moved: float, threads: int) -> float:
    """The share of the time above the machine's need; at least a little."""
    per_s = max(1, threads) * CLOCK_HZ
    floor_us = 1e6 * max(flops / (per_s * FLOPS_PER_CYCLE), bytes_moved / (per_s * L1_BYTES_PER_CYCLE))
    return min(1.0, max(_LEAST_ROOM, 1 - REACHABLE * floor_us / max(time_us, 1e-9)))


class Estimator:
    """Expectations from a history of slices."""

    def __init__(self, history: Iterable[DoneSlice]) -> None:
        self.history = tuple(history)
        self.decay = _fitted_decay(self.history)

    def expect(self, about: SliceTraits) -> Expectation:
        level, told = PRIOR_GAIN, "nothing yet"
        chosen: Sequence[DoneSlice] = self.history
        for (name, same), draw in zip(_steps(about), DRAW, strict=True):
            chosen = [past for past in chosen if same(past.about)]
            if chosen:
                level = _level(chosen, self.decay, level, draw)
                told = f"{len(chosen)} slice{'s' * (len(chosen) > 1)} of {name}"
        gain = level * _weight(about, self.decay)
        return Expectation(min(about.room, max(0.0, gain)), f"learnt from {told}")


def worth_of_slice_us(calls: float, best_us: float, gain: float) -> float:
    """Calls × time × expected gain: microseconds that a slice is expected to save."""
    return calls * best_us * gain


def not_worth(calls: float, best_us: float, expected: Expectation, slice_s: float) -> str:
    """Why the next slice is not worth its seconds, in one sentence; empty if it is."""
    saved = worth_of_slice_us(calls, best_us, expected.gain)
    if expected.gain >= LEAST_GAIN and saved >= LEAST_US_PER_S * slice_s:
        return ""
    return (
        f"Tuning it on is expected to save {100 * expected.gain:.1f} % of {best_us:.3g} µs"
        f" × {calls:.3g} calls ({expected.why}): not worth {slice_s:.0f} s."
    )


def against_the_odds(*identities: str) -> bool:
    """Whether it is one of the few, always the same. Each identity ends in hexadecimal digits (an operator's
    key, a candidate's digest)."""
    return sum(int(identity[-6:], 16) for identity in identities) % HONEST_SHARE == 0


def hopeless_but_tried(number: int, identity: str) -> bool:
    """Whether an operator gets a first slice though nothing is expected."""
    return number == 0 and against_the_odds(identity)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How accurate expectations were. Gains and errors are shares of the time."""

    count: int
    mean_expected: float
    mean_gained: float
    mean_absolute_error: float
    rank_correlation: float | None  # Spearman's; None where it says nothing (one slice, or all alike)


def accuracy(pairs: Sequence[tuple[float, float]]) -> Accuracy:
    """Of (expected, gained) pairs; at least one."""
    count = len(pairs)
    expected, gained = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return Accuracy(
        count,
        sum(expected) / count,
        sum(gained) / count,
        sum(abs(e - g) for e, g in pairs) / count,
        spearman(expected, gained),
    )


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The rank correlation, ties at their mean rank; None where either is constant."""
    try:
        return correlation(_ranks(one), _ranks(other))
    except StatisticsError:
        return None


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    starts = [i for i in range(len(order)) if i == 0 or values[order[i]] != values[order[i - 1]]]
    ranks = [0.0] * len(values)
    for start, end in pairwise([*starts, len(order)]):
        for i in order[start:end]:
            ranks[i] = (start + 1 + end) / 2
    return ranks


def _steps(about: SliceTraits) -> tuple[tuple[str, Callable[[SliceTraits], bool]], ...]:
    """From the general to the particular: a name, and whether a past slice belongs."""
    return (
        ("any kind", lambda past: True),
        (about.route, lambda past: past.route == about.route),
        (about.op_type, lambda past: past.op_type == about.op_type),
        (about.family, lambda past: past.family == about.family),
        ("this operator", lambda past: past.exploration == about.exploration),
    )


def _weight(about: SliceTraits, decay: float) -> float:
    return about.room * decay**about.number


def _level(chosen: Sequence[DoneSlice], decay: float, above: float, draw: float) -> float:
    """Least squares of gained = level × weight, with the step above counting as ``draw`` slices."""
    weights = [_weight(past.about, decay) for past in chosen]
    met = sum(weight * past.gained for weight, past in zip(weights, chosen, strict=True))
    return (met + draw * above) / (sum(weight**2 for weight in weights) + draw)


def _fitted_decay(history: Sequence[DoneSlice]) -> float:
    """The decay that explains the history best, drawn towards the prior."""
    scale = sum(past.gained**2 for past in history) / len(history) if history else 0.0
    if scale == 0:
        return PRIOR_DECAY

    def cost(decay: float) -> float:
        level = _level(history, decay, PRIOR_GAIN, 1.0)
        errors = sum((past.gained - level * _weight(past.about, decay)) ** 2 for past in history)
        return errors / scale + ((decay - PRIOR_DECAY) / 0.2) ** 2

    return min(_DECAYS, key=cost)
