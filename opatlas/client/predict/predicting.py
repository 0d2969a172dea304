"""Runs a predictor in its own thread, waited for briefly or not at all."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

from opatlas.client.asking import Asked

PREDICT_S = 0.05
"""How long a job that must ask the service anyway waits for a prediction. A predictor that takes longer is
not waited for again before it has ended."""
LAST_S = 0.25
"""The most that closing waits."""
MOST_WAITING = 64

Predict = Callable[[Asked], list[Asked]]
Then = Callable[[list[Asked]], object]


class PredictionThread:
    """Runs ``predict``, which raises nothing. Ends with the process, or by :meth:`stop`."""

    def __init__(self, predict: Predict) -> None:
        self._predict = predict
        self._waiting: queue.Queue[tuple[Asked, Then] | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._late_at = float("inf")  # on the monotonic clock: when what it does now takes too long

    def later(self, asked: Asked, then: Then) -> bool:
        """Have ``then`` called with the prediction, from the thread; returns whether it accepted."""
        if time.monotonic() > self._late_at or not self._is_running():
            return False
        try:
            self._waiting.put_nowait((asked, then))
        except queue.Full:
            return False
        return True

    def soon(self, asked: Asked) -> Sequence[Asked]:
        """The prediction within ``PREDICT_S``; empty if it takes longer."""
        found: queue.SimpleQueue[list[Asked]] = queue.SimpleQueue()
        try:
            return found.get(timeout=PREDICT_S) if self.later(asked, found.put) else ()
        except queue.Empty:
            return ()

    def stop(self) -> None:
        """Let it finish its work, for ``LAST_S`` at most."""
        if self._thread is None:
            return
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        if time.monotonic() < self._late_at:
            self._thread.join(LAST_S)

    def _is_running(self) -> bool:
        """Raises RuntimeError if no further thread can be started."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="opatlas-predictor", daemon=True)
                    thread.start()
                    self._thread = thread
        return self._thread.is_alive()

    def _run(self) -> None:
        while (told := self._waiting.get()) is not None:
            asked, then = told
            self._late_at = time.monotonic() + PREDICT_S
            then(self._predict(asked))
            self._late_at = float("inf")
