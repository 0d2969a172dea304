"""One operator's methods side by side, and every implementation against the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from catalog.models import SHARED, Method
from catalog.selectors.detail import RankedImplementation
from tuning.statistics.comparing import Comparison, Taken, compare


@dataclass(frozen=True)
class Side:
    """A method's best, and how it compares with the fastest of all (None: it is that one)."""

    method: str
    made: RankedImplementation
    against_best: Comparison | None
    sentence: str


@dataclass(frozen=True)
class Pairing:
    """Two methods' bests compared."""

    first: RankedImplementation
    second: RankedImplementation
    comparison: Comparison
    sentence: str


@dataclass(frozen=True)
class SideBySide:
    """The best of each method that has one, the fastest first, and each pair of them."""

    sides: Sequence[Side]
    pairs: Sequence[Pairing]
    absent: Sequence[str]  # methods without a verified implementation


def side_by_side(made: Sequence[RankedImplementation]) -> SideBySide:
    """Of the scope whose best leads; a lookup chooses in the same order."""
    seated = [one for one in made if one.rank is not None and one.measurement is not None]
    scope = seated[0].implementation.scope if seated else SHARED
    bests: dict[str, RankedImplementation] = {}
    for one in seated:
        if one.implementation.scope == scope:
            bests.setdefault(one.implementation.method, one)
    ordered = list(bests.values())
    pairs = [_pairing(first, second) for first, second in combinations(ordered, 2)]
    sides = [Side(one.implementation.method, one, None, "") for one in ordered[:1]]
    sides += [
        Side(pair.second.implementation.method, pair.second, pair.comparison, pair.sentence)
        for pair in pairs[: len(ordered) - 1]  # those of the fastest
    ]
    return SideBySide(sides, pairs, [name for name in Method.values if name not in bests])


def against_best(made: Sequence[RankedImplementation]) -> dict[int, Comparison]:
    """Implementation → how it compares with the fastest of its scope; the fastest itself is left out."""
    leaders = {
        one.implementation.scope: one
        for one in reversed(made)
        if one.rank == 0 and one.measurement is not None
    }
    found = {}
    for one in made:
        leader = leaders.get(one.implementation.scope)
        if one.measurement is not None and leader is not None and leader is not one:
            found[one.implementation.pk] = compare(taken(one), taken(leader))
    return found


def taken(one: RankedImplementation) -> Taken:
    """The evidence of one implementation that was measured."""
    assert one.measurement is not None
    return Taken(one.measurement.ratios, one.samples, one.measurement.against)


def name_of(one: RankedImplementation) -> str:
    """``tvm (compiler)``."""
    return f"{one.implementation.route} ({one.implementation.method})"


def _pairing(first: RankedImplementation, second: RankedImplementation) -> Pairing:
    comparison = compare(taken(first), taken(second))
    names = name_of(first), name_of(second)
    if first.rank == 0 and second.equal:
        # What ran side by side says more than what two ratios to the default do.
        said = "{} and {} are equal: the race that decided did not tell them apart.".format(*names)
    else:
        said = comparison.sentence(*names)
    return Pairing(first, second, comparison, said)
