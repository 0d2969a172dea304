"""A run as it was: rows (streams, engines), a box for each kernel, and what was waited. PURE.

Times are microseconds from the timeline's begin. As JSON it is small, since it is sent (:meth:`to_json`); as
Chrome's trace events it opens in ``chrome://tracing`` and in Perfetto (:meth:`chrome_trace`). The format is
"Trace Event Format" as Google publishes it: complete events (``X``) for boxes, nestable asynchronous ones
(``b``, ``e``) for waits, which overlap boxes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from opatlas.errors import CallerError

TIMELINE_VERSION = 1
MOST_ROWS = 16
MOST_BOXES = 2000
"""Boxes, and as many waits: of a longer run the first, and how many are left out is said."""
MOST_TEXT = 120
MOST_US = 1e12
OTHERS = "another model"
"""What is said of boxes of others that the same engines ran, where a timeline is one model's."""


class InvalidTimeline(CallerError):
    """What is no timeline: broken, of another version, or beyond its bounds."""


@dataclass(frozen=True, slots=True)
class TimelineBox:
    """A kernel, a region or a copy on its row (a number). ``model``: whose it is, where several share;
    ``by``: what ran it (a framework, or a kernel's route and label), empty where nobody says."""

    row: int
    said: str
    start_us: float
    took_us: float
    model: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class TimelineWait:
    """What waited on its row: of a stream for an event, of an engine's queue for its turn, for which
    ``expected_us`` is what the queue was expected to wait (None: nobody expected anything)."""

    row: int
    said: str
    start_us: float
    took_us: float
    expected_us: float | None = None
    model: str = ""


@dataclass(frozen=True)
class RowWait:
    """What was waited in one row, in the means of those of whom a wait was expected."""

    row: str
    count: int
    expected_us: float
    waited_us: float


@dataclass(frozen=True)
class Timeline:
    """``left_out``: boxes and waits beyond the bounds."""

    rows: tuple[str, ...]
    boxes: tuple[TimelineBox, ...]
    waits: tuple[TimelineWait, ...] = ()
    left_out: int = 0

    @property
    def took_us(self) -> float:
        """From its begin to the last end."""
        both: tuple[TimelineBox | TimelineWait, ...] = (*self.boxes, *self.waits)
        return max((one.start_us + one.took_us for one in both), default=0.0)

    @property
    def row_waits(self) -> list[RowWait]:
        """Expected against real waits, by row; rows in which nobody expected anything are left out."""
        found = []
        for number, row in enumerate(self.rows):
            told = [one for one in self.waits if one.row == number and one.expected_us is not None]
            if told:
                expected = math.fsum(one.expected_us or 0.0 for one in told) / len(told)
                waited = math.fsum(one.took_us for one in told) / len(told)
                found.append(RowWait(row, len(told), expected, waited))
        return found

    def of_model(self, model: str) -> Timeline:
        """As this model's owner may see it: others' boxes are there without their names, and no waits."""
        boxes = (
            replace(one, model="") if one.model == model else replace(one, said=OTHERS, model=OTHERS, by="")
            for one in self.boxes
        )
        waits = (replace(one, model="") for one in self.waits if one.model == model)
        return replace(self, boxes=tuple(boxes), waits=tuple(waits))

    def to_json(self) -> dict[str, Any]:
        return {
            "timeline": TIMELINE_VERSION,
            "rows": list(self.rows),
            "boxes": [
                [one.row, _us(one.start_us), _us(one.took_us), one.said, one.model, one.by]
                for one in self.boxes
            ],
            "waits": [
                [one.row, _us(one.start_us), _us(one.took_us), _us(one.expected_us), one.said, one.model]
                for one in self.waits
            ],
            "left_out": self.left_out,
        }

    @classmethod
    def from_json(cls, document: Any) -> Timeline:
        """Raises :class:`InvalidTimeline` with one sentence for what is none, or is too large."""
        if not isinstance(document, Mapping):
            raise InvalidTimeline(f"A timeline is a JSON object, not {type(document).__name__}.")
        if document.get("timeline") != TIMELINE_VERSION or isinstance(document["timeline"], bool):
            raise InvalidTimeline(
                f"The timeline is of version {str(document.get('timeline'))[:20]}; "
                f"version {TIMELINE_VERSION} is read."
            )
        rows = tuple(_text(one, "A row's name") for one in _list(document, "rows", 1, MOST_ROWS))
        boxes = tuple(_box(one, len(rows)) for one in _list(document, "boxes", 1, MOST_BOXES))
        waits = tuple(_wait(one, len(rows)) for one in _list(document, "waits", 0, MOST_BOXES))
        left_out = document.get("left_out", 0)
        if type(left_out) is not int or not 0 <= left_out <= 10**9:
            raise InvalidTimeline("'left_out' of a timeline must be a whole number from 0.")
        return cls(rows, boxes, waits, left_out)

    def chrome_trace(self, name: str = "opatlas") -> dict[str, Any]:
        """What ``chrome://tracing`` opens: a thread for each row, in one process of this name."""
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": name}}
        ]
        for number, row in enumerate(self.rows):
            thread = {"ph": "M", "pid": 0, "tid": number}
            events.append({"name": "thread_name", **thread, "args": {"name": row}})
            events.append({"name": "thread_sort_index", **thread, "args": {"sort_index": number}})
        for box in self.boxes:
            events.append({
                "name": box.said, "cat": box.model or "kernel", "ph": "X", "pid": 0, "tid": box.row,
                "ts": _us(box.start_us), "dur": _us(box.took_us), "args": {"by": box.by},
            })  # fmt: skip
        for number, wait in enumerate(self.waits):
            args = {"row": self.rows[wait.row], "expected_us": _us(wait.expected_us), "model": wait.model}
            same = {"name": f"wait: {wait.said}", "cat": "wait", "id": number, "pid": 0, "tid": wait.row}
            events.append({**same, "ph": "b", "ts": _us(wait.start_us), "args": args})
            events.append({**same, "ph": "e", "ts": _us(wait.start_us + wait.took_us)})
        return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"left_out": self.left_out}}


