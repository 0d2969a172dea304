"""The shape of a definition."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One figure. ``name`` is its key in the API and its anchor; ``formula`` says how it is counted."""

    name: str  # "hit_rate"
    title: str  # "Hit rate"
    unit: str  # "share of lookups"
    meaning: str  # one sentence, for people
    formula: str  # "hits ÷ (hits + misses), over the slots of the range"
    source: str  # the tables it is counted from
