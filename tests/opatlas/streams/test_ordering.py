"""Every missing edge is found, and no program that is made has one: held against reachability, by pairs."""

from __future__ import annotations

from itertools import combinations

import pytest

from opatlas.streams.hazards import Extent, StreamTask, hazards
from opatlas.streams.ordering import Act, StreamCommand, StreamProgram, findings, program_of
from tests.opatlas.streams.work import RandomWork, without_each_wait

LAUNCH, RECORD, WAIT = Act.LAUNCH, Act.RECORD, Act.WAIT


def bytes_of(extents: tuple[Extent, ...]) -> set[tuple[str, int]]:
    return {(one.memory, at) for one in extents for at in range(one.start, one.end)}


def conflicting(tasks: list[StreamTask]) -> set[tuple[int, int]]:
    """All pairs that touch a byte which one of them writes."""
    touched = [(bytes_of(one.reads), bytes_of(one.writes)) for one in tasks]
    return {
        (one, other)
        for one, other in combinations(range(len(tasks)), 2)
        if touched[one][1] & (touched[other][0] | touched[other][1]) or touched[one][0] & touched[other][1]
    }


def reachable(edges: set[tuple[int, int]], count: int) -> set[tuple[int, int]]:
    """All pairs of which the first comes before the second."""
    before: list[set[int]] = [set() for _ in range(count)]
    for number in range(count):  # edges go upwards
        for one, other in edges:
            if other == number:
                before[number] |= {one} | before[one]
    return {(one, number) for number in range(count) for one in before[number]}


def ordered_by(program: StreamProgram, tasks: list[StreamTask]) -> set[tuple[int, int]]:
    """What streams and events order, command by command."""
    place = {(one.act, one.number): at for at, one in enumerate(program.commands)}
    latest: dict[int, int] = {}
    edges = set[tuple[int, int]]()
    for at, one in enumerate(program.commands):
        if one.stream in latest:
            edges.add((latest[one.stream], at))
        latest[one.stream] = at
    edges |= {(place[RECORD, one.number], at) for at, one in enumerate(program.commands) if one.act is WAIT}
    closed = reachable(edges, len(program.commands))
    at = [place[LAUNCH, number] for number in range(len(tasks))]
    pairs = combinations(range(len(tasks)), 2)
    return {(one, other) for one, other in pairs if (at[one], at[other]) in closed}


@pytest.mark.parametrize("seed", range(60))
def test_hazards_order_all_that_conflicts_and_nothing_else(seed: int) -> None:
    tasks = RandomWork(seed).tasks
    found = {(one.before, one.after) for one in hazards(tasks)}
    wanted = conflicting(tasks)
    assert found <= wanted <= reachable(found, len(tasks))


@pytest.mark.parametrize("seed", range(25))
def test_a_made_program_is_sound_and_every_wait_in_it_is_needed(seed: int) -> None:
    tasks = RandomWork(seed).tasks
    program = program_of(tasks)
    assert findings(tasks, program) == []
    assert conflicting(tasks) <= ordered_by(program, tasks)
    for wait, less in without_each_wait(program):
        found = findings(tasks, less)
        missing = conflicting(tasks) - ordered_by(less, tasks)
        assert found and missing
        assert any(f"task {wait.number} (stream" in one and "does not wait for it" in one for one in found)


def launch(stream: int, number: int) -> StreamCommand:
    return StreamCommand(stream, LAUNCH, number)


def record(stream: int, number: int) -> StreamCommand:
    return StreamCommand(stream, RECORD, number)


def wait(stream: int, number: int) -> StreamCommand:
    return StreamCommand(stream, WAIT, number)


def program(*commands: StreamCommand) -> StreamProgram:
    return StreamProgram(commands)


HERE, THERE = Extent("memory", 0, 64), Extent("memory", 32, 96)
MADE = StreamTask("MatMul", 0, (), (HERE,))


