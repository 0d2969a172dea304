"""Compares some of a session's first runs with ONNX Runtime, on the caller's own inputs.

Candidates that agree on an example may differ on other inputs: indices beyond 32 bits, numbers that wrap
around, NaN. So ONNX Runtime also executes some of the first runs, with the model as the caller gave it. If
its values differ, the caller gets them, and it runs the model from then on.
"""

from __future__ import annotations

import copy
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opatlas.errors import first_line
from opatlas.graph.normal import ModelGraph
from opatlas.graph.weights import weight_bytes
from opatlas.load.onnxruntime_recipe import ask_exact, resting_options
from opatlas.memory import lacking, resident_bytes
from opatlas.plan.closeness import is_close
from opatlas.plan.limits import TookTooLong, run_within
from opatlas.plan.regions import OnnxRuntimeRegion, open_session
from opatlas.session.held_schedule import HeldSchedule
from opatlas.session.io_binding import as_array

log = logging.getLogger("opatlas")
COPIES = 3
"""Copies of the weights while ONNX Runtime loads the model: as read, as it lays them out, and its own."""

Named = Mapping[str, Any]
Left = Callable[[str, Named, Named, OnnxRuntimeRegion], None]
"""Called when ONNX Runtime has to run the model from now on: why, the inputs, its outputs (None if it fails),
and its loaded model."""


class HeldRuns:
    """The compared runs of a session for a model (``graph``: as the caller gave it).

    At most ``most`` runs are compared, each for at most ``limit_s``. ``exact``: as for the session's own ONNX
    Runtime. ``is_own``: whether something else than ONNX Runtime runs these inputs. ``if_open``: ONNX
    Runtime's session of the model if there is one; otherwise one is opened, and closed after the last
    comparison. ``over``: why no further run is compared, "" while some are. ``peak_bytes``: about the most
    extra memory that this took. One run is compared at a time; others at the same moment go on as they are.
    """

    def __init__(
        self,
        graph: ModelGraph,
        threads: int,
        most: int,
        limit_s: float,
        *,
        exact: bool,
        is_own: Callable[[Named], bool],
        if_open: Callable[[], Any] = lambda: None,
        left: Left,
    ) -> None:
        self._graph, self._threads, self._exact, self._left = graph, threads, exact, left
        self._limit_s, self._is_own, self._if_open = limit_s, is_own, if_open
        self.schedule = HeldSchedule(most)
        self.over = ""
        self.peak_bytes = self._before = 0
        self._session: Any = None
        self._lock = threading.Lock()  # of the schedule
        self._holding = threading.Lock()
        if graph.is_random:
            self.over = "the model has random numbers, of which no two runs can be compared"
        elif not most:
            self.over = "no runs are to be held"

    def run(self, feed: Named, run: Callable[[], Named], left_s: float = math.inf) -> Named:
        """The outputs of ``run`` by name, or ONNX Runtime's if they differ. ``left_s``: how long the caller
        can wait. Raises what ``run`` raises: if ONNX Runtime fails over the inputs, it runs once more after
        ``left`` was called."""
        with self._lock:
            is_due = not self.over and self.schedule.is_due
        if not is_due or not self._holding.acquire(blocking=False):
            return self._timed(run)[0]
        try:
            if (own := self._copied(feed)) is None:
                return run()
            made, took_s = self._timed(run)
            end = time.perf_counter() + left_s - took_s
            if not made or left_s <= took_s or (session := self._opened()) is None:
                return made
            return self._held(session, own, made, run, end)
        finally:
            self._holding.release()

    def close(self, why: str = "the session was closed") -> None:
        """Compare no further run, and release ONNX Runtime's session."""
        self.over = self.over or why
        self._session = None

    def _copied(self, feed: Named) -> Named | None:
        """A copy of the inputs, in case they are overwritten; None if ONNX Runtime runs or refuses them."""
        try:
            given = {name: as_array(value) for name, value in feed.items()}
            return {name: _own(value) for name, value in given.items()} if self._is_own(given) else None
        except Exception:  # no value that is read here: nor does a plan take it
            return None

    def _timed(self, run: Callable[[], Named]) -> tuple[Named, float]:
        start = time.perf_counter()
        made = run()
        took_s = time.perf_counter() - start
        with self._lock:
            self.schedule.ran(took_s)
        return made, took_s

    def _held(self, session: Any, feed: Named, made: Named, run: Callable[[], Named], end: float) -> Named:
        start = time.perf_counter()
        if (limit_s := min(self._limit_s, end - start)) <= 0:  # opening took all the time
            return made
        try:
            theirs = self._theirs(session, feed, list(made), limit_s)
        except TookTooLong:
            if limit_s == self._limit_s:
                self.close(f"ONNX Runtime did not end a run within {limit_s:g} s")
            with self._lock:  # else each run that is due would take all the time that its caller has
                self.schedule.gave_up(time.perf_counter() - start)
            return made
        except Exception as error:
            if _is_memory(error):
                self.close(f"there is too little memory: {first_line(error)}")
                return made
            self._differs(f"ONNX Runtime fails where it gave values ({first_line(error)})", feed, {}, session)
            return run()
        with self._lock:
            self.schedule.was_held(time.perf_counter() - start)
        if other := [name for name, one in theirs.items() if not is_close(made[name], one)]:
            named = ", ".join(repr(name) for name in other[:3])
            self._differs(f"it gave other values than ONNX Runtime for {named}", feed, theirs, session)
            return theirs
        if self.schedule.is_over:
            self.close("as many runs as asked for were held")
        return made

    def _differs(self, what: str, feed: Named, theirs: Named, session: Any) -> None:
        reason = f"{what} on the caller's inputs, in run {self.schedule.runs}"
        names = self._graph.input_names, self._graph.output_names
        region = OnnxRuntimeRegion.around(session, *names)
        self.close(reason)
        self._left(reason, feed, theirs, region)

    def _opened(self) -> Any:
        """ONNX Runtime's session of the model; None if it cannot be opened."""
        if (found := self._session) is not None:
            return found
        self._before = resident_bytes()
        if (found := self._if_open()) is not None:
            return found
        reason = lacking(COPIES * weight_bytes(self._graph.model))
        if not reason:
            options = resting_options(self._threads)
            if self._exact:
                ask_exact(options)
            try:
                found = self._session = open_session(self._graph.model, options)
            except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
                reason = f"ONNX Runtime does not take the model: {first_line(error)}"
        if reason:
            log.info("No run of the session is held against ONNX Runtime: %s", reason)
            self.close(reason)
        if self.over:  # closed meanwhile
            found = self._session = None
        return found

    def _theirs(self, session: Any, feed: Named, names: Sequence[str], limit_s: float) -> Named:
        found = run_within(session, names, feed, limit_s)
        self.peak_bytes = max(self.peak_bytes, resident_bytes() - self._before)
        return dict(zip(names, found, strict=True))


def _own(value: Any) -> Any:
    return np.array(value, order="C") if isinstance(value, np.ndarray) else copy.deepcopy(value)


def _is_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "alloc" in str(error).lower()
