"""Ringing doorbells without ever waiting for the broker."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Iterable

# At the top, so that Celery is imported before there are threads: it and vine have subclasses of Callable
# that name themselves when asked, and an isinstance(…, Callable) of another thread raises until they have
# their name.
from tuning.celery import BELL_EXPIRES_S, WAKE, app

logger = logging.getLogger(__name__)

FAREWELL_S = 0.2  # how long a process that ends waits for its last bells


class Bell:
    """One background thread rings for a process, so that a broker that hangs delays nobody.

    Bells for the same queue that wait to be rung are one. A bell that fails is logged and forgotten: the
    leader rings again while work waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._waiting: set[str] = set()
        self._ringing = False
        self._thread: threading.Thread | None = None
        self._pid = 0

    def ring(self, capabilities: Iterable[str]) -> None:
        """Have the workers of these capabilities woken soon. Returns at once."""
        names = set(capabilities)
        if not names:
            return
        with self._lock:
            self._waiting |= names
            if self._pid != os.getpid() or self._thread is None or not self._thread.is_alive():
                # A forked child has inherited the object, but not its thread.
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._run, name="doorbell", daemon=True)
                self._thread.start()
            self._lock.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until nothing waits to be rung; False when that took longer than the timeout."""
        if self._pid != os.getpid():
            return True
        with self._lock:
            return self._lock.wait_for(lambda: not self._waiting and not self._ringing, timeout_s)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._ringing = False
                self._lock.notify_all()
                self._lock.wait_for(lambda: bool(self._waiting))
                capabilities, self._waiting = self._waiting, set()
                self._ringing = True
            for capability in sorted(capabilities):
                _ring_now(capability)


def _ring_now(capability: str) -> None:
    """Send one doorbell; logs when the broker cannot be reached."""
    try:
        app.send_task(WAKE, queue=capability, expires=BELL_EXPIRES_S, retry=False, ignore_result=True)
    except Exception as error:  # whatever the broker's library raises: the work is safe in the database
        logger.warning("Could not ring %s (%s): the leader will ring again.", capability, error)


bell = Bell()
# A command that looks up and ends would else take its bell with it.
atexit.register(bell.flush, FAREWELL_S)
os.register_at_fork(after_in_child=lambda: setattr(bell, "_lock", threading.Condition()))


def ring_for_misses(sender: object = None, *, capabilities: Iterable[str] = (), **kwargs: object) -> None:
    """Receiver of ``catalog.signals.misses_recorded``: sent after the misses were committed."""
    bell.ring(capabilities)
