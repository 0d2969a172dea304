"""Random work over a small memory: each task makes a number of all that it reads, so wrong orders show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

from opatlas.streams.device import Call
from opatlas.streams.hazards import Extent, StreamTask
from opatlas.streams.ordering import Act, StreamCommand, StreamProgram

CELLS = 64
Result = tuple[list[int], dict[int, int]]


class RandomWork:
    """The same for the same seed. Places are used again and again, as a buffer that values share is."""

    def __init__(self, seed: int, tasks: int = 14, streams: int = 3) -> None:
        random = Random(seed)
        self.tasks = [
            StreamTask(
                f"task {number}",
                random.randrange(streams),
                tuple(_extent(random) for _ in range(random.randrange(3))),
                tuple(_extent(random) for _ in range(random.randrange(1, 3))),
            )
            for number in range(tasks)
        ]

    def calls(self) -> tuple[list[Call], Result]:
        """Of each task, and what they leave: the memory, and what each made."""
        memory, made = [-1] * CELLS, dict[int, int]()
        return [partial(_run, number, task, memory, made) for number, task in enumerate(self.tasks)], (
            memory,
            made,
        )

    def one_by_one(self) -> Result:
        calls, result = self.calls()
        for call in calls:
            call()
        return result


def _extent(random: Random) -> Extent:
    start = random.randrange(CELLS - 4)
    return Extent("memory", start, start + random.randrange(1, 5))


def _run(number: int, task: StreamTask, memory: list[int], made: dict[int, int]) -> None:
    read = tuple(cell for one in task.reads for cell in memory[one.start : one.end])
    made[number] = hash((number, *read))
    for one in task.writes:
        for cell in range(one.start, one.end):
            memory[cell] = hash((made[number], cell))


def without_each_wait(program: StreamProgram) -> Iterator[tuple[StreamCommand, StreamProgram]]:
    """The program with one wait less, for each."""
    for at, one in enumerate(program.commands):
        if one.act is Act.WAIT:
            rest = program.commands[:at] + program.commands[at + 1 :]
            yield one, replace(program, commands=rest)
