"""The price of a hit, from the price, the hit, and the month so far. PURE.

All amounts are integers in millionths of the currency. Only time saved is rounded: half a millionth or more
becomes one (round half up), decided exactly on fractions. A price that sells withheld hits counts at least
one call, and at least a millionth if time is saved, since callers report their own calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

MOST_MICROS = 10**15
"""The most for one hit (a thousand million units): sums stay within 64 bits whatever a caller claims to
call."""

MOST_USES = 10**9
"""The most uses agreed on, or reported, at once."""

_US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class PriceTier:
    """Prices from the ``from_hit``-th hit of a month on; the first is 1."""

    from_hit: int
    per_hit_micros: int
    per_saved_second_micros: int = 0


@dataclass(frozen=True, slots=True)
class Price:
    """Tiers by rising ``from_hit``, the first from 1; caps of a calendar month (UTC), None: none. ``sells``:
    what it prices is withheld until it is paid."""

    tiers: tuple[PriceTier, ...]
    cap_month_micros: int | None = None
    cap_operator_month_micros: int | None = None
    sells: bool = False

    def tier(self, hit: int) -> PriceTier:
        """The tier of a month's ``hit``-th hit."""
        return next(tier for tier in reversed(self.tiers) if tier.from_hit <= hit)

    def sells_at(self, hit: int) -> bool:
        """Whether paying for the ``hit``-th hit of a month buys what it serves: it has a price a hit, not
        only one for the time that its caller says it saves."""
        return self.tier(hit).per_hit_micros > 0


@dataclass(frozen=True, slots=True)
class SoFar:
    """What a rule has charged this month, before this hit."""

    hits: int = 0
    micros: int = 0
    operator_micros: int = 0


@dataclass(frozen=True, slots=True)
class Quote:
    """``list_micros``: by the tier alone; ``micros``: after caps."""

    list_micros: int
    micros: int


def quote(price: Price, before: SoFar, calls: float, default_us: float, served_us: float) -> Quote:
    """The price of one more hit. ``calls`` × (``default_us`` - ``served_us``) is the time it saves; a hit
    that saves nothing costs no time."""
    tier = price.tier(before.hits + 1)
    listed = list_price(tier, max(calls, 1.0) if price.sells else calls, default_us, served_us)
    if price.sells and tier.per_saved_second_micros and default_us > served_us:
        listed = max(listed, 1)
    micros = listed
    if price.cap_month_micros is not None:
        micros = min(micros, max(0, price.cap_month_micros - before.micros))
    if price.cap_operator_month_micros is not None:
        micros = min(micros, max(0, price.cap_operator_month_micros - before.operator_micros))
    return Quote(listed, micros)


@dataclass(frozen=True, slots=True)
class UsesQuote:
    """The cost of several uses, and how many are covered."""

    uses: int = 0
    list_micros: int = 0
    micros: int = 0


def quote_run(
    price: Price, before: SoFar, calls: float, default_us: float, served_us: float
) -> tuple[Quote, int]:
    """The price of one more hit, and how many in a row have it: to the end of its tier, or of a cap."""
    one = quote(price, before, calls, default_us, served_us)
    later = [tier.from_hit - 1 - before.hits for tier in price.tiers if tier.from_hit > before.hits + 1]
    run = min([MOST_USES, *later])
    if 0 < one.micros == one.list_micros:
        caps = (
            (price.cap_month_micros, before.micros),
            (price.cap_operator_month_micros, before.operator_micros),
        )
        run = min([run, *((cap - spent) // one.micros for cap, spent in caps if cap is not None)])
    elif one.micros:
        run = 1  # what a cap leaves of it; after it nothing
    return one, run


def quote_uses(
    price: Price,
    before: SoFar,
    uses: int,
    room_micros: int,
    calls: float,
    default_us: float,
    served_us: float,
) -> UsesQuote:
    """The price of ``uses`` further hits, one after the other, each as in :func:`quote`. The first that
    exceeds what is left of ``room_micros``, and all after it, are left out."""
    found = UsesQuote()
    while found.uses < uses:
        one, run = quote_run(price, before, calls, default_us, served_us)
        run = min(run, uses - found.uses)
        if one.micros:
            run = min(run, (room_micros - found.micros) // one.micros)
        if run <= 0:
            break
        micros = run * one.micros
        before = SoFar(before.hits + run, before.micros + micros, before.operator_micros + micros)
        listed = min(found.list_micros + run * one.list_micros, MOST_MICROS)
        found = UsesQuote(found.uses + run, listed, found.micros + micros)
    return found


def list_price(tier: PriceTier, calls: float, default_us: float, served_us: float) -> int:
    """Before caps: so much a hit, and so much for each second that it saves."""
    if not tier.per_saved_second_micros:
        return min(tier.per_hit_micros, MOST_MICROS)
    saved_us = Fraction(calls) * (Fraction(default_us) - Fraction(served_us))
    exact = saved_us * tier.per_saved_second_micros / _US_PER_S
    rounded = max(0, (2 * exact.numerator + exact.denominator) // (2 * exact.denominator))
    return min(tier.per_hit_micros + rounded, MOST_MICROS)


def total(price: Price, hits: Sequence[tuple[int, float, float, float]]) -> int:
    """What a month of hits (operator, calls, default_us, served_us) costs, in this order."""
    before, by_operator = SoFar(), dict[int, int]()
    for operator, calls, default_us, served_us in hits:
        spent = by_operator.get(operator, 0)
        one = quote(price, SoFar(before.hits, before.micros, spent), calls, default_us, served_us)
        before = SoFar(before.hits + 1, before.micros + one.micros)
        by_operator[operator] = spent + one.micros
    return before.micros
