"""Named places where a process can be made to fail, and a trace of who passed them. Off unless variables name
them: then passing one is a call of an empty function.

``OPATLAS_FAILPOINTS`` is ``<place>=<action>``, separated by commas. An action is ``kill`` (SIGKILL to this
process), ``stop`` (SIGSTOP) or ``sleep:<seconds>`` (a slow disk), at every pass, or with ``@3`` at the third
alone. ``OPATLAS_TRACE`` names a file to which every pass appends a line, as JSON: the moment on the machine's
monotonic clock, which no change of the wall clock moves, the process, the place, and what it says of itself.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalog.conf import conf

PLACES: Mapping[str, str] = {
    "journal-appended": "a lookup's line is in the journal, its answer has not left",
    "miss-recorded": "misses are committed, the answer has not left",
    "draining": "rows of journal lines are written, not committed",
    "store-renaming": "a file of an artifact is on the disk, not at its address",
    "store-kept": "an artifact's files are at their addresses, its row is not written",
    "publish-committing": "evidence and bests are written under the claim's fence, not committed",
    "published": "they are committed, the slice goes on",
    "claimed": "a claim is taken, no trial has begun",
    "settling": "a slice's end and its miss are written, not committed",
    "settled": "they are committed",
    "heartbeat": "leases are about to be renewed",
    "sweeping": "an expired lease was seen, its exploration is not queued again yet",
    "leading": "the leader begins a round",
    "upload-received": "an upload's bytes are in the store, it does not wait for a worker yet",
    "upload": "an upload waits for a worker, the answer has not left",
    "upload-claimed": "a claim on an upload is taken, nothing of it is taken apart",
    "taking-apart": "the child that takes an upload apart was started",
    "upload-ending": "an upload's end and what came of it are written under its claim's fence, not committed",
    "upload-ended": "they are committed, its bytes are still in the store",
    "ledger-writing": "charges, balance and counts are written, not committed",
    "outbox-writing": "messages for receivers are written, not committed",
    "delivered": "a receiver has answered, that is not noted",
    "usage-forgetting": "a closed month's rows were chosen, none is deleted",
    "tallies-summing": "hours became their days, not committed",
    "rollup-writing": "hours are made again, not committed",
    "audit-exported": "an archive of the audit log is whole, none of its rows is removed",
    "audit-removing": "a batch of archived rows is removed, not committed",
    "database-written": "any statement that writes (tests count them)",
    "database-committed": "any commit (likewise)",
}
"""Every place, and the state of things there."""


@dataclass(frozen=True)
class Fault:
    """What happens at one place. ``pass_number`` 0: at every pass."""

    act: Callable[[], None]
    pass_number: int = 0


def _off(place: str, **facts: Any) -> None:
    """No failpoint is armed."""


at: Callable[..., None] = _off
"""``failpoints.at("published", exploration=7)``: this process passes that place."""


def arm(faults: str, trace: Path | None = None) -> None:
    """Have :func:`at` do this from now on; raises ValueError with what would be right."""
    global at
    found = _parsed(faults)
    at = _Armed(found, trace) if found or trace else _off


class _Armed:
    def __init__(self, faults: Mapping[str, Fault], trace: Path | None) -> None:
        self._faults, self._trace = faults, trace
        self._passed: dict[str, int] = {}
        self._lock = threading.Lock()

    def __call__(self, place: str, **facts: Any) -> None:
        if self._trace is not None:
            append(self._trace, {"place": place, **facts})
        if (fault := self._faults.get(place)) is None:
            return
        with self._lock:
            self._passed[place] = number = self._passed.get(place, 0) + 1
        if fault.pass_number in (0, number):
            fault.act()


def append(trace: Path, line: Mapping[str, Any]) -> None:
    """Append a line to a trace in one write, so that lines of many processes stay whole."""
    whole = {"s": time.monotonic(), "pid": os.getpid(), **line}
    descriptor = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    try:
        os.write(descriptor, json.dumps(whole).encode() + b"\n")
    finally:
        os.close(descriptor)


def _parsed(faults: str) -> dict[str, Fault]:
    found = {}
    for part in filter(None, (one.strip() for one in faults.split(","))):
        place, _, action = part.partition("=")
        if place not in PLACES:
            raise ValueError(f"There is no failpoint {place!r}; there are: {', '.join(PLACES)}.")
        found[place] = _fault(action)
    return found


def _fault(action: str) -> Fault:
    said, _, number = action.partition("@")
    kind, _, seconds = said.partition(":")
    try:
        act = {"kill": _kill, "stop": _stop}.get(said) or {"sleep": _sleep}[kind](float(seconds))
        return Fault(act, int(number or 0))
    except (KeyError, ValueError):
        raise ValueError(f"A fault is kill, stop or sleep:<seconds>, with @<pass>, not {action!r}.") from None


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _sleep(seconds: float) -> Callable[[], None]:
    return lambda: time.sleep(seconds)


arm(conf().failpoints, conf().trace)
