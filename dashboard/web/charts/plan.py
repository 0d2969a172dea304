"""A model's plan drawn without a script: its steps in their order, in per cent, for the attributes of an SVG.

Two rows of one scale, by the defaults and by the plan. Steps too thin to be seen are drawn together, so that
a model of thousands of nodes is some hundred boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from django.utils.safestring import SafeString

from dashboard.web import wording
from dashboard.web.charts.plan_edges import EdgeArc, PlanEdge, arcs, svg
from dashboard.web.markup import escaped, filled

LEFT = "default"
"""The mark of what is left to the framework."""
REORDER = "reorder"
"""The mark of what brings a value from one layout into another: a box of half the height."""
THINNEST = 0.5
"""Per cent of a row: thinner steps that follow each other are drawn together."""
ROOM = 7.0
"""Per cent that a box needs for words in it."""


@dataclass(frozen=True)
class DrawnStep:
    """One step: its mark (a method, :data:`LEFT` or :data:`REORDER`), what it is, and microseconds before and
    after. ``is_turned``: it runs channels-last."""

    mark: str
    text: str
    said: str
    before_us: float
    after_us: float
    is_turned: bool = False


@dataclass(frozen=True)
class PlanBox:
    """``start`` and ``width`` in per cent of the row; ``said`` is shown on hover."""

    mark: str
    start: float
    width: float
    us: float
    text: str
    said: str
    is_turned: bool = False


@dataclass(frozen=True)
class DrawnPlan:
    before: Sequence[PlanBox]
    after: Sequence[PlanBox]
    shares: Sequence[tuple[str, float, float]]  # of the plan's time: mark, microseconds, share
    turned: tuple[float, float] = (0.0, 0.0)  # what of it runs channels-last: microseconds, share
    edges: Sequence[EdgeArc] = ()

    @cached_property
    def before_svg(self) -> SafeString:
        return _svg(self.before)

    @cached_property
    def after_svg(self) -> SafeString:
        return _svg(self.after)

    @cached_property
    def edges_svg(self) -> SafeString:
        return svg(self.edges)

    @cached_property
    def edges_said(self) -> str:
        """For who does not see the arcs."""
        reorders = sum(one.mark == REORDER for one in self.edges)
        return f"{len(self.edges) - reorders} edges channels-last, {reorders} from or to reorders"


_BAND = '<path class="turned" d="M0 25.5h10000"></path>'
"""At the foot of what runs channels-last, as wide as its box."""


def _svg(boxes: Sequence[PlanBox]) -> SafeString:
    """Boxes of a row 30 high. Made here and not by a template: there are hundreds."""
    box = (
        '<svg x="{:.3f}%" width="{:.3f}%" height="30" data-method="{}"><title>{}: {}</title>'
        '<rect width="100%" {}></rect>{}{}</svg>'
    )
    made = (
        box.format(
            one.start,
            one.width,
            escaped(one.mark),
            escaped(one.said),
            wording.duration_us(one.us),
            'y="8" height="14"' if one.mark == REORDER else 'height="30"',
            _BAND if one.is_turned else "",
            filled('<text x="8" y="19">{}</text>', one.text) if one.text else "",
        )
        for one in boxes
    )
    return SafeString("".join(made))


def drawn(steps: Sequence[DrawnStep], edges: Sequence[PlanEdge] = ()) -> DrawnPlan:
    """Steps without a time have no width, and no arcs."""
    whole = max(sum(one.before_us for one in steps), sum(one.after_us for one in steps))
    if not whole:
        return DrawnPlan((), (), ())
    groups = list(_groups(steps, whole))
    before, _ = _row((((LEFT, False), group, sum(one.before_us for one in group)) for group in groups), whole)
    after, middles = _row(_by_mark(groups), whole)
    sums: dict[str, float] = {}
    for one in steps:
        if one.after_us:
            sums[one.mark] = sums.get(one.mark, 0.0) + one.after_us
    total = sum(sums.values())
    turned_us = sum(one.after_us for one in steps if one.is_turned)
    shares = [(mark, us, us / total) for mark, us in sums.items()]
    numbers = {number: middles[id(one)] for number, one in enumerate(steps) if id(one) in middles}
    turned = (turned_us, turned_us / total if total else 0.0)
    return DrawnPlan(before, after, shares, turned, arcs(edges, numbers))


def _groups(steps: Iterable[DrawnStep], whole: float) -> Iterator[list[DrawnStep]]:
    """Each step that can be seen alone; others together until they can be."""
    thin: list[DrawnStep] = []
    least = whole * THINNEST / 100
    for one in steps:
        if max(one.before_us, one.after_us) >= least:
            if thin:
                yield thin
                thin = []
            yield [one]
            continue
        thin.append(one)
        if max(sum(each.before_us for each in thin), sum(each.after_us for each in thin)) >= least:
            yield thin
            thin = []
    if thin:
        yield thin


_Look = tuple[str, bool]
"""A mark, and whether it runs channels-last."""


def _by_mark(groups: Iterable[list[DrawnStep]]) -> Iterator[tuple[_Look, list[DrawnStep], float]]:
    """Of steps that are drawn together, those that look alike beside each other."""
    for group in groups:
        for look in dict.fromkeys((one.mark, one.is_turned) for one in group):
            mine = [one for one in group if (one.mark, one.is_turned) == look]
            yield look, mine, sum(one.after_us for one in mine)


def _row(
    parts: Iterable[tuple[_Look, list[DrawnStep], float]], whole: float
) -> tuple[list[PlanBox], dict[int, float]]:
    """And where the middle of each step's box is, in per cent, by its identity."""
    boxes, middles, start = list[PlanBox](), dict[int, float](), 0.0
    for (mark, is_turned), group, us in parts:
        width = 100 * us / whole
        if not width:
            continue
        text = group[0].text if len(group) == 1 and width >= ROOM else ""
        said = group[0].said if len(group) == 1 else f"{len(group)} steps"
        boxes.append(PlanBox(mark, round(start, 3), round(width, 3), us, text, said, is_turned))
        middles |= dict.fromkeys(map(id, group), start + width / 2)
        start += width
    return boxes, middles
