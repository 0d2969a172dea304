"""Events that order streams, and whether they order all that must be. PURE.

A program is what a host hands to a device, in the order in which it does: launches, events that are recorded,
waits for them. Within a stream everything runs in that order; between streams only a wait orders anything.
Happens-before is told by vector clocks: of each task, how many of each stream's tasks had ended before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from opatlas.streams.hazards import StreamTask, hazards


class Act(Enum):
    LAUNCH = "launch"
    RECORD = "record"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class StreamCommand:
    """In a stream: launch the task of this number; record the event of it, or wait for it."""

    stream: int
    act: Act
    number: int


@dataclass(frozen=True, slots=True)
class StreamProgram:
    """Commands in the order in which the host hands them out."""

    commands: tuple[StreamCommand, ...]

    @property
    def by_stream(self) -> dict[int, list[StreamCommand]]:
        found: dict[int, list[StreamCommand]] = defaultdict(list)
        for one in self.commands:
            found[one.stream].append(one)
        return dict(found)


Clock = dict[int, int]
"""By stream, how many of its tasks have ended; those that are not there: none."""


def program_of(tasks: Sequence[StreamTask]) -> StreamProgram:
    """The program that runs tasks in their streams, ordered as they depend on each other, by as few events as
    suffice for it: what a stream knows already it does not wait for. An event has the number of the task that
    it follows."""
    needs: dict[int, set[int]] = defaultdict(set)
    for one in hazards(tasks):
        needs[one.after].add(one.before)
    knows: dict[int, Clock] = defaultdict(Clock)
    places: list[int] = []
    ended: list[Clock] = []  # after each task
    waits: dict[int, list[int]] = defaultdict(list)
    for number, task in enumerate(tasks):
        clock = knows[task.stream]
        for before in sorted(needs[number], reverse=True):  # the latest knows most
            if clock.get(tasks[before].stream, 0) <= places[before]:
                waits[number].append(before)
                _join(clock, ended[before])
        places.append(clock.get(task.stream, 0))
        clock[task.stream] = places[number] + 1
        ended.append(dict(clock))
    awaited = {event for events in waits.values() for event in events}
    commands: list[StreamCommand] = []
    for number, task in enumerate(tasks):
        commands += [StreamCommand(task.stream, Act.WAIT, event) for event in waits[number]]
        commands.append(StreamCommand(task.stream, Act.LAUNCH, number))
        if number in awaited:
            commands.append(StreamCommand(task.stream, Act.RECORD, number))
    return StreamProgram(tuple(commands))


def findings(tasks: Sequence[StreamTask], program: StreamProgram) -> list[str]:
    """What is wrong with a program, a sentence each; nothing where it gives what the tasks give one by one,
    whatever the streams' speeds.

    Each task must be launched once, in its stream; each event recorded once, and handed to the device before
    a wait for it (some devices do not wait for what was not recorded yet); no streams may wait for each other
    in a circle; and whatever must run in its order must be ordered by streams and events.
    """
    return _misuse(tasks, program) or _unordered(tasks, program)


def _misuse(tasks: Sequence[StreamTask], program: StreamProgram) -> list[str]:
    found: list[str] = []
    launched, recorded = set[int](), set[int]()
    for one in program.commands:
        if one.act is not Act.LAUNCH:
            if one.act is Act.RECORD and one.number in recorded:
                found.append(f"Event {one.number} is recorded twice.")
            recorded |= {one.number} if one.act is Act.RECORD else set()
        elif not 0 <= one.number < len(tasks):
            found.append(f"Task {one.number} is launched, and there are {len(tasks)}.")
        elif one.number in launched:
            found.append(f"{tasks[one.number].said} is launched twice.")
        elif one.stream != (stream := tasks[one.number].stream):
            found.append(f"{tasks[one.number].said} is launched in stream {one.stream}, not {stream}.")
        launched |= {one.number} if one.act is Act.LAUNCH else set()
    found += [f"{task.said} is never launched." for at, task in enumerate(tasks) if at not in launched]
    for one in program.commands:
        if one.act is Act.WAIT and one.number not in recorded:
            found.append(f"Stream {one.stream} waits for event {one.number}, which nobody records.")
    return found


def _unordered(tasks: Sequence[StreamTask], program: StreamProgram) -> list[str]:
    known, circle = _clocks(len(tasks), program)
    if circle:
        return [circle]
    found = [
        f"Stream {one.stream} waits for event {one.number} before it is recorded."
        for one in _early_waits(program)
    ]
    # A task's own place in its stream is what its stream had ended before it.
    for one in hazards(tasks):
        before, after = tasks[one.before], tasks[one.after]
        if known[one.after].get(before.stream, 0) <= known[one.before].get(before.stream, 0):
            does, did = one.danger.value
            found.append(
                f"{after.said} (stream {after.stream}) {does} {before.said} (stream {before.stream}) {did}, "
                "and does not wait for it."
            )
    return found


def _clocks(count: int, program: StreamProgram) -> tuple[list[Clock], str]:
    """Of each task, what had ended before it; or that streams wait for each other."""
    waiting = {stream: commands[::-1] for stream, commands in program.by_stream.items()}
    knows: dict[int, Clock] = defaultdict(Clock)
    recorded: dict[int, Clock] = {}
    before: list[Clock] = [{}] * count
    moved = True
    while moved:
        moved = False
        for stream, commands in waiting.items():
            clock = knows[stream]
            while commands and not (commands[-1].act is Act.WAIT and commands[-1].number not in recorded):
                moved, one = True, commands.pop()
                if one.act is Act.RECORD:
                    recorded[one.number] = dict(clock)
                elif one.act is Act.WAIT:
                    _join(clock, recorded[one.number])
                else:
                    before[one.number] = dict(clock)
                    clock[stream] = clock.get(stream, 0) + 1
    stuck = {stream: commands[-1].number for stream, commands in waiting.items() if commands}
    if not stuck:
        return before, ""
    each = ", ".join(f"{stream} for event {event}" for stream, event in sorted(stuck.items()))
    return before, f"Streams wait for each other in a circle: {each}."


def _early_waits(program: StreamProgram) -> list[StreamCommand]:
    recorded, found = set[int](), list[StreamCommand]()
    for one in program.commands:
        if one.act is Act.RECORD:
            recorded.add(one.number)
        elif one.act is Act.WAIT and one.number not in recorded:
            found.append(one)
    return found


def _join(clock: Clock, other: Clock) -> None:
    for stream, count in other.items():
        clock[stream] = max(clock.get(stream, 0), count)
