"""What a process used of its caches, reported to the service in batches: counted once, though reports are
repeated and processes are killed.

Uses are counted in memory, written into the machine's cache every few seconds, and sent from there by whoever
comes first; so what a killed process had written is sent by the next one.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from typing import Any

from opatlas.client.rest import RestClient
from opatlas.client.store import EntryStore
from opatlas.errors import CallerError

REPORT_S = 60.0
"""Between two reports of a process, unless it ends."""
LEAVE_S = 30.0
"""A report that another process has begun to send is left to it for so long."""
MOST_USED = 1024
"""Of one report."""


class UsageReporter:
    """One client's uses. ``client`` names it for the service: a random number."""

    def __init__(self, rest: RestClient, store: EntryStore | None, place: bytes) -> None:
        self.client = secrets.token_hex(16)
        self._rest, self._store, self._place = rest, store, place
        self._lock = threading.Lock()
        self._sequence = 0
        self._used: dict[int, float] = {}
        self.due_at = time.monotonic() + REPORT_S

    def after_fork(self) -> None:
        """A process of its own has numbers of its own, and reports nothing of its parent's."""
        self.client, self._sequence, self._used = secrets.token_hex(16), 0, {}
        self._lock = threading.Lock()

    def add(self, uses: Mapping[int, float]) -> None:
        """Calls by implementation, since the last time."""
        with self._lock:
            for implementation, calls in uses.items():
                self._used[implementation] = self._used.get(implementation, 0.0) + calls

    def keep(self) -> None:
        """Write down what is not reported yet."""
        while self._used:
            with self._lock:
                some = dict(list(self._used.items())[:MOST_USED])
                for implementation in some:
                    del self._used[implementation]
                report = self._report(some)
            if self._store is not None:
                self._store.keep_report(self._place, f"{self.client}-{report['sequence']}", report)
            else:
                self._send(report)

    def send_all(self) -> None:
        """Send what this machine's processes have written down, those that ended long ago too. Raises
        :class:`~.rest.ServiceError` where the service cannot be asked: then it is sent later."""
        self.due_at = time.monotonic() + REPORT_S
        self.keep()
        while self._store is not None:
            found = self._store.claim_report(self._place, LEAVE_S)
            if found is None:
                return
            name, report = found
            self._send(report)
            self._store.drop_report(name)

    def _report(self, used: Mapping[int, float]) -> dict[str, Any]:
        self._sequence += 1
        items = [{"implementation": number, "calls": calls} for number, calls in sorted(used.items())]
        return {"client": self.client, "sequence": self._sequence, "job": self._rest.job, "used": items}

    def _send(self, report: Mapping[str, Any]) -> None:
        try:
            self._rest.call("POST", "/api/v1/usage", report)
        except CallerError:
            return  # the service knows no such reports, or not this one: sending it again would not help
