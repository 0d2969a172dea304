"""Two implementations compared from their evidence: "faster by x", or "no significant difference". PURE.

Both were timed in turns with the same default, on different days perhaps, so their ratios compare and their
medians do not. The difference of the ratios' logarithms is the factor between them; each ratio has an error
of its own, known by its 95 % interval, and independent errors add as squares. This is the rule by which the
catalogue chooses (``catalog.choosing.beats``), and the chooser itself is asked who is faster: what it would
not replace is never called faster here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from catalog.choosing import beats
from opatlas.evidence import Ratios
from opatlas.noise import DEVIATIONS, MOST_CONFIDENT

Verdict = Literal["faster", "slower", "same", "incomparable"]


@dataclass(frozen=True, slots=True)
class Taken:
    """What is known of one implementation. ``against`` names the default that it was timed in turns with
    (its route and environment); an empty one was not noted, and goes with any."""

    ratios: Ratios
    samples: int = 0
    against: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The first against the second. ``factor`` above 1: the first is faster so many times; ``low`` and
    ``high`` bound it (95 %). ``confidence`` is that there is a difference at all."""

    verdict: Verdict
    factor: float
    low: float
    high: float
    confidence: float
    samples: tuple[int, int]

    def turned(self) -> Comparison:
        """The second against the first."""
        opposite: dict[Verdict, Verdict] = {"faster": "slower", "slower": "faster"}
        return Comparison(
            opposite.get(self.verdict, self.verdict),
            1 / self.factor,
            1 / self.high,
            1 / self.low,
            self.confidence,
            (self.samples[1], self.samples[0]),
        )

    def sentence(self, first: str, second: str) -> str:
        """In words, whoever is faster named first."""
        if self.verdict == "slower":
            return self.turned().sentence(second, first)
        if self.verdict == "incomparable":
            return f"{first} and {second} were timed against different defaults: they do not compare."
        span = f"{times(self.factor)} ({times(self.low)} – {times(self.high)})"
        counted = f"{self.samples[0]} and {self.samples[1]} samples"
        if self.verdict == "faster":
            said = share(self.confidence)
            return f"{first} is faster than {second} by {span}, {counted}, confidence {said}."
        return f"No significant difference between {first} and {second}: {span}, {counted}."


def compare(first: Taken, second: Taken) -> Comparison:
    """The first against the second.

    factor = ratio₁ ÷ ratio₂; its bounds are exp(ln factor ± √(h₁² + h₂²)) with the half-widths of the two
    intervals in logarithms, on the sides that face each other. The confidence is that of a normal error with
    that half-width (1.96 standard deviations), at most 99.9 %. Less than 2 % is no difference: two runs of
    the same code differ by as much between days.
    """
    samples = (first.samples, second.samples)
    if first.against and second.against and first.against != second.against:
        return Comparison("incomparable", 1.0, 1.0, 1.0, 0.0, samples)
    a, b = first.ratios, second.ratios
    difference = _log(a.ratio) - _log(b.ratio)
    below = math.hypot(_gap(a.low, a.ratio), _gap(b.ratio, b.high))
    above = math.hypot(_gap(a.ratio, a.high), _gap(b.low, b.ratio))
    facing = below if difference > 0 else above
    verdict: Verdict = "faster" if beats(a, b) else "slower" if beats(b, a) else "same"
    return Comparison(
        verdict,
        math.exp(difference),
        math.exp(difference - below),
        math.exp(difference + above),
        _confidence(abs(difference), facing),
        samples,
    )


def times(factor: float) -> str:
    """``1.34×``: three digits, so that 1.004 is not rounded to what it is not."""
    return f"{factor:.3g}×" if factor >= 10 else f"{factor:.2f}×"


def share(part: float) -> str:
    """``97 %``, ``99.9 %``: never a false 100 %."""
    value = 100 * part
    return f"{value:.1f} %" if value > 99 else f"{value:.0f} %"


def _gap(low: float, high: float) -> float:
    return max(0.0, _log(high) - _log(low))


def _confidence(difference: float, half_width: float) -> float:
    """Two-sided, of a normal error; what the margin alone decides keeps the intervals' confidence."""
    if half_width <= 0:
        return MOST_CONFIDENT if difference > 0 else 0.0
    return min(MOST_CONFIDENT, math.erf(difference / half_width * DEVIATIONS / math.sqrt(2)))


def _log(value: float) -> float:
    return math.log(max(value, 1e-12))
