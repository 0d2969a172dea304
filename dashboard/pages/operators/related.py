"""Operators that jobs ask for next, as a small graph: an edge each, the broader the more jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.selectors.predicted import RelatedOperator
from dashboard.web.wording import shortened

_ROW, _WIDEST = 26, 9.0  # of the drawing's units: as high as a line, an edge's breadth
_TEXT = 34  # characters


@dataclass(frozen=True)
class Follows:
    """From the operator to one of its next ones; ``y`` and ``width`` are of the drawing."""

    text: str
    y: int
    width: float


@dataclass(frozen=True)
class RelatedGraph:
    edges: Sequence[Follows]

    @property
    def height(self) -> int:
        return _ROW * len(self.edges)

    @property
    def middle(self) -> int:
        return self.height // 2


def graph(found: Sequence[RelatedOperator]) -> RelatedGraph:
    """In the order given, which is by likelihood."""
    most = max((one.jobs for one in found), default=1) or 1
    return RelatedGraph(
        [
            Follows(
                shortened(one.summary, _TEXT), _ROW * row + _ROW // 2, max(_WIDEST * one.jobs / most, 1.0)
            )
            for row, one in enumerate(found)
        ]
    )
