"""A candidate's chances before it is built, learnt from the candidates tried so far. PURE.

A candidate's speed against the default is modelled as normal in ln(default ÷ candidate). Mean, deviation,
failure rate and seconds of a try are learnt from the general to the particular: all tries, then those of the
route, the candidate's label, the kind of operator, the op type, its family (op type and size class), and its
dtype. Each step is the average of its own tries, drawn towards the step above by the weight of a few tries.
So few tries follow the general, many the particular. Constants were fitted to the contest's table of 199
operators (docs/contest.md: ONNX Runtime and max-autotune against the default), each left out in turn; 92 %
are then within ±1.64 deviations of the expectation.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from statistics import NormalDist

from opatlas.identity.operator_types import TYPES
from opatlas.noise import MARGIN

PRIOR_MEAN, PRIOR_DEVIATION = 0.0, 1.2
"""Of ln ratio, before anything was tried: so wide that whatever there is has a real chance."""
PRIOR_FAILS, PRIOR_S = 0.1, 2.0
"""Share that fails, and seconds to build and measure one."""
DRAW = (4.0, 2.0, 2.0, 4.0, 2.0, 2.0, 8.0)  # tries that the step above counts for, from all to the dtype
LEAST_DEVIATION = 0.2
"""Of ln ratio: operators of one family differ by this much, even if those tried looked alike."""
STRANGE, WIDE = 1.0, 2.0
"""On a kind of operator that a candidate was tried on seldom, its chances are so many tries' worth anybody's
guess, with this deviation. Without it, after a dozen operators one in fifteen called hopeless (below 2 %) was
not; with it none."""
GIVEN_TRIES = 3
"""The most that tries shipped with the service count, for a candidate on operators of one family and dtype:
other machines' ratios differ, and a few local tries must outweigh them."""
BOUND = 0.02
"""A candidate with a smaller chance to win is not tried. On 20 operators of the contest's sample, each left
out in turn: at 2 % a tenth of the tries are saved and no winner is lost, at 5 % a fifth, and one operator
lost 39 %."""

_KIND = 3  # the step of the kind of operator
_LEAST_S = 0.05
_FLOPS_PER_BYTE = 8.0  # that take as long as a byte from a near cache
_SIZE_STEP = 2  # doublings in a size class
_NORMAL = NormalDist()
_NUMBERS = re.compile(r"(?<![A-Za-z0-9])\d[\d.×x]*(?:, \d[\d.×x]*)*")


@dataclass(frozen=True, slots=True)
class TryTraits:
    """What a candidate's chances on an operator depend on."""

    route: str
    label: str  # as ``plain_label`` has it
    op_type: str
    family: str  # as ``family_of_try`` has it
    dtype: str


@dataclass(frozen=True, slots=True)
class DoneTry:
    """A tried candidate."""

    about: TryTraits
    log_ratio: float | None  # ln(default ÷ candidate); None: it failed
    seconds: float  # building and measuring


@dataclass(frozen=True, slots=True)
class PastTries:
    """Summed tries of one candidate on similar operators: the form in which a service passes them on."""

    about: TryTraits
    count: int
    worked: int
    ratio: float  # sum of ln ratio over those that worked
    squares: float  # of its square
    seconds: float  # sum over all


@dataclass(frozen=True, slots=True)
class Outlook:
    """The expectation for a candidate."""

    mean: float  # of ln(default ÷ candidate), where it works
    deviation: float
    fails: float  # share
    seconds: float
    tries: float  # of the most particular step that has any


def plain_label(label: str) -> str:
    """A label without sizes and counts, which differ from operator to operator; digits of a name stay."""
    return _NUMBERS.sub("#", label)


def family_of_try(op_type: str, flops: float, bytes_moved: float) -> str:
    """Op type and size class: known before anything is timed."""
    work = max(bytes_moved, flops / _FLOPS_PER_BYTE, 1.0)
    return f"{op_type[:80]}, 2^{_SIZE_STEP * int(math.log2(work) // _SIZE_STEP)} bytes"


def kind_of(op_type: str) -> str:
    """The families of the types that an operator is made of: ``convolution+activation``."""
    names = (TYPES[name].family if name in TYPES else name for name in op_type.split("+"))
    return "+".join(dict.fromkeys(names))


def summed(history: Iterable[DoneTry]) -> list[PastTries]:
    """A history by candidate and kind of operator, in the order of their words."""
    sums: defaultdict[TryTraits, _Sums] = defaultdict(_Sums)
    for one in history:
        sums[one.about].add(one)
    return [
        PastTries(about, round(of.count), round(of.worked), of.ratio, of.squares, of.seconds)
        for about, of in sorted(sums.items(), key=lambda item: astuple(item[0]))
    ]


