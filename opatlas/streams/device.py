"""A device as whoever runs work in streams sees it: streams, events, launches, copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from opatlas.errors import OpatlasError
from opatlas.streams.ordering import Act, StreamCommand, StreamProgram

Call = Callable[[], object]


class StreamsFailed(OpatlasError):
    """A run in streams that did not come to its end; says which stream, and why."""


class StreamStalled(StreamsFailed):
    """A stream that did not end in its time: its kernel hangs, or its event never came."""


class StreamsLost(StreamsFailed):
    """A device that takes no more work."""


class StreamMark(Protocol):
    """A moment in a stream, by its device's clock: all marks of a device tell the same one."""

    @property
    def at_s(self) -> float:
        """Seconds; only after the run has ended."""
        ...


class Stream(Protocol):
    """What is launched in one runs in its order; nothing orders two but events."""

    def launch(self, call: Call) -> None: ...

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        """Of one shape and type. What lies in ``source`` when its turn comes counts."""
        ...

    def record(self) -> Any:
        """An event that happens when all that was launched here before has ended."""
        ...

    def wait(self, event: Any) -> None:
        """What is launched here from now on begins after the event, which has been recorded by now."""
        ...

    def mark(self) -> StreamMark:
        """The moment when all that was launched here before has ended."""
        ...


class StreamDevice(Protocol):
    """Takes work and does it in its own time.

    ``is_lost``: it takes no more, and what was launched may still be at work, so what that writes is nobody's
    any more.
    """

    is_lost: bool

    def stream(self, number: int) -> Stream: ...

    def synchronize(self, timeout_s: float) -> None:
        """Wait until all that was launched has ended. Raises :class:`StreamsFailed` where it has not, or a
        launch failed; nothing else of it begins then."""
        ...

    def forget(self) -> None:
        """What was launched and has not begun is not done."""
        ...

    def close(self) -> None:
        """Let go of its streams."""
        ...


Marks = list[tuple[StreamCommand, StreamMark, StreamMark]]
"""Launches and waits of a run, each with the moments between which it was its stream's turn."""


def run_program(
    device: StreamDevice,
    program: StreamProgram,
    calls: Sequence[Call],
    timeout_s: float,
    marks: Marks | None = None,
) -> None:
    """Hand a sound program (:func:`opatlas.streams.ordering.findings`) over and wait for its end. ``calls``:
    by task. ``marks``: a list that is filled, for a timeline. Raises :class:`StreamsFailed`."""
    events: dict[int, Any] = {}
    try:
        for command in program.commands:
            stream = device.stream(command.stream)
            if command.act is Act.RECORD:
                events[command.number] = stream.record()
                continue
            begin = None if marks is None else stream.mark()
            if command.act is Act.LAUNCH:
                stream.launch(calls[command.number])
            else:
                stream.wait(events[command.number])
            if marks is not None and begin is not None:
                marks.append((command, begin, stream.mark()))
        device.synchronize(timeout_s)
    except BaseException:  # Ctrl-C while it is handed over: half of a run must not be begun with the next
        device.forget()
        raise
