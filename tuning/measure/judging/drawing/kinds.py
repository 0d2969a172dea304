"""Kinds of values that a row of an input may have: each as jobs have it, and each with who is wrong on it.

A *row* is what an operator folds, moves or weighs together: the last axis of a softmax, the columns of a
product's first matrix, one map of an image. Rows of one input are independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np


@dataclass(frozen=True)
class Rows:
    """Rows to be drawn. ``inner``: the shape of each. ``reach``: by how many powers of two sizes may differ.
    ``calm``: means stay within a few deviations, since a variance in one pass loses them. ``narrow``: the
    values end in a type with little range, or in a chain of operators."""

    count: int
    inner: tuple[int, ...]
    rng: np.random.Generator
    wide: type[np.floating] = np.float32
    reach: int = 20
    calm: bool = False
    narrow: bool = False

    @property
    def length(self) -> int:
        return max(1, prod(self.inner))

    @property
    def shape(self) -> tuple[int, int]:
        return self.count, self.length

    def normal(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape or self.shape, self.wide)

    def uniform(self, *shape: int) -> np.ndarray:
        """From 0 to 1."""
        return self.rng.random(shape or self.shape, self.wide)

    def some(self, share: float) -> np.ndarray:
        """Places: each with this chance, and one of every row."""
        chosen = self.rng.random(self.shape, np.float32) < share
        chosen[np.arange(self.count), self.rng.integers(0, self.length, self.count)] = True
        return chosen

    def powers(self, low: int, high: int, *shape: int) -> np.ndarray:
        """Powers of two, evenly over these exponents."""
        return np.exp2(self.rng.integers(low, high + 1, shape or self.shape)).astype(self.wide)

    def signs(self, *shape: int) -> np.ndarray:
        return self.rng.integers(0, 2, shape or self.shape, np.int8).astype(self.wide) * 2 - 1


Make = Callable[[Rows], np.ndarray]


@dataclass(frozen=True)
class ValueKind:
    """``jobs``: where jobs have such values. ``wrong``: who is wrong on them and on nothing else."""

    name: str
    make: Make
    jobs: str
    wrong: str


def _relu(rows: Rows) -> np.ndarray:
    return np.maximum(rows.normal(), 0)


def _negative(rows: Rows) -> np.ndarray:
    """Rows of them around one, and far below."""
    made = -np.abs(rows.normal()) - rows.wide(2.0**-6)
    far = rows.powers(0, rows.reach, rows.count, 1) * (rows.uniform(rows.count, 1) < 0.5)
    return made * np.maximum(far, 1)


def _sigmoid(rows: Rows) -> np.ndarray:
    return 1 / (1 + np.exp(-2 * rows.normal()))


def _tanh(rows: Rows) -> np.ndarray:
    made: np.ndarray = 3 * rows.normal()
    return np.where(np.abs(made) > 3, np.sign(made), np.tanh(made))


def _gelu(rows: Rows) -> np.ndarray:
    made: np.ndarray = 2 * rows.normal()
    return made / (1 + np.exp(rows.wide(-1.702) * made))


def _softmax(rows: Rows) -> np.ndarray:
    powers = np.exp(2 * rows.normal())
    return powers / powers.sum(-1, keepdims=True)


def _sparse(rows: Rows) -> np.ndarray:
    """From a few zeros to almost nothing else, of either sign."""
    made, share = rows.normal(), rows.uniform(rows.count, 1)
    made[rows.rng.random(rows.shape, np.float32) < 0.3 + 0.69 * share] *= 0
    return made


def _alone(rows: Rows) -> np.ndarray:
    made = np.zeros(rows.shape, rows.wide)
    places = rows.rng.integers(0, rows.length, rows.count)
    made[np.arange(rows.count), places] = rows.normal(rows.count) + rows.signs(rows.count)
    return made


def _magnitudes(rows: Rows) -> np.ndarray:
    reach = 2 if rows.narrow else 8
    return rows.normal() * rows.powers(-reach, reach)


def _outliers(rows: Rows) -> np.ndarray:
    made = rows.normal()
    places = rows.some(1 / 64)
    made[places] *= rows.wide(8 if rows.narrow else 64)
    return made


def _columns(rows: Rows) -> np.ndarray:
    """The same places of every row are large, as a transformer's channels are."""
    made = rows.normal()
    few = rows.rng.integers(0, rows.length, max(1, rows.length // 100))
    made[:, few] *= rows.wide(4 if rows.narrow else 48)
    return made


def _heavy_tailed(rows: Rows) -> np.ndarray:
    """Laplace's, as trained layers' weights are."""
    return (rows.rng.standard_exponential(rows.shape, rows.wide) * rows.signs()) * rows.wide(0.7)


def _sizes(rows: Rows) -> np.ndarray:
    return rows.normal() * rows.powers(-rows.reach, rows.reach, rows.count, 1)


def sizes_along(rows: Rows) -> np.ndarray:
    """Of each place in a row: along one axis, sizes change by powers of two, in steps of some places."""
    axes = [axis for axis, extent in enumerate(rows.inner) if extent > 1]
    if not axes:
        return np.ones(rows.length, rows.wide)
    axis = int(rows.rng.choice(axes))
    extent, after = rows.inner[axis], prod(rows.inner[axis + 1 :])
    step = int(rows.rng.integers(1, max(2, extent // 3)))
    exponents = rows.rng.integers(-rows.reach, rows.reach + 1, -(-extent // step) + 1)
    along = np.exp2(np.repeat(exponents, step)[int(rows.rng.integers(0, step)) :][:extent])
    return along.astype(rows.wide)[np.arange(rows.length) // after % extent]


def _places(rows: Rows) -> np.ndarray:
    return rows.normal() * (sizes_along(rows) if rows.length > 1 else rows.powers(-rows.reach, rows.reach))


def _shifted(rows: Rows) -> np.ndarray:
    most = 1 if rows.calm else 2 if rows.narrow else 8
    centres = rows.signs(rows.count, 1) * rows.powers(0, most, rows.count, 1)
    return centres + rows.normal() * (rows.wide(0.25) if rows.calm else rows.wide(0.0625))


_DYADIC = np.array([0.5, 0.75, 1.0, 1.5, 2.0, 3.0])


def _equal(rows: Rows) -> np.ndarray:
    """Of few bits: the sums of them are exact, in whatever order. A calm row's squares are far below what
    norms add to a variance of nothing."""
    kept = _DYADIC / 16 if rows.calm else _DYADIC
    values = rows.rng.choice(kept, (rows.count, 1)).astype(rows.wide) * rows.signs(rows.count, 1)
    return np.repeat(values, rows.length, 1)


def _few(rows: Rows) -> np.ndarray:
    return np.round(rows.normal() * 2) / 2


def _sorted(rows: Rows) -> np.ndarray:
    """Of one sign: sums of many negative ones first lose more than their results have room for."""
    made = np.sort(np.abs(rows.normal()), -1)
    return made if rows.rng.integers(0, 2) else made[:, ::-1]


def _periodic(rows: Rows) -> np.ndarray:
    """Some numbers again and again, or one with turning signs; of few bits: roundings come again, too."""
    period = int(rows.rng.choice([2, 3, 4, 8, 16]))
    made = np.round(rows.normal(rows.count, min(period, rows.length)) * 8) / 8
    if period == 2:
        made = np.stack([made[:, 0], -made[:, 0]], -1)
    return np.tile(made, (1, -(-rows.length // made.shape[1])))[:, : rows.length]


def _smooth(rows: Rows) -> np.ndarray:
    """Neighbours alike: a wave along the row, and a little noise. Of one sign, as what is sorted."""
    phases = rows.uniform(rows.count, 1) * 6 + np.arange(rows.length, dtype=rows.wide) / 37
    return np.sin(phases) + 1 + np.abs(rows.normal()) * rows.wide(2.0**-6)


def _pixels(rows: Rows) -> np.ndarray:
    """From 0 to 255; where that is much, to 1."""
    whole = rows.rng.integers(0, 256, rows.shape, np.uint8).astype(rows.wide)
    return whole / 255 if rows.narrow or rows.calm or rows.reach < 8 else whole


def _tiny(rows: Rows) -> np.ndarray:
    return rows.normal() * rows.powers(-3 * min(rows.reach, 32), -min(rows.reach, 32), rows.count, 1)


def _masked(rows: Rows) -> np.ndarray:
    """Minus infinity at some places of a row, never at all of them; the rest of it from one place on."""
    made: np.ndarray = rows.normal() * 2
    shares = rows.uniform(rows.count, 1)
    hidden = rows.rng.random(rows.shape, np.float32) < shares * 0.9
    ends = rows.rng.integers(1, rows.length + 1, (rows.count, 1))
    causal = np.arange(rows.length) >= ends
    hidden = np.where(rows.rng.integers(0, 2, (rows.count, 1), np.uint8) > 0, causal, hidden)
    hidden[:, 0] = False
    made[hidden] = -np.inf
    return made


def _infinite(rows: Rows) -> np.ndarray:
    """Infinities of both signs among others, seldom."""
    made = rows.normal()
    places = rows.some(1 / 128)
    made[places] = np.inf * rows.signs(int(np.count_nonzero(places)))
    if rows.length > 1:
        made[:, :: max(2, rows.length // 3)] = 0.5  # a row of nothing else has no largest that all agree on
    return made


def _near_one(rows: Rows) -> np.ndarray:
    return 1 + (rows.uniform() - rows.wide(0.5)) / 10


def _turning(rows: Rows) -> np.ndarray:
    return _near_one(rows) * rows.signs()


def _with_a_zero(rows: Rows) -> np.ndarray:
    made = _turning(rows)
    made[np.arange(rows.count), rows.rng.integers(0, rows.length, rows.count)] = 0
    return made


def _doubling(rows: Rows) -> np.ndarray:
    """Ones, and a few powers of two."""
    made = rows.signs()
    count = min(16, rows.length)
    places = rows.rng.integers(0, rows.length, (rows.count, count))
    np.put_along_axis(made, places, rows.signs(*places.shape) * rows.powers(-3, 3, *places.shape), 1)
    return made


def _cancelling(rows: Rows) -> np.ndarray:
    """Of any size that leaves a product of some of them within the type, too; that of all is near one."""
    reach = min(3.0, (8 if rows.narrow else 48) / rows.length**0.5)
    exponents = (rows.uniform() * 2 - 1) * rows.wide(reach)
    exponents -= exponents.mean(-1, keepdims=True)
    return np.exp2(exponents) * rows.signs()


KINDS: dict[str, ValueKind] = {
    kind.name: kind
    for kind in (
        ValueKind("normal", Rows.normal, "a normalised layer's output", "who computes nothing"),
        ValueKind("behind a Relu", _relu, "activations: none negative, half zero",
             "who takes signs for granted, or a zero for the end of a row"),
        ValueKind("negative", _negative, "logits, log-probabilities", "who begins a maximum at zero"),
        ValueKind("behind a Sigmoid", _sigmoid, "gates, probabilities", "who expects sums to cancel"),
        ValueKind("behind a Tanh", _tanh, "recurrent states: many are exactly ±1",
                  "who breaks ties his own way"),
        ValueKind("behind a Gelu", _gelu, "activations: the negative ones are small",
             "who leaves small negatives out"),
        ValueKind("behind a Softmax", _softmax, "attention weights, that sum to one",
             "who leaves out what is small beside one"),
        ValueKind("sparse", _sparse, "pruned weights, padding; from a third to nearly all is zero",
             "who skips what begins with zeros"),
        ValueKind("one of a row", _alone, "one-hot rows, one spike", "who looks at samples"),
        ValueKind("magnitudes", _magnitudes, "unscaled features", "who keeps few exponents"),
        ValueKind("outliers", _outliers, "one weight in 64 is large", "who clips, or has a fixed scale"),
        ValueKind("large channels", _columns, "a transformer's outlier channels",
                  "who has one scale for a row"),
        ValueKind("heavy-tailed", _heavy_tailed, "trained layers' weights", "who clips at some deviations"),
        ValueKind("sizes of rows", _sizes, "rows that differ by powers of two",
             "who has one scale for the tensor"),
        ValueKind("sizes of places", _places, "parts of an image, of a row, that differ by powers of two",
             "who has one scale for a row or a map"),
        ValueKind("far from zero", _shifted, "features with a mean", "who subtracts nearly equal numbers"),
        ValueKind("equal", _equal, "biases, padding, blank images", "who takes the last of equals"),
        ValueKind("few values", _few, "counts, labels, quantised numbers", "who breaks ties his own way"),
        ValueKind("sorted", _sorted, "positions, times", "who is right in one order only"),
        ValueKind("periodic", _periodic, "positional encodings, signs that turn",
                  "who samples every other place"),
        ValueKind("smooth", _smooth, "audio, images: neighbours alike",
                  "who interpolates what he has not read"),
        ValueKind("pixels", _pixels, "images, 0 to 255", "who expects values around zero"),
        ValueKind("tiny", _tiny, "what has died out: 2^-60 and so", "who takes small for zero"),
        ValueKind("masked", _masked, "minus infinity where a mask hides", "who multiplies infinities"),
        ValueKind("infinite", _infinite, "what has overflowed before",
             "who begins a maximum at the largest number"),
        ValueKind("near one", _near_one, "factors", "who computes nothing"),
        ValueKind("turning signs", _turning, "factors of both signs", "who goes by logarithms"),
        ValueKind("with a zero", _with_a_zero, "factors, one of them zero", "who goes by logarithms"),
        ValueKind("powers of two", _doubling, "factors that are not near one",
                  "who takes a series around one"),
        ValueKind("sizes that cancel", _cancelling, "factors from 1/8 to 8, whose product is near one",
                  "who adds few bits of logarithms"),
    )
}  # fmt: skip
"""By name."""

ELEMENTS, OPERANDS, WHOLE, TRUTHS, PLACES, STEPS = (
    "elements", "operands", "whole numbers", "truth values", "places of an axis", "steps"
)  # fmt: skip
BESIDE: dict[str, tuple[str, str]] = {
    ELEMENTS: (
        "each element from a stratum of its own: where a function does something, all exponents, denormal "
        "numbers, zero of both signs, its range's ends, infinities and NaN where libraries agree",
        "who has a function on a part of its domain",
    ),
    OPERANDS: (
        "equal and opposite ones; negative bases under whole exponents",
        "who takes them for unlike, or goes by sizes",
    ),
    WHOLE: (
        "of all that the operator has room for, small ones, its ends, of all lengths in bits, equal, sorted",
        "who computes in a smaller type",
    ),
    TRUTHS: ("half, few, or nearly all true", "who takes one for all"),
    PLACES: ("random, in order, one again and again, an axis's ends, from its end", "who copies ahead"),
    STEPS: (
        "of hundredths, from 2^-20 to 2^-10, and from 1/8 to 8",
        "who has a series, or a fixed point, for usual ones",
    ),
}
"""What else is drawn: as what, and who is wrong on it."""