class Odds:
    """Expectations from a history of tries, and from tries of other services (``given``). ``deviation``: of
    ln ratio, before anything was tried."""

    def __init__(
        self,
        history: Iterable[DoneTry],
        given: Iterable[PastTries] = (),
        deviation: float = PRIOR_DEVIATION,
    ) -> None:
        self._deviation = deviation
        self._sums: defaultdict[tuple[str, ...], _Sums] = defaultdict(_Sums)
        for one in history:
            for key in _steps(one.about):
                self._sums[key].add(one)
        for past in given:
            for key in _steps(past.about):
                self._sums[key].take(past, min(1.0, GIVEN_TRIES / past.count))

    def expect(self, about: TryTraits) -> Outlook:
        """The expectation for a candidate on an operator: at every step the average of its tries, with the
        step above counting as ``DRAW`` tries."""
        mean, variance, fails, seconds = PRIOR_MEAN, self._deviation**2, PRIOR_FAILS, PRIOR_S
        doubt, tries = 0.0, 0.0
        for key, draw in zip(_steps(about), DRAW, strict=True):
            sums = self._sums.get(key)
            if sums is None:
                break  # the steps are nested: below there is nothing either
            if sums.count == tries:
                continue  # the same tries as the step above: they count once
            weight, worked = draw + sums.count, draw + sums.worked
            fails = (sums.count - sums.worked + draw * fails) / weight
            seconds = (sums.seconds + draw * seconds) / weight
            above, mean = mean, (sums.ratio + draw * mean) / worked
            variance = (sums.spread(mean) + draw * (variance + (above - mean) ** 2)) / worked
            doubt = variance / worked
            tries = sums.count
        deviation = max(LEAST_DEVIATION, math.sqrt(variance + doubt))
        return Outlook(mean, deviation, fails, max(_LEAST_S, seconds), tries)

    def chance(self, about: TryTraits, to_beat: float) -> float:
        """The probability that the candidate works and is faster than ``to_beat`` (default ÷ time) by more
        than MARGIN."""
        outlook, known = self.expect(about), self._known(about)
        ahead = outlook.mean - math.log(to_beat * (1 + MARGIN))
        learnt, guessed = _NORMAL.cdf(ahead / outlook.deviation), _NORMAL.cdf(ahead / WIDE)
        return (1 - outlook.fails) * (known * learnt + (1 - known) * guessed)

    def gain(self, about: TryTraits, to_beat: float) -> float:
        """Expected gain in ln ratio over ``to_beat``."""
        outlook = self.expect(about)
        ahead = (outlook.mean - math.log(to_beat)) / outlook.deviation
        gain = outlook.deviation * (_NORMAL.pdf(ahead) + ahead * _NORMAL.cdf(ahead))
        return (1 - outlook.fails) * max(0.0, gain)

    def promise(self, about: TryTraits, to_beat: float) -> float:
        """The expected gain per second of the try: the most promising is built first."""
        return self.gain(about, to_beat) / self.expect(about).seconds

    def has_met(self, route: str) -> bool:
        """Whether any candidate of a route was ever tried."""
        return (route,) in self._sums

    def sure_promise(self, about: TryTraits, to_beat: float) -> float:
        """The same, scaled by how much of it is known rather than guessed."""
        return self._known(about) * self.promise(about, to_beat)

    def _known(self, about: TryTraits) -> float:
        """The share of a candidate's chances that rests on its own tries on the kind of operator."""
        sums = self._sums.get(_steps(about)[_KIND])
        return sums.count / (sums.count + STRANGE) if sums else 0.0


@dataclass(slots=True)
class _Sums:
    """Sums over the tries of one step; ``ratio`` and ``squares`` are of ln ratio, over those that worked."""

    count: float = 0
    worked: float = 0
    ratio: float = 0.0
    squares: float = 0.0
    seconds: float = 0.0

    def take(self, past: PastTries, share: float) -> None:
        """Add this share of tries that were summed up elsewhere."""
        self.count += share * past.count
        self.worked += share * past.worked
        self.ratio += share * past.ratio
        self.squares += share * past.squares
        self.seconds += share * past.seconds

    def add(self, one: DoneTry) -> None:
        self.count += 1
        self.seconds += one.seconds
        if one.log_ratio is not None:
            self.worked += 1
            self.ratio += one.log_ratio
            self.squares += one.log_ratio**2

    def spread(self, mean: float) -> float:
        """Sum of the squared differences from a mean."""
        return max(0.0, self.squares - 2 * mean * self.ratio + self.worked * mean**2)


def _steps(about: TryTraits) -> tuple[tuple[str, ...], ...]:
    """Keys from the general to the particular, each extending the one before."""
    words = (about.route, about.label, kind_of(about.op_type), about.op_type, about.family, about.dtype)
    return tuple(words[:depth] for depth in range(len(words) + 1))
