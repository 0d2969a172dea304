"""From samples to a ratio with its interval. PURE."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from opatlas.evidence import Evidence, Ratios
from opatlas.noise import (
    BETWEEN_OCCASIONS,
    BETWEEN_PROCESSES,
    CONFIDENCE,
    DEVIATIONS,
    LEARNT_SHARE,
    LEAST_FREEDOM,
    MOST_OF_ONE,
    RACES_OF_PRIOR,
    RESAMPLES,
    SITTINGS,
    SITTINGS_OF_PRIOR,
    UNKNOWN_BETWEEN,
)

SEED = 20261121


def half_iqr(samples: Sequence[float]) -> float:
    """Half the distance between the quartiles."""
    low, high = np.quantile(np.asarray(samples), [0.25, 0.75])
    return float(high - low) / 2


def bootstrap_ratio(over: Sequence[float], under: Sequence[float]) -> tuple[float, float, float]:
    """Median of the paired ratios over/under with the bounds of its bootstrap interval (``CONFIDENCE``).

    The samples are resampled in pairs: what disturbs the host disturbs both of a pair.
    """
    ratios = np.asarray(over, np.float64) / np.asarray(under, np.float64)
    middle = float(np.median(ratios))
    rng = np.random.default_rng(SEED)
    medians = np.median(ratios[rng.integers(0, len(ratios), (RESAMPLES, len(ratios)))], axis=1)
    low, high = np.quantile(medians, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return middle, min(float(low), middle), max(float(high), middle)


def per_call_us(
    once_ns: Sequence[float], twice_ns: Sequence[float], calls: int, most_fixed_ns: float
) -> list[float]:
    """Microseconds per call of each sample, from batches of ``calls`` and twice as many.

    The slope between the two cancels what a batch costs once (handshake, wake-up). One fixed cost is
    estimated from all samples together (the median of 2·t(k) - t(2k)), bounded by what it can be at most,
    and taken from both batches: the slope of each sample alone would be three times as noisy.
    """
    once, twice = np.asarray(once_ns, np.float64), np.asarray(twice_ns, np.float64)
    fixed = float(np.clip(np.median(2 * once - twice), 0.0, min(most_fixed_ns, float(once.min()) / 2)))
    return [float(value) for value in (once + twice - 2 * fixed) / (3 * calls) / 1e3]


class ProcessSpread:
    """What processes of one recipe differ by on this machine: learnt from its finals. Before the first it is
    assumed to be ``UNKNOWN_BETWEEN``: a first result has one sitting, which tells nothing of it."""

    def __init__(self) -> None:
        self.variance = UNKNOWN_BETWEEN**2

    def learn(self, runners: Sequence[Sequence[Ratios]]) -> None:
        """From the sittings of all who ran in one race, as far as they say anything."""
        freedom = sum(len(sittings) - 1 for sittings in runners)
        if freedom >= LEAST_FREEDOM:
            seen = usual_variance(runners, self.variance) - _within(runners)
            self.variance += LEARNT_SHARE * (max(seen, BETWEEN_PROCESSES**2) - self.variance)


def usual_variance(runners: Sequence[Sequence[Ratios]], between: float = BETWEEN_PROCESSES**2) -> float:
    """Of one sitting's log ratio, from the sittings of all who ran in one race: three of each say little,
    those of a whole final say what processes on this machine differ by. Who differs wildly from itself counts
    for little more than others; all are drawn towards ``between``, the variance between processes.
    """
    squares, freedom = list[float](), 0
    for sittings in runners:
        logs = np.log([one.ratio for one in sittings])
        if len(logs) > 1:  # who sat once says nothing of it
            squares.append(float(((logs - np.median(logs)) ** 2).sum()))
            freedom += len(logs) - 1
    usual = between + _within(runners)
    seen = float(np.minimum(squares, MOST_OF_ONE * np.median(squares)).sum()) if squares else 0.0
    return (seen + RACES_OF_PRIOR * usual) / (freedom + RACES_OF_PRIOR)


def _within(runners: Sequence[Sequence[Ratios]]) -> float:
    """The variance of one sitting's log ratio that its own samples tell."""
    errors = [math.log(one.high / one.low) / 2 / DEVIATIONS for sittings in runners for one in sittings]
    return float(np.mean(np.square(errors or [0.0])))


def pool(sittings: Sequence[Evidence], usual: float) -> Evidence:
    """One timing from several sittings, each in fresh processes; ``usual``: the race's ``usual_variance``.

    A process keeps for its whole life what luck gave it (where its memory lies, which thread got which core);
    PyTorch's own call differs by up to half between two processes. The median sitting counts, so that one
    process's luck moves nobody. The interval says where the ratio of as many further sittings will lie on
    another occasion.
    """
    middle, error, times = _between([one.ratios for one in sittings], usual)
    # What is measured again has an error of its own, and the two occasions differ.
    beyond = (_of_median(SITTINGS) + 2 * BETWEEN_OCCASIONS) / _of_median(len(sittings))
    half = times * error * math.sqrt(1 + beyond)
    return Evidence(
        median_us=float(np.median([one.median_us for one in sittings])),
        spread_us=float(np.median([one.spread_us for one in sittings])),
        default_us=float(np.median([one.default_us for one in sittings])),
        ratio_to_default=math.exp(middle),
        ratio_low=math.exp(middle - half),
        ratio_high=math.exp(middle + half),
        samples_us=tuple(sample for one in sittings for sample in one.samples_us),
    )


def pool_pairs(sittings: Sequence[Ratios], usual: float) -> Ratios:
    """One ratio of two candidates from several sittings of both: where the truth lies. More sittings make the
    interval narrower."""
    middle, error, times = _between(sittings, usual)
    return Ratios(math.exp(middle), math.exp(middle - times * error), math.exp(middle + times * error))


def _between(sittings: Sequence[Ratios], usual: float) -> tuple[float, float, float]:
    """The median log ratio, its standard error, and how many of these make the interval (Student's t: the
    spread is hardly known from a few sittings, so it is drawn towards what is usual in this race).
    """
    logs = [math.log(one.ratio) for one in sittings]
    middle = float(np.median(logs))
    squares = sum((one - middle) ** 2 for one in logs) + SITTINGS_OF_PRIOR * usual
    freedom = len(logs) - 1 + SITTINGS_OF_PRIOR
    return middle, math.sqrt(_of_median(len(logs)) * squares / freedom), _student(freedom)


def _of_median(count: int) -> float:
    """The variance of a median of so many, in that of one."""
    return math.pi / 2 / (count + math.pi / 2 - 1)


def _student(freedom: float) -> float:
    """Deviations that make a 95 % interval (Cornish and Fisher's expansion, good to 1 % from 4 on)."""
    z = DEVIATIONS
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def timing(default_us: Sequence[float], candidate_us: Sequence[float]) -> Evidence:
    """The evidence of one candidate against the default."""
    ratio, low, high = bootstrap_ratio(default_us, candidate_us)
    # Two processes differ for good, which no number of samples of one tells.
    apart = math.exp(math.hypot(math.log(ratio / low), DEVIATIONS * BETWEEN_PROCESSES))
    beyond = math.exp(math.hypot(math.log(high / ratio), DEVIATIONS * BETWEEN_PROCESSES))
    low, high = ratio / apart, ratio * beyond
    return Evidence(
        median_us=float(np.median(candidate_us)),
        spread_us=half_iqr(candidate_us),
        default_us=float(np.median(default_us)),
        ratio_to_default=ratio,
        ratio_low=low,
        ratio_high=high,
        samples_us=tuple(round(float(value), 4) for value in candidate_us),
    )
