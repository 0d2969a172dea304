"""Under a plan's row of steps: between which of them values lie channels-last, and where they are brought
into another layout. Arcs from the step that makes a value to those that read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString

from dashboard.web.markup import filled

TURNED = "turned"
"""The mark of a value that is handed on channels-last."""
MOST_EDGES = 400
"""Of one drawing: the first."""
HEIGHT, FLATTEST = 34.0, 10.0
"""The arcs' room, and that of one between neighbours."""


@dataclass(frozen=True)
class PlanEdge:
    """From one step to another by their numbers, None: from outside; ``mark``: :data:`TURNED`, or the mark of
    a reorder, of which the step at one end is one."""

    source: int | None
    target: int
    mark: str
    said: str


@dataclass(frozen=True)
class EdgeArc:
    """From ``start`` to ``end``, in thousandths of the row."""

    mark: str
    start: float
    end: float
    said: str


def arcs(edges: Iterable[PlanEdge], middles: Mapping[int, float]) -> list[EdgeArc]:
    """``middles``: of the steps' boxes, in per cent. What stays within a box is left out, and of arcs that
    would cover each other all but the first."""
    found = dict[tuple[str, float, float], EdgeArc]()
    for one in edges:
        start = 0.0 if one.source is None else middles.get(one.source)
        end = middles.get(one.target)
        if start is None or end is None or start == end:
            continue
        place = one.mark, round(10 * start, 1), round(10 * end, 1)
        found.setdefault(place, EdgeArc(*place, one.said))
        if len(found) >= MOST_EDGES:
            break
    return list(found.values())


def svg(found: Sequence[EdgeArc]) -> SafeString:
    """Paths, as wide as the row whatever it is: lines keep their width."""
    return SafeString("".join(map(_path, found)))


def _path(one: EdgeArc) -> SafeString:
    depth = min(HEIGHT, FLATTEST + abs(one.end - one.start) / 12)
    line = f"M{one.start} 0C{one.start} {depth:.1f} {one.end} {depth:.1f} {one.end} 0"
    return filled('<path d="{}" data-edge="{}"><title>{}</title></path>', line, one.mark, one.said)
