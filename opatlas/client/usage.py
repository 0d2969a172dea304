"""What a process used of its caches, reported to the service in batches: counted once, though reports are
repeated and processes are killed.

Uses are counted in memory, written into the machine's cache every few seconds, and sent from there by whoever
comes first; so what a killed process had written is sent by the next one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opatlas.client.store import EntryStore
from opatlas.errors import CallerError

if TYPE_CHECKING:
    from opatlas.client.rest import RestClient

REPORT_S = 60.0
"""Between two reports of a process, unless it ends."""
LEAVE_S = 30.0
"""A report that another process has begun to send is left to it for so long."""
MOST_USED = 1024
"""Of one report."""
NEVER_TAKEN = (400, 404, 405, 413, 422)
"""Refusals of a report that sending it again would not change; a key that is refused may be mended."""


class UsageReporter:
    """One client's uses. ``client`` names it for the service: a random number."""

    def __init__(self, job: str, store: EntryStore | None) -> None:
        self._job, self._store, self._began = job, store, time.monotonic()
        self.due_at = time.monotonic() + REPORT_S
        self.begin()

    def begin(self) -> None:
        """With a number of its own, and nothing to report; in a process that was forked too."""
        self._client = os.urandom(16).hex()
        self._lock = threading.RLock()
        self._sequence = 0
        self._used: dict[int, float] = {}
        self._written: dict[int, float] = {}  # of the report that is written down and may still change

    @property
    def is_due(self) -> bool:
        """Whether there is something to send at the end: of a process that lived for a while, of one without
        a cache, or what another left long enough ago. The uses of a short one are the next one's to send."""
        if self._store is None:
            return bool(self._used)
        age_s = self._store.report_age_s()
        return age_s > REPORT_S or (age_s > 0 and time.monotonic() - self._began > REPORT_S)

    def add(self, uses: Mapping[int, float]) -> None:
        """Calls by implementation, since the last time."""
        with self._lock:
            _add(self._used, uses)

    def keep(self) -> None:
        """Write down what is not reported yet: into the report that waits, or into a further one."""
        with self._lock:
            while self._used and self._store is not None:
                some = dict(list(self._used.items())[:MOST_USED])
                together = _add(dict(self._written), some)
                if len(together) <= MOST_USED and self._written and self._changed(together):
                    self._written = together
                elif not self._kept(some):
                    return  # later: the cache cannot be written just now
                for implementation in some:
                    del self._used[implementation]

    def send_all(self, rest: RestClient, seconds: float) -> None:
        """Send what this machine's processes have written down, those that ended long ago too, for so long at
        most. Raises :class:`opatlas.errors.OpatlasError` where the service cannot be asked: it is sent later.
        """
        self.due_at = time.monotonic() + REPORT_S
        self.keep()
        end = time.monotonic() + seconds
        if self._store is None:
            self._send_unwritten(rest)
            return
        while time.monotonic() < end and (found := self._store.claim_report(LEAVE_S)) is not None:
            name, report = found
            _send(rest, report)
            self._store.drop_report(name)

    def _send_unwritten(self, rest: RestClient) -> None:
        with self._lock:
            while self._used:
                some = dict(list(self._used.items())[:MOST_USED])
                _send(rest, self._report(self._sequence + 1, some))
                self._sequence += 1
                for implementation in some:
                    del self._used[implementation]

    def _changed(self, used: Mapping[int, float]) -> bool:
        assert self._store is not None
        return self._store.change_report(self._name(), self._report(self._sequence, used))

    def _kept(self, used: dict[int, float]) -> bool:
        assert self._store is not None
        self._sequence += 1
        self._written = used
        return self._store.keep_report(self._name(), self._report(self._sequence, used))

    def _name(self) -> str:
        return f"{self._client}-{self._sequence}"

    def _report(self, sequence: int, used: Mapping[int, float]) -> dict[str, Any]:
        items = [{"implementation": number, "calls": calls} for number, calls in sorted(used.items())]
        return {"client": self._client, "sequence": sequence, "job": self._job, "used": items}


def _send(rest: RestClient, report: Mapping[str, Any]) -> None:
    try:
        rest.call("POST", "/api/v1/usage", report)
    except CallerError as error:
        if getattr(error, "status", 0) not in NEVER_TAKEN:
            raise


def _add(to: dict[int, float], uses: Mapping[int, float]) -> dict[int, float]:
    for implementation, calls in uses.items():
        to[implementation] = to.get(implementation, 0.0) + calls
    return to
