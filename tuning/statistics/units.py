"""Times in the words of selectors, as pages write them. PURE."""

from __future__ import annotations

_UNITS = (("h", 3.6e9), ("min", 6e7), ("s", 1e6), ("ms", 1e3), ("µs", 1.0))


def time_said(value_us: float) -> str:
    """Three significant digits and the unit that suits: ``41.1 min``, ``1.15 ms``; no exponent."""
    unit, size_us = next((one for one in _UNITS if value_us >= one[1] * 0.9995), _UNITS[-1])
    value = value_us / size_us
    return f"{value:,.0f} {unit}" if value >= 99.95 else f"{value:.3g} {unit}"
