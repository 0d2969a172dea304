"""The steps that engines run, and how they end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from opatlas.errors import OpatlasError
from opatlas.load.pool import enter_pool
from opatlas.streams.device import Call, StreamStalled

here = threading.local()  # an engine's thread: the pool that is its own, and its threads; until it has it


def with_own_pool(call: Call) -> Call:
    """Make the compiled kernels of this call use the engine's own thread pool: on the shared pool, a second
    call at the same time would have one thread."""

    def run() -> None:
        if (pool := getattr(here, "pool", None)) is not None:
            here.pool = None
            enter_pool(*pool)
        call()

    return run


class DeadlinePassed(OpatlasError):
    """A run that could not end in time; none of its steps is at work any more."""


class EngineStalled(StreamStalled):
    """A step that does not end. It may still write, so its memory must not be used again."""


@dataclass(frozen=True, slots=True)
class EngineStep:
    """A piece of a run. ``needs``: numbers of steps that must end before, all smaller than its own.
    ``reference_s``: its time alone, None if unknown. ``confined``: the resource that the whole process shares
    (threads of PyTorch or XLA); all steps with the same one run on one engine."""

    said: str
    call: Call
    needs: frozenset[int] = frozenset()
    reference_s: float | None = None
    confined: bool = False
    by: Callable[[], str] = str  # what people read of who runs it now


@dataclass(frozen=True, slots=True)
class EngineWait:
    """One step on its engine, by the engines' clock: its expected and its real wait."""

    model: str
    said: str
    engine: str
    placed_at: float
    began_at: float
    ended_at: float
    expected_s: float
    by: str = ""

    @property
    def waited_s(self) -> float:
        return self.began_at - self.placed_at
