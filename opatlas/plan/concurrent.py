"""Runs a plan's steps in several streams at once. The addresses that steps read and write decide their order,
whatever the plan says."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from opatlas.graph.normal import ModelGraph
from opatlas.load.pool import enter_pool
from opatlas.plan.plan import InvalidPlan, PlanStep
from opatlas.plan.program import GraphProgram
from opatlas.streams.cpu_device import CpuDevice
from opatlas.streams.device import Marks, StreamDevice, run_program
from opatlas.streams.hazards import Extent, StreamTask
from opatlas.streams.ordering import Act, findings, program_of
from opatlas.streams.timeline import Timeline, TimelineBox, TimelineWait, bounded

LEAST_TIMEOUT_S = 10.0
PATIENCE = 50.0
"""A run in streams is given up after so many times the duration of its steps one after the other."""


class InStreams:
    """A settled program, run in the streams that its plan names.

    The first run executes one step after the other. So a step that fails or crashes does so alone, and later
    runs have a time limit. Raises :class:`InvalidPlan` if the streams of the program are not ordered.
    """

    def __init__(self, program: GraphProgram, device: StreamDevice) -> None:
        self.program, self.device = program, device
        tasks = self._tasks = stream_tasks(program)
        self._ordered = program_of(tasks)
        if wrong := findings(tasks, self._ordered):
            raise InvalidPlan(f"The plan cannot run in streams: {wrong[0]}")
        self._timeout_s = 0.0

    def run(self, marks: Marks | None = None) -> None:
        """Run all steps. Raises :class:`opatlas.streams.device.StreamsFailed` if a stream fails: the inputs
        are unchanged then, but if the device is lost, nothing of the program may be used again. ``marks``:
        filled for :meth:`timeline`, except by the first run, which has no streams."""
        if not self._timeout_s:
            start = time.perf_counter()
            self.program.run()
            self._timeout_s = max(LEAST_TIMEOUT_S, PATIENCE * (time.perf_counter() - start))
        else:
            run_program(self.device, self._ordered, self.program.calls[0], self._timeout_s, marks)

    def timeline(self, marks: Marks) -> Timeline:
        """A finished run: its streams as rows, and what each waited for."""
        streams = sorted(self._ordered.by_stream)
        boxes, waits = [], []
        for command, begin, end in marks:
            row, said = streams.index(command.stream), self._tasks[command.number].said
            start_us, took_us = 1e6 * begin.at_s, 1e6 * (end.at_s - begin.at_s)
            if command.act is Act.LAUNCH:
                by = self.program.run_by(command.number)
                boxes.append(TimelineBox(row, said, start_us, took_us, by=by))
            else:
                waits.append(TimelineWait(row, said, start_us, took_us))
        return bounded([f"stream {stream}" for stream in streams], boxes, waits)


def cpu_device(program: GraphProgram, threads: int) -> CpuDevice:
    """A device whose streams have thread pools of so many threads, if there are kernels."""
    if not program.artifacts:
        return CpuDevice()
    return CpuDevice(lambda stream: enter_pool(stream + 1, threads))


def stream_tasks(program: GraphProgram) -> list[StreamTask]:
    """The steps of a settled program of one turn."""
    tasks = []
    for at, step in enumerate(program.plan.steps):
        writes = [*_extents(program, step.outputs)]
        if (scratch := program.scratch.get(at)) is not None:
            writes.append(_extent(scratch))
        tasks.append(
            StreamTask(
                step_said(program.graph, at, step),
                step.stream,
                tuple(_extents(program, sorted(program.reads(step)))),
                tuple(writes),
            )
        )
    return tasks


def step_said(graph: ModelGraph, at: int, step: PlanStep) -> str:
    """The label of a step: its place in the plan, and its first node's type."""
    return f"Step {at} ({graph.nodes[step.nodes[0]].proto.op_type})"


def _extents(program: GraphProgram, numbers: Iterable[int]) -> Iterable[Extent]:
    """The addresses of values. A value without a place is a name; constants are never written."""
    for number in numbers:
        if number in program.fixed:
            yield _extent(program.arrays[0][number])
        elif not program.graph.is_constant(number):
            yield Extent(f"value {number}", 0, 1)


def _extent(array: np.ndarray) -> Extent:
    start = array.ctypes.data
    return Extent("memory", start, start + array.nbytes)
