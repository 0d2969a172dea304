"""A model's plan drawn without a script: its steps in their order, in per cent, for the attributes of an SVG.

Two rows of one scale, by the defaults and by the plan. Steps too thin to be seen are drawn together, so that
a model of thousands of nodes is some hundred boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

LEFT = "default"
"""The mark of what is left to the framework."""
THINNEST = 0.5
"""Per cent of a row: thinner steps that follow each other are drawn together."""
ROOM = 7.0
"""Per cent that a box needs for words in it."""


@dataclass(frozen=True)
class DrawnStep:
    """One step: its mark (a method, or :data:`LEFT`), what it is, and microseconds before and after."""

    mark: str
    text: str
    said: str
    before_us: float
    after_us: float


@dataclass(frozen=True)
class PlanBox:
    """``start`` and ``width`` in per cent of the row; ``said`` is shown on hover."""

    mark: str
    start: float
    width: float
    us: float
    text: str
    said: str


@dataclass(frozen=True)
class DrawnPlan:
    before: Sequence[PlanBox]
    after: Sequence[PlanBox]
    shares: Sequence[tuple[str, float, float]]  # of the plan's time: mark, microseconds, share


def drawn(steps: Sequence[DrawnStep]) -> DrawnPlan:
    """Steps without a time have no width."""
    whole = max(sum(one.before_us for one in steps), sum(one.after_us for one in steps))
    if not whole:
        return DrawnPlan((), (), ())
    groups = list(_groups(steps, whole))
    before = _row(((LEFT, group, sum(one.before_us for one in group)) for group in groups), whole)
    after = _row(_by_mark(groups), whole)
    sums: dict[str, float] = {}
    for one in steps:
        if one.after_us:
            sums[one.mark] = sums.get(one.mark, 0.0) + one.after_us
    total = sum(sums.values())
    return DrawnPlan(before, after, [(mark, us, us / total) for mark, us in sums.items()])


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


def _by_mark(groups: Iterable[list[DrawnStep]]) -> Iterator[tuple[str, list[DrawnStep], float]]:
    """Of steps that are drawn together, those of one mark beside each other."""
    for group in groups:
        for mark in dict.fromkeys(one.mark for one in group):
            mine = [one for one in group if one.mark == mark]
            yield mark, mine, sum(one.after_us for one in mine)


def _row(parts: Iterable[tuple[str, list[DrawnStep], float]], whole: float) -> list[PlanBox]:
    boxes, start = [], 0.0
    for mark, group, us in parts:
        width = 100 * us / whole
        if not width:
            continue
        text = group[0].text if len(group) == 1 and width >= ROOM else ""
        said = group[0].said if len(group) == 1 else f"{len(group)} steps"
        boxes.append(PlanBox(mark, round(start, 3), round(width, 3), us, text, said))
        start += width
    return boxes