@pytest.mark.parametrize(
    ("later", "sentence"),
    [
        (
            StreamTask("Relu", 1, (THERE,), ()),
            "Relu (stream 1) reads what MatMul (stream 0) writes, and does not wait for it.",
        ),
        (
            StreamTask("Relu", 1, (), (THERE,)),
            "Relu (stream 1) overwrites what MatMul (stream 0) writes, and does not wait for it.",
        ),
    ],
)
def test_a_missing_edge_is_one_sentence(later: StreamTask, sentence: str) -> None:
    tasks = [MADE, later]
    assert findings(tasks, program(launch(0, 0), launch(1, 1))) == [sentence]
    assert findings(tasks, program(launch(0, 0), record(0, 0), wait(1, 0), launch(1, 1))) == []


def test_a_buffer_that_is_used_again_too_early_is_found() -> None:
    """Two values of the arena in one place: who reads the first must have ended."""
    tasks = [
        MADE,
        StreamTask("Relu", 1, (HERE,), (Extent("memory", 128, 192),)),
        StreamTask("Tanh", 0, (), (HERE,)),
    ]
    early = program(launch(0, 0), record(0, 0), wait(1, 0), launch(1, 1), launch(0, 2))
    assert findings(tasks, early) == [
        "Tanh (stream 0) overwrites what Relu (stream 1) reads, and does not wait for it."
    ]
    assert findings(tasks, program(*early.commands[:4], record(1, 1), wait(0, 1), launch(0, 2))) == []


def test_an_event_that_is_recorded_too_early_orders_nothing() -> None:
    tasks = [MADE, StreamTask("Relu", 1, (HERE,))]
    found = findings(tasks, program(record(0, 0), launch(0, 0), wait(1, 0), launch(1, 1)))
    assert found == ["Relu (stream 1) reads what MatMul (stream 0) writes, and does not wait for it."]


def test_order_is_handed_on_through_other_streams() -> None:
    tasks = [MADE, StreamTask("Relu", 1, (HERE,)), StreamTask("Tanh", 2, (HERE,))]
    commands = [launch(0, 0), record(0, 0), wait(1, 0), launch(1, 1), record(1, 1), wait(2, 1), launch(2, 2)]
    assert findings(tasks, program(*commands)) == []


def test_streams_that_wait_for_each_other_are_found() -> None:
    tasks = [StreamTask("MatMul", 0), StreamTask("Relu", 1)]
    circle = program(wait(0, 1), launch(0, 0), record(0, 0), wait(1, 0), launch(1, 1), record(1, 1))
    assert findings(tasks, circle) == [
        "Streams wait for each other in a circle: 0 for event 1, 1 for event 0."
    ]


NOTHING = [StreamTask("MatMul", 0), StreamTask("Relu", 1)]


@pytest.mark.parametrize(
    ("commands", "sentence"),
    [
        ([launch(0, 0)], "Relu is never launched."),
        ([launch(0, 0), launch(0, 0), launch(1, 1)], "MatMul is launched twice."),
        ([launch(1, 0), launch(1, 1)], "MatMul is launched in stream 1, not 0."),
        ([launch(0, 0), launch(1, 1), launch(1, 2)], "Task 2 is launched, and there are 2."),
        ([launch(0, 0), wait(1, 0), launch(1, 1)], "Stream 1 waits for event 0, which nobody records."),
        ([launch(0, 0), record(0, 0), record(0, 0), launch(1, 1)], "Event 0 is recorded twice."),
        (
            [wait(1, 0), launch(0, 0), record(0, 0), launch(1, 1)],
            "Stream 1 waits for event 0 before it is recorded.",
        ),
    ],
)
def test_what_is_no_program_is_said(commands: list[StreamCommand], sentence: str) -> None:
    assert findings(NOTHING, program(*commands)) == [sentence]


def test_what_is_in_one_stream_needs_no_event() -> None:
    tasks = [MADE, StreamTask("Relu", 0, (HERE,), (THERE,)), StreamTask("Tanh", 0, (THERE,), (HERE,))]
    assert [one.act for one in program_of(tasks).commands] == [LAUNCH] * 3


def test_a_value_of_no_bytes_orders_nothing() -> None:
    empty = Extent("memory", 32, 32)
    assert hazards([MADE, StreamTask("Relu", 1, (empty,), (empty,))]) == []
