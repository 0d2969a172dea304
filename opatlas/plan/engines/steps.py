"""What engines that models share are given, and what becomes of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from opatlas.errors import OpatlasError
from opatlas.load.pool import enter_pool
from opatlas.streams.device import Call, StreamStalled

here = threading.local()  # an engine's thread: the pool that is its own, and its threads; until it has it


def with_own_pool(call: Call) -> Call:
    """Compiled kernels of this call run on a thread pool of the engine's own: a second one at the same time
    on everybody's would have one thread."""

    def run() -> None:
        if (pool := getattr(here, "pool", None)) is not None:
            here.pool = None
            enter_pool(*pool)
        call()

    return run


class DeadlinePassed(OpatlasError):
    """A run that could not end by when it had to; nothing of it is at work any more."""


class EngineStalled(StreamStalled):
    """A step that does not end. It may go on, and write: what it has in its hands is nobody's any more."""


@dataclass(frozen=True, slots=True)
class EngineStep:
    """A piece of a run. ``needs``: the numbers of those that end before it begins, all smaller than its own.
    ``reference_s``: what it takes alone, None where nobody knows. ``confined``: what its whole process shares
    (threads of PyTorch, of XLA), so all of this kind run on one engine."""

    said: str
    call: Call
    needs: frozenset[int] = frozenset()
    reference_s: float | None = None
    confined: bool = False
    by: Callable[[], str] = str  # what people read of who runs it now


@dataclass(frozen=True, slots=True)
class EngineWait:
    """One step on its engine, by the engines' clock: as its wait was expected, and as it came."""

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
