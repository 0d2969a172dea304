"""A session's share of engines, and the session of fewer threads that runs there in its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from opatlas.plan.engines import Engines, EngineShare
from opatlas.streams.timeline import Timeline


class Sharer(Protocol):
    """The interface of a session of fewer threads."""

    def share(self, engines: Engines | None, name: str = "model", *, priority_s: float = 0.0) -> None:
        """Run on these engines from now on."""

    def close(self) -> None:
        """Release what it holds."""


Other = TypeVar("Other", bound=Sharer)


class Sharing(Generic[Other]):
    """``make``: makes a session of the same model on so many threads, or None. ``share``: the model's share
    of the engines, None while it runs alone; ``instead``: the session that runs there, None if it is this
    one."""

    def __init__(self, threads: int, make: Callable[[int], Other | None]) -> None:
        self.share: EngineShare | None = None
        self.instead: Other | None = None
        self._threads, self._make = threads, make
        self._made: dict[int, Other] = {}

    def begin(self, engines: Engines, name: str, priority_s: float) -> None:
        """Take part from now on."""
        self.share, self.instead = engines.share(name, priority_s), None
        if engines.threads < self._threads:
            self.instead = self._on(engines.threads)
            if self.instead is not None:
                self.instead.share(engines, name, priority_s=priority_s)

    def end(self) -> None:
        """Run alone again."""
        self.share = self.instead = None

    def timeline(self, run: Callable[[], object]) -> Timeline | None:
        """The timeline of ``run`` on the engines; None if it did not run there."""
        if self.share is None:
            return None
        since = time.monotonic()
        run()
        found = self.share.engines.timeline(since).of_model(self.share.model)
        return found if found.boxes else None

    def close(self) -> None:
        """Close the sessions that were made."""
        for one in self._made.values():
            one.close()

    def _on(self, threads: int) -> Other | None:
        if threads not in self._made and (made := self._make(threads)) is not None:
            self._made[threads] = made
        return self._made.get(threads)
