"""What every figure means, in one place: shown on hover, on the definitions page, by the API and in the docs.

A figure is computed by one selector, which the pages and the statistics API share, and a test recomputes each
from raw rows (``tests/figures``).
"""

from __future__ import annotations

from catalog.figures.base import Figure
from catalog.figures.growth import GROWTH
from catalog.figures.methods import METHODS
from catalog.figures.money import MONEY
from catalog.figures.traffic import TRAFFIC
from catalog.figures.webhooks import WEBHOOKS
from catalog.figures.work import WORK

GROUPS: tuple[tuple[str, tuple[Figure, ...]], ...] = (
    ("Lookups and reuse", TRAFFIC),
    ("Methods and comparisons", METHODS),
    ("Exploring", WORK),
    ("Money", MONEY),
    ("Telling", WEBHOOKS),
    ("Growth", GROWTH),
)
FIGURES: dict[str, Figure] = {figure.name: figure for _, group in GROUPS for figure in group}

__all__ = ["FIGURES", "GROUPS", "Figure"]
