"""From samples to a ratio with its interval. PURE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opatlas.evidence import Evidence
from opatlas.noise import BETWEEN_PROCESSES, CONFIDENCE, RESAMPLES

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


def pool(sittings: Sequence[Evidence]) -> Evidence:
    """One timing from several sittings, each in fresh processes.

    A process keeps for its whole life what luck gave it (where its memory lies, which thread got which core);
    PyTorch's own call differs by up to half between two processes. The default counts with the median of its
    processes, so that its luck moves nobody. The candidate's ratio is that of its median process, and the
    interval reaches from its worst process's lower to its best one's upper bound.
    """
    default_us = float(np.median([one.default_us for one in sittings]))
    median_us = float(np.median([one.median_us for one in sittings]))
    scale = [default_us / one.median_us / one.ratio_to_default for one in sittings]
    return Evidence(
        median_us=median_us,
        spread_us=float(np.median([one.spread_us for one in sittings])),
        default_us=default_us,
        ratio_to_default=default_us / median_us,
        ratio_low=min(factor * one.ratio_low for factor, one in zip(scale, sittings, strict=True)),
        ratio_high=max(factor * one.ratio_high for factor, one in zip(scale, sittings, strict=True)),
        samples_us=tuple(sample for one in sittings for sample in one.samples_us),
    )


def timing(default_us: Sequence[float], candidate_us: Sequence[float]) -> Evidence:
    """The evidence of one candidate against the default."""
    ratio, low, high = bootstrap_ratio(default_us, candidate_us)
    low, high = low * (1 - BETWEEN_PROCESSES), high * (1 + BETWEEN_PROCESSES)
    return Evidence(
        median_us=float(np.median(candidate_us)),
        spread_us=half_iqr(candidate_us),
        default_us=float(np.median(default_us)),
        ratio_to_default=ratio,
        ratio_low=low,
        ratio_high=high,
        samples_us=tuple(round(float(value), 4) for value in candidate_us),
    )
