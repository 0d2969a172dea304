"""A run as it was: collected by the device's own marks, bounded, as JSON and as Chrome's trace events."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from opatlas.streams import timeline as module
from opatlas.streams.cpu_device import CpuDevice
from opatlas.streams.device import Marks, run_program
from opatlas.streams.ordering import Act, program_of
from opatlas.streams.timeline import (
    OTHERS,
    InvalidTimeline,
    Timeline,
    TimelineBox,
    TimelineWait,
    bounded,
)
from tests.opatlas.streams.null_device import NullDevice, NullMark
from tests.opatlas.streams.work import RandomWork

MADE = Timeline(
    ("engine 0", "engine 1"),
    (TimelineBox(0, "Step 0 (Conv)", 0.0, 20.0, "a", "tvm"), TimelineBox(1, "Step 3 (Relu)", 5.5, 2.0, "b")),
    (TimelineWait(1, "Step 3 (Relu)", 1.5, 4.0, 3.0, "b"),),
)


@pytest.mark.parametrize("seed", range(30))
def test_marks_of_a_run_say_what_ran_and_waited_when(seed: int) -> None:
    """By the null device's own clock: in a stream one after the other, and a wait ends when what it waits for
    has ended."""
    work = RandomWork(seed)
    program = program_of(work.tasks)
    marks: Marks = []
    calls, result = work.calls()
    run_program(NullDevice(seed), program, calls, 1.0, marks)
    assert result == work.one_by_one()
    assert sum(one.act is Act.LAUNCH for one, _, _ in marks) == len(work.tasks)
    ended = {one.number: end.at_s for one, _, end in marks if one.act is Act.LAUNCH}
    free_at: dict[int, float] = {}
    for command, begin, end in marks:
        assert free_at.get(command.stream, 0.0) <= begin.at_s <= end.at_s
        free_at[command.stream] = end.at_s
        if command.act is Act.WAIT:
            assert end.at_s >= ended[command.number]
            assert end.at_s in (begin.at_s, ended[command.number])


def test_a_run_that_nobody_asks_a_timeline_of_has_no_marks() -> None:
    """Off, it costs nothing: no stream is handed anything for it."""
    work = RandomWork(3)
    handed: list[object] = []

    class Watched(NullDevice):
        def _step(self, stream: Any) -> None:
            handed.append(stream.todo[0])
            super()._step(stream)

    run_program(Watched(1), program_of(work.tasks), work.calls()[0], 1.0)
    assert handed and not any(isinstance(one, NullMark) for one in handed)
    run_program(Watched(1), program_of(work.tasks), work.calls()[0], 1.0, [])
    assert any(isinstance(one, NullMark) for one in handed)


def test_the_processors_marks_are_of_its_own_clock() -> None:
    device, work, marks = CpuDevice(), RandomWork(4), Marks()
    run_program(device, program_of(work.tasks), work.calls()[0], 30.0, marks)
    assert all(0 < begin.at_s <= end.at_s for _, begin, end in marks)
    device.close()


def test_it_comes_back_from_json_as_it_was() -> None:
    document = json.loads(json.dumps(MADE.to_json()))
    assert Timeline.from_json(document) == MADE
    document["boxes"] = [one[:5] for one in document["boxes"]]
    assert [one.by for one in Timeline.from_json(document).boxes] == ["", ""]  # who sends none is read


def test_expected_against_real_waits_are_told_by_row() -> None:
    [only] = MADE.row_waits
    assert (only.row, only.count, only.expected_us, only.waited_us) == ("engine 1", 1, 3.0, 4.0)
    assert MADE.took_us == 20.0


def test_chrome_opens_it() -> None:
    """The fields of the Trace Event Format: a thread named for each row, X with ts and dur, b with e."""
    events = MADE.chrome_trace("two models")["traceEvents"]
    assert [one["args"]["name"] for one in events if one["name"] == "thread_name"] == list(MADE.rows)
    boxes = [one for one in events if one["ph"] == "X"]
    assert [(one["tid"], one["ts"], one["dur"], one["name"]) for one in boxes] == [
        (0, 0.0, 20.0, "Step 0 (Conv)"), (1, 5.5, 2.0, "Step 3 (Relu)"),
    ]  # fmt: skip
    begin, end = (next(one for one in events if one["ph"] == phase) for phase in "be")
    assert (begin["id"], begin["cat"], begin["name"]) == (end["id"], end["cat"], end["name"])
    assert (begin["ts"], end["ts"], begin["args"]["expected_us"]) == (1.5, 5.5, 3.0)


def test_a_models_own_timeline_says_nothing_of_others() -> None:
    mine = MADE.of_model("b")
    boxes = [(one.said, one.model, one.by) for one in mine.boxes]
    assert boxes == [(OTHERS, OTHERS, ""), ("Step 3 (Relu)", "", "")]
    assert len(mine.waits) == 1 and not MADE.of_model("a").waits


def test_a_long_run_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BOXES", 2)
    boxes = [TimelineBox(0, f"Step {at}" + "x" * 200, 100.0 - at, 1.0) for at in range(5)]
    made = bounded(["stream 0"], boxes)
    assert [one.said[:6] for one in made.boxes] == ["Step 4", "Step 3"] and made.left_out == 3
    assert made.boxes[0].start_us == 0.0 and Timeline.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ([], "is a JSON object, not list"),
        ({"timeline": 2}, "of version 2; version 1 is read"),
        ({"timeline": True}, "of version True"),
        ({"rows": []}, "'rows' of a timeline must be a list of 1 to 16"),
        ({"rows": ["r"] * 17}, "'rows' of a timeline"),
        ({"rows": [5, "b"]}, "text of at most 120"),
        ({"boxes": []}, "'boxes' of a timeline must be a list of 1 to 2000"),
        ({"boxes": [[0, 0.0, 1.0, "s", ""]] * 2001}, "'boxes' of a timeline"),
        ({"boxes": [[0, 0.0, 1.0, "s"]]}, r"\[row, start_us, took_us, said, model, by\]"),
        ({"boxes": [[2, 0.0, 1.0, "s", ""]]}, "A row's number in a timeline is from 0 to 1"),
        ({"boxes": [[True, 0.0, 1.0, "s", ""]]}, "A row's number"),
        ({"boxes": [[0, -1.0, 1.0, "s", ""]]}, "A time in a timeline is microseconds from 0"),
        ({"boxes": [[0, 0.0, math.nan, "s", ""]]}, "A time in a timeline"),
        ({"boxes": [[0, 0.0, math.inf, "s", ""]]}, "A time in a timeline"),
        ({"boxes": [[0, 0.0, 1.0, "s" * 121, ""]]}, "What a box says"),
        ({"waits": [[0, 0.0, 1.0, "s", "", ""]]}, "A time in a timeline"),
        ({"waits": [[0, 0.0, 1.0]]}, "expected_us, said, model"),
        ({"waits": None}, "'waits' of a timeline"),
        ({"left_out": -1}, "'left_out'"),
    ],
)
def test_what_is_no_timeline_is_refused_in_a_sentence(wrong: Any, sentence: str) -> None:
    document = MADE.to_json() | wrong if isinstance(wrong, dict) else wrong
    with pytest.raises(InvalidTimeline, match=sentence):
        Timeline.from_json(document)
