"""What a process used of its caches, reported to the service in batches: counted once, though reports are
repeated and processes are killed.

Uses are counted in memory, written into the machine's cache every few seconds, and sent from there by whoever
comes first; so what a killed process had written is sent by the next one.
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
"""Between two reports of a process, unless it ends."""
LEAVE_S = 30.0
"""A report that another process has begun to send is left to it for so long."""
MOST_USED = 1024
"""Of one report."""
SUMS = {
    "lookups": ("cache",),
    "prefetched": ("brought", "used", "bytes", "used_bytes", "requests"),
}
"""What a report says beside the uses of implementations, where there is any: of the uses, those that the
machine's cache gave and not the process's memory; operators that came along, those of them that were used,
bytes of both, and requests for such alone."""
AGREED = "agr_"
"""How the names of agreements begin."""
OPERATOR = "o1:"
"""And those of operators."""
Uses = Mapping[int | str, float]
"""Lookups by implementation, by agreement, or (answered empty though the service was not asked) by operator;
and sums by their name."""
NEVER_TAKEN = (400, 404, 405, 413, 422)
"""Refusals of a report that sending it again would not change; a key that is refused may be mended."""


class UsageReporter:
    """One client's uses. ``client`` names it for the service: a random number. ``heard`` is told what the
    service answered to its reports, and to any of failures (:mod:`opatlas.client.loading.failing`), which
    wait beside them."""

    def __init__(
        self, job: str, store: EntryStore | None, heard: Callable[[Mapping[str, Any], Any], None]
    ) -> None:
        self._job, self._store, self._heard, self._began = job, store, heard, time.monotonic()
        self.of_neighbours: Collection[int] = ()  # implementations that were given as another target's
        self.due_at = time.monotonic() + REPORT_S
        self.begin()

    def begin(self) -> None:
        """With a number of its own, and nothing to report; in a process that was forked too."""
        self._client = os.urandom(16).hex()
        self._lock = threading.RLock()
        self._sequence = 0
        self._owes = False  # uses that cost something
        self._used: dict[int | str, float] = {}
        self._written: dict[int | str, float] = {}  # of the report that is written down and may still change

    @property
    def is_due(self) -> bool:
        """Whether there is something to send at the end: of a process that lived for a while, of one without
        a cache, or what another left long enough ago. The uses of a short one are the next one's to send,
        but for those that cost something."""
        if self._owes:
            return True
        if self._store is None:
            # What was missed is worth no request by itself.
            return any(not str(what).startswith(OPERATOR) for what in self._used)
        age_s = self._store.report_age_s()
        return age_s > REPORT_S or (age_s > 0 and time.monotonic() - self._began > REPORT_S)

    def add(self, uses: Uses, sums: Mapping[str, int], missed: Mapping[str, int]) -> None:
        """Lookups by implementation, since the last time, in the order of first use (the service learns from
        it what jobs ask next), sums by their name (``SUMS``), and by operator what was answered empty."""
        with self._lock:
            for some in (uses, sums, missed):
                _add(self._used, some)
            self._owes |= any(str(what).startswith(AGREED) for what in uses)

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
                for what in some:
                    del self._used[what]

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
        """Now, else (nobody may be asked, or can be) by whoever sends next."""
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
