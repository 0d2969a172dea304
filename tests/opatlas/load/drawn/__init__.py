"""Random operators of every type, with random attributes: ``DRAWS`` has a function for each."""

from __future__ import annotations

from collections.abc import Callable

from tests.opatlas.load.drawn import elements, moves, rows, windows
from tests.opatlas.load.drawn.draw import Draw
from tests.opatlas.load.operators import Case

DRAWS: dict[str, Callable[[Draw], Case]] = {**elements.DRAWS, **moves.DRAWS, **rows.DRAWS, **windows.DRAWS}

__all__ = ["DRAWS", "Draw"]
