"""A run drawn without a script: a lane for each stream or engine, a box for each kernel, a bar below for what
waited. Places along a lane are in per cent, for the attributes of an SVG.

A lane is as wide as its boxes need to be told apart, and scrolls; boxes thinner than that, and beside each
other, are drawn together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dashboard.web import wording
from dashboard.web.charts.drawing import round_step, shortened
from dashboard.web.charts.race import AxisMark
from opatlas.streams.timeline import OTHERS, Timeline, TimelineBox, TimelineWait

LEFT, OTHER = "default", "other"
"""Marks of what a framework ran, and of another model's; the others are methods."""
LEAST_PX, MOST_PX = 560, 3600
"""Of a lane."""
BOX_PX = 16
"""That a box of the middle length should have."""
THINNEST_PX = 3
"""Thinner boxes beside each other are drawn together; a thinner wait is left out."""
LETTER_PX, ROOM_PX = 6.6, 14
"""What a letter of a box takes, and what is left free beside its words."""
MARK_PX = 110
"""Between two marks of the axis, about."""


@dataclass(frozen=True)
class RunBox:
    """``start`` and ``width`` in per cent of the lane; ``said`` is shown on hover."""

    mark: str
    start: float
    width: float
    text: str
    said: str


@dataclass(frozen=True)
class RunLane:
    """One row. ``said`` is the same in words."""

    name: str
    boxes: Sequence[RunBox]
    waits: Sequence[RunBox]
    said: str


@dataclass(frozen=True)
class DrawnTimeline:
    """``shares``: of all boxes' time: mark, microseconds, share."""

    width_px: int
    lanes: Sequence[RunLane]
    axis: Sequence[AxisMark]
    shares: Sequence[tuple[str, float, float]]


def drawn(timeline: Timeline, methods: Mapping[str, str]) -> DrawnTimeline:
    """``methods``: of kernels, by what a box says of who ran it."""
    whole = timeline.took_us or 1.0
    middle = median(one.took_us for one in timeline.boxes)
    width_px = round(min(MOST_PX, max(LEAST_PX, BOX_PX * whole / middle if middle else MOST_PX)))
    scale = _Scale(whole, width_px)

    def mark_of(box: TimelineBox) -> str:
        return OTHER if box.model == OTHERS else methods.get(box.by, LEFT)

    lanes = []
    for row, name in enumerate(timeline.rows):
        boxes = sorted((one for one in timeline.boxes if one.row == row), key=lambda one: one.start_us)
        waits = [one for one in timeline.waits if one.row == row]
        lanes.append(
            RunLane(
                name,
                [scale.box(mark, group) for mark, group in scale.groups(boxes, mark_of)],
                [scale.wait(one) for one in waits if scale.px(one.took_us) >= THINNEST_PX],
                _said(name, boxes, waits, whole),
            )
        )
    sums: dict[str, float] = {}
    for one in timeline.boxes:
        sums[mark_of(one)] = sums.get(mark_of(one), 0.0) + one.took_us
    total = sum(sums.values())
    shares = [(mark, us, us / total) for mark, us in sums.items() if us]
    return DrawnTimeline(width_px, lanes, scale.axis(), shares)


@dataclass(frozen=True)
class _Scale:
    whole_us: float
    width_px: int

    def px(self, us: float) -> float:
        return us / self.whole_us * self.width_px

    def percent(self, us: float) -> float:
        return round(100 * us / self.whole_us, 3)

    def groups(
        self, boxes: Iterable[TimelineBox], mark_of: Callable[[TimelineBox], str]
    ) -> Iterator[tuple[str, list[TimelineBox]]]:
        """Boxes that can be seen one by one; thin ones of one mark that follow each other together."""
        open_mark, thin = "", list[TimelineBox]()
        for box in boxes:
            mark, is_thin = mark_of(box), self.px(box.took_us) < THINNEST_PX
            if thin and (not is_thin or mark != open_mark or self._is_apart(thin, box)):
                yield open_mark, thin
                thin = []
            if is_thin:
                open_mark = mark
                thin.append(box)
            else:
                yield mark, [box]
        if thin:
            yield open_mark, thin

    def _is_apart(self, thin: Sequence[TimelineBox], box: TimelineBox) -> bool:
        gap_us = box.start_us - thin[-1].start_us - thin[-1].took_us
        return self.px(gap_us) >= 1 or self.px(box.start_us - thin[0].start_us) >= THINNEST_PX

    def box(self, mark: str, group: Sequence[TimelineBox]) -> RunBox:
        start_us, end_us = group[0].start_us, group[-1].start_us + group[-1].took_us
        took_us = sum(one.took_us for one in group)
        only = group[0] if len(group) == 1 else None
        text = only.said if only and LETTER_PX * len(only.said) + ROOM_PX <= self.px(took_us) else ""
        what = f"{len(group)} steps"
        if only is not None:
            what = f"{only.said} by {shortened(only.by, 60)}" if only.by else only.said
        since = f"from {wording.duration_us(start_us)} on" if start_us else "from the begin"
        said = f"{what}: {wording.duration_us(took_us)}, {since}"
        return RunBox(mark, self.percent(start_us), self.percent(end_us - start_us), text, said)

    def wait(self, one: TimelineWait) -> RunBox:
        """Of a stream for what another does, of an engine's queue for its turn."""
        said = f"waits for {one.said}: {wording.duration_us(one.took_us)}"
        if one.expected_us is not None:
            expected = wording.duration_us(one.expected_us)
            said = f"{one.said} waits {wording.duration_us(one.took_us)}, {expected} expected"
        return RunBox("wait", self.percent(one.start_us), self.percent(one.took_us), "", said)

    def axis(self) -> list[AxisMark]:
        """At round times, the begin's first."""
        step_us = round_step(self.whole_us * MARK_PX / self.width_px)
        places = (at * step_us for at in range(1, int(self.whole_us / step_us) + 1))
        inside = [us for us in places if self.px(us) <= self.width_px - MARK_PX / 3]
        return [AxisMark(0.0, "0"), *(AxisMark(self.percent(us), wording.duration_us(us)) for us in inside)]


def _said(name: str, boxes: Sequence[TimelineBox], waits: Sequence[TimelineWait], whole_us: float) -> str:
    busy_us, waited_us = (sum(one.took_us for one in every) for every in (boxes, waits))
    taken = f"{_counted(len(boxes), 'box', 'boxes')} {'takes' if len(boxes) == 1 else 'take'}"
    said = f"{name}: {taken} {wording.duration_us(busy_us)} of {wording.duration_us(whole_us)}"
    if not waits:
        return said
    return f"{said}, {_counted(len(waits), 'wait', 'waits')} {wording.duration_us(waited_us)}"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