def bounded(
    rows: Sequence[str], boxes: Iterable[TimelineBox], waits: Iterable[TimelineWait] = ()
) -> Timeline:
    """A timeline that begins with its first box or wait; beyond the bounds the first are kept."""
    all_boxes = sorted(boxes, key=lambda one: one.start_us)
    all_waits = sorted(waits, key=lambda one: one.start_us)
    firsts = [one.start_us for one in all_boxes[:1]] + [one.start_us for one in all_waits[:1]]
    begin_us = min(firsts, default=0.0)
    kept_boxes = tuple(_kept(one, begin_us) for one in all_boxes[:MOST_BOXES])
    kept_waits = tuple(_kept(one, begin_us) for one in all_waits[:MOST_BOXES])
    left_out = len(all_boxes) - len(kept_boxes) + len(all_waits) - len(kept_waits)
    return Timeline(tuple(one[:MOST_TEXT] for one in rows), kept_boxes, kept_waits, left_out)


Kept = TypeVar("Kept", TimelineBox, TimelineWait)


def _kept(one: Kept, begin_us: float) -> Kept:
    start_us = one.start_us - begin_us
    one = replace(one, start_us=start_us, said=one.said[:MOST_TEXT], model=one.model[:MOST_TEXT])
    return replace(one, by=one.by[:MOST_TEXT]) if isinstance(one, TimelineBox) else one


def _us(value: float | None) -> float | None:
    """To the nanosecond, which is what clocks tell."""
    return None if value is None else round(value, 3)


def _box(values: Any, rows: int) -> TimelineBox:
    if not isinstance(values, list) or len(values) not in (5, 6):
        raise InvalidTimeline("A box of a timeline is [row, start_us, took_us, said, model, by].")
    row, start_us, took_us, said, model, by = values if len(values) == 6 else (*values, "")
    return TimelineBox(
        _row(row, rows),
        _text(said, "What a box says"),
        _time(start_us),
        _time(took_us),
        _text(model, "A model's name"),
        _text(by, "What ran a box"),
    )


def _wait(values: Any, rows: int) -> TimelineWait:
    if not isinstance(values, list) or len(values) != 6:
        raise InvalidTimeline("A wait of a timeline is [row, start_us, took_us, expected_us, said, model].")
    row, start_us, took_us, expected_us, said, model = values
    return TimelineWait(
        _row(row, rows), _text(said, "What a wait says"), _time(start_us), _time(took_us),
        None if expected_us is None else _time(expected_us), _text(model, "A model's name"),
    )  # fmt: skip


def _list(document: Mapping[str, Any], name: str, least: int, most: int) -> list[Any]:
    value = document.get(name)
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise InvalidTimeline(f"'{name}' of a timeline must be a list of {least} to {most}.")
    return value


def _row(value: Any, rows: int) -> int:
    if type(value) is not int or not 0 <= value < rows:
        raise InvalidTimeline(f"A row's number in a timeline is from 0 to {rows - 1}.")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise InvalidTimeline(f"{what} in a timeline is text of at most {MOST_TEXT} characters.")
    return value


def _time(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_US:
        raise InvalidTimeline("A time in a timeline is microseconds from 0.")
    return float(value)
