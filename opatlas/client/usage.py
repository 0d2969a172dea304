"""A process's uses of its caches, reported to the service in batches and counted once, even if reports are
repeated and processes killed.

Uses are counted in memory, written into the machine's cache every few seconds, and sent from there by any
process. So the next process sends what a killed one has written.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from opatlas.client.cache.store import EntryStore
from opatlas.errors import CallerError, OpatlasError

if TYPE_CHECKING:
    from opatlas.client.service.rest import RestClient

REPORT_S = 60.0
"""How often a process reports; also at its end."""
LEAVE_S = 30.0
"""How long a report that another process is sending is left to it."""
MOST_USED = 1024
"""The most uses in one report."""
SUMS = {
    "lookups": ("cache",),
    "prefetched": ("brought", "used", "bytes", "used_bytes", "requests"),
}
"""Sums in a report beside the uses, if any: uses from the machine's cache instead of memory; operators that
came along, those that were used, bytes of both, and requests for these alone."""
AGREED = "agr_"
"""The prefix of agreements' names."""
OPERATOR = "o1:"
"""The prefix of operators' keys."""
Uses = Mapping[int | str, float]
"""Lookups by implementation, by agreement, or (answered empty without asking) by operator; and sums by
name."""
NEVER_TAKEN = (400, 404, 405, 413, 422)
"""Refusals that would be the same if the report were sent again; a refused key may be renewed."""


class UsageReporter:
    """One client's uses. ``client``: its random number for the service. ``heard`` gets the service's answers
    to its reports, and to reports of failures (:mod:`opatlas.client.loading.failing`), which wait beside
    them."""

    def __init__(
        self, job: str, store: EntryStore | None, heard: Callable[[Mapping[str, Any], Any], None]
    ) -> None:
        self._job, self._store, self._heard, self._began = job, store, heard, time.monotonic()
        self.of_neighbours: Collection[int] = ()  # implementations that were given as another target's
        self.due_at = time.monotonic() + REPORT_S
        self.begin()

    def begin(self) -> None:
        """Start with a new number and nothing to report; in a forked process too."""
        self._client = os.urandom(16).hex()
        self._lock = threading.RLock()
        self._sequence = 0
        self._owes = False  # uses that cost something
        self._used: dict[int | str, float] = {}
        self._written: dict[int | str, float] = {}  # of the report that is written down and may still change

    @property
    def is_due(self) -> bool:
        """Whether to send something at the end: the uses of a process that lived for a while or has no cache,
        charged uses, or reports that another process left long enough ago. Other uses of a short process are
        sent by the next one."""
        if self._owes:
            return True
        if self._store is None:
            # What was missed is worth no request by itself.
            return any(not str(what).startswith(OPERATOR) for what in self._used)
        age_s = self._store.report_age_s()
        return age_s > REPORT_S or (age_s > 0 and time.monotonic() - self._began > REPORT_S)

    def add(self, uses: Uses, sums: Mapping[str, int], missed: Mapping[str, int]) -> None:
        """Add lookups by implementation since the last call, in the order of first use (from which the
        service learns what jobs ask next), sums by name (``SUMS``), and lookups answered empty by
        operator."""
        with self._lock:
            for some in (uses, sums, missed):
                _add(self._used, some)
            self._owes |= any(str(what).startswith(AGREED) for what in uses)

    def keep(self) -> None:
        """Write unreported uses down, in the waiting report or a new one."""
        with self._lock:
            while self._used and self._store is not None:
                some = dict(list(self._used.items())[:MOST_USED])
                together = _add(dict(self._written), some)
                if len(together) <= MOST_USED and self._written and self._changed(together):
                    self._written = together
                elif not self._kept(some):
                    return  # later: the cache cannot be written just now
                for what in some:
                    del self._used[what]

    def send_all(self, rest: RestClient, seconds: float) -> None:
        """Send what this machine's processes have written down, including ended ones, for at most so long.
        Raises :class:`opatlas.errors.OpatlasError` if the service cannot be asked: it is sent later."""
        self.due_at = time.monotonic() + REPORT_S
        self.keep()
        end = time.monotonic() + seconds
        if self._store is None:
            self._send_unwritten(rest)
            return
        while time.monotonic() < end and (found := self._store.claim_report(LEAVE_S)) is not None:
            name, report = found
            self._send(rest, report)
            self._store.drop_report(name)
        self._owes = False

    def _send_unwritten(self, rest: RestClient) -> None:
        with self._lock:
            while self._used:
                some = dict(list(self._used.items())[:MOST_USED])
                self._send(rest, self._report(self._sequence + 1, some))
                self._sequence += 1
                for what in some:
                    del self._used[what]

    def send_failure(self, rest: RestClient | None, report: Mapping[str, Any]) -> None:
        """Send it now, or leave it to the next process that can ask the service."""
        try:
            if rest is not None:
                return self._send(rest, report)
        except OpatlasError:
            pass
        if self._store is not None:
            self._store.keep_report(f"failed-{os.urandom(16).hex()}", report)
        return None

    def _send(self, rest: RestClient, report: Mapping[str, Any]) -> None:
        failed = "failed" in report
        try:
            answer = rest.call("POST", "/api/v1/failures" if failed else "/api/v1/usage", report)
        except CallerError as error:
            if getattr(error, "status", 0) not in NEVER_TAKEN:
                raise
        else:
            if failed or report.get("client") == self._client:
                self._heard(report, answer)

    def _changed(self, used: Uses) -> bool:
        assert self._store is not None
        return self._store.change_report(self._name(), self._report(self._sequence, used))

    def _kept(self, used: dict[int | str, float]) -> bool:
        assert self._store is not None
        self._sequence += 1
        self._written = used
        return self._store.keep_report(self._name(), self._report(self._sequence, used))

    def _name(self) -> str:
        return f"{self._client}-{self._sequence}"

    def _report(self, sequence: int, used: Uses) -> dict[str, Any]:
        # Services from before "lookups" take "calls" for them.
        items = [
            {"implementation": it, "calls": lookups, "lookups": int(lookups)}
            for it, lookups in used.items()
            if isinstance(it, int)
        ]
        for item in items:
            if item["implementation"] in self.of_neighbours:
                item["from_neighbour"] = True
        report: dict[str, Any] = {
            "client": self._client,
            "sequence": sequence,
            "job": self._job,
            "used": items,
        }
        agreed = {what: n for what, n in used.items() if isinstance(what, str) and what.startswith(AGREED)}
        if agreed:
            report["agreed"] = [{"agreement": what, "uses": int(n)} for what, n in agreed.items()]
        for group, names in SUMS.items():
            if sums := {name: int(used[name]) for name in names if name in used}:
                report[group] = sums
        missed = {what: int(n) for what, n in used.items() if isinstance(what, str) and OPERATOR in what}
        if missed:
            report["missed"] = [{"operator": key, "lookups": lookups} for key, lookups in missed.items()]
            # Services from before count their sum for the job, and not for each operator.
            report.setdefault("lookups", {})["missed"] = sum(missed.values())
        return report


def _add(to: dict[int | str, float], uses: Mapping[Any, float]) -> dict[int | str, float]:
    for what, count in uses.items():
        to[what] = to.get(what, 0.0) + count
    return to
