"""A client's background work, in one thread."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from opatlas.errors import OpatlasError

log = logging.getLogger("opatlas")
Errand = Callable[[], None]


class ErrandThread:
    """Runs errands one after the other. The thread begins with the first one and ends with the process.
    ``tell`` gets errors."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._errands: queue.SimpleQueue[Errand | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, errand: Errand) -> None:
        """Run it after those that wait."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="opatlas-client", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # no further thread may be had
                    self._tell(f"Nothing is fetched for later: {error}.")
                    return
                self._thread = thread
        self._errands.put(errand)

    def finish(self, timeout_s: float) -> None:
        """Wait at most so long for those in the queue."""
        if self._thread is not None:
            self._errands.put(None)
            self._thread.join(timeout_s)
            self._thread = None

    def _run(self) -> None:
        while (errand := self._errands.get()) is not None:
            try:
                errand()
            except OpatlasError as error:
                self._tell(str(error))
            except Exception:
                log.exception("What was to be done beside the job could not be.")
