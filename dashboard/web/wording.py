"""Numbers and times as people read them: µs and ms, ×, 1.2k, "3 min ago". PURE."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

NOTHING = "–"
_STATES = {
    "dead": "given up",
    "promoted": "exploring",
    "awaiting": "awaiting approval",
    "died": "worker gone",
    "not_reproduced": "could not be reproduced",
    "unchecked": "could not be checked",
    "grave": "look closely",
    "serious": "ask why",
    "note": "good to know",
}
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


def state(name: str) -> str:
    """A state as people read it: ``wrong result``, ``given up``."""
    return _STATES.get(name, name.replace("_", " "))


def duration_us(value_us: float | None) -> str:
    """Three significant digits and the unit that suits: ``12.3 µs``, ``1.75 ms``; from a minute on as
    :func:`duration_s` says it; nothing is a dash."""
    if value_us is None:
        return NOTHING
    if value_us < 0:
        return f"−{duration_us(-value_us)}"
    if value_us >= _MINUTE_S * 1e6:
        return duration_s(value_us / 1e6)
    for unit, size_us in (("s", 1e6), ("ms", 1e3), ("µs", 1.0)):
        if value_us >= size_us * 0.9995:
            return f"{significant(value_us / size_us)} {unit}"
    return f"{significant(value_us * 1e3)} ns" if value_us else NOTHING


def duration_s(value_s: float | None) -> str:
    """Seconds of work: ``240 ms``, ``3.1 s``, ``38 s``, ``4 min 10 s``, ``2 h 5 min``."""
    if value_s is None:
        return NOTHING
    if value_s < 0:
        return f"−{duration_s(-value_s)}"
    if 0 < value_s < 1:
        return duration_us(value_s * 1e6)
    if value_s < 10:
        return f"{value_s:.1f} s" if value_s else "0 s"
    whole = round(value_s)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"


def significant(value: float) -> str:
    """Three significant digits without an exponent: ``0.123``, ``1.20``, ``45.6``, ``789``."""
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.0995 or not size else f"{Decimal(f'{value:.3g}'):f}"


def ratio(value: float | None) -> str:
    """``1.65×``; the sign of a speed-up is the reader's: above 1 is faster than the default."""
    return NOTHING if value is None else f"{significant(value)}×"


def percent(share: float | None) -> str:
    """A share of 1 as per cent, ``97 %``: a whole number where that says enough, never a false 100 %."""
    if share is None:
        return NOTHING
    value = share * 100
    if 0 < value < 1 or 99 < value < 100:
        return f"{min(max(value, 0.1), 99.9):.1f} %"
    return f"{value:.0f} %"


def scientific(value: float | None) -> str:
    """An error or tolerance in two digits: ``3.1e-06``, ``0.05``, ``1``; ``0`` is exact."""
    if value is None:
        return NOTHING
    return f"{value:.2g}" if value == 0 or 0.001 <= abs(value) < 99.5 else f"{value:.1e}"


def compact(value: float | None) -> str:
    """``1,234``; from 10,000 on ``12.3k``, ``4.56M``."""
    if value is None:
        return NOTHING
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size and abs(value) >= 10_000:
            return f"{significant(value / size)}{unit}"
    return f"{value:,.0f}"


def quantity(value: float | None, unit: str) -> str:
    """A count in powers of a thousand with its unit: ``231 MFLOP``, ``1.61 MB``."""
    if not value:
        return NOTHING
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{significant(value / size)} {prefix}{unit}"
    return f"{value:.0f} {unit}"


def relative(moment: datetime, now: datetime) -> str:
    """``just now``, ``3 min ago``, ``in 2 h``, ``5 days ago``; a date once it is further than a month."""
    away_s = (now - moment).total_seconds()
    size_s = abs(away_s)
    if size_s < 5:
        return "just now"
    if size_s < _MINUTE_S:
        text = f"{size_s:.0f} s"
    elif size_s < _HOUR_S:
        text = f"{size_s // _MINUTE_S:.0f} min"
    elif size_s < 2 * _DAY_S:
        text = f"{size_s // _HOUR_S:.0f} h"
    elif size_s < 31 * _DAY_S:
        text = f"{size_s // _DAY_S:.0f} days"
    else:
        return moment.strftime("%d %b %Y")
    return f"{text} ago" if away_s > 0 else f"in {text}"


_SANDBOXES = {"T2": "tight", "T1": "namespaces only", "T0": "limits only"}


def sandbox(tier: str) -> str:
    """A tier of ``tuning.measure.sandbox.tiers`` in words."""
    return _SANDBOXES.get(tier, tier)


def shortened(text: str, most: int) -> str:
    """At most that many characters, the cut marked."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def short_key(key: str) -> str:
    """``o1:3fa92c10``: enough of a key to recognise it by."""
    version, _, digest = key.partition(":")
    return f"{version}:{digest[:8]}"


def money(millionths: int | float | None, currency: str = "") -> str:
    """``€ 1.50``-like, with the currency's code: ``1.50 EUR``; small amounts keep what makes them up."""
    if millionths is None:
        return NOTHING
    if millionths < 0:
        return f"−{money(-millionths, currency)}"
    amount = millionths / 1e6
    digits = 2 if millionths % 10_000 == 0 else 4 if millionths % 100 == 0 else 6
    return f"{amount:,.{digits}f} {currency}".strip()
