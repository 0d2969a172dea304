"""Keeps one machine's processes running: one that dies or stops answering is started again.

The parent checks them. The web server is sent a request, and any answer counts; the others give signs of life
(``catalog/alive.py``) while they make progress. A process without one for ``OPATLAS_SILENT_S`` (stopped,
hung, starved) is killed with its children and started again. Without a steady minute between two starts there
are pauses, doubling up to a minute, so that nothing spins and nothing is given up.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dashboard.conf import conf
from dashboard.run import troubles
from dashboard.run.stack import Process, Stack
from dashboard.run.troubles import Trouble

LOOK_S = 0.5
ASK_EVERY_S = 5.0
START_S = 300.0
"""Until the first sign of life: a worker builds its laboratory before it takes messages."""

STEADY_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
_LONGEST_LOOK_S = 5.0


def parts_of(name: str) -> Sequence[str]:
    """The parts of a process that give signs of life."""
    return ("worker", "celery") if name.startswith("worker") else (name,)


def pause_s(in_a_row: int) -> float:
    """The pause before the next start, after so many ends without a steady minute."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(in_a_row - 1, 10))


class Silence:
    """How long each part has given no sign of life. A long gap between looks counts as a short one: a
    suspended machine gives no signs."""

    def __init__(self, parts: Sequence[str], silent_s: float, start_s: float = START_S) -> None:
        self._limits_s = silent_s, start_s
        self._seen = dict.fromkeys(parts, 0)
        self._silent_s = dict.fromkeys(parts, 0.0)

    def look(self, signs: Mapping[str, int], passed_s: float) -> str:
        """After ``passed_s``: a part that has been silent for too long, or None."""
        for part, seen in self._seen.items():
            sign = signs.get(part, 0)
            new = sign != seen
            self._silent_s[part] = 0.0 if new else self._silent_s[part] + min(passed_s, _LONGEST_LOOK_S)
            self._seen[part] = sign
        silent_s, start_s = self._limits_s
        limits = {part: silent_s if sign else start_s for part, sign in self._seen.items()}
        return next((part for part, limit_s in limits.items() if self._silent_s[part] > limit_s), "")


@dataclass
class Supervised:
    """One process by name, through all its starts. ``process`` is None between two."""

    name: str
    process: Process | None
    silence: Silence
    began: float
    due: float = 0.0
    trouble: Trouble | None = None
    in_a_row: int = 0


class Supervisor:
    """Watches a stack that has been started; ``say`` prints a line."""

    def __init__(
        self,
        stack: Stack,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        silent_s: float | None = None,
    ) -> None:
        self.stack = stack
        self.silent_s = conf().silent_s if silent_s is None else silent_s
        self._say, self._clock = say, clock
        self._looked = clock()
        self._watched = [self._begin(process) for process in stack.processes]
        self._tell()

    def run(self) -> None:
        """Until this process is told to end."""
        self.ask()
        while True:
            self.look()
            time.sleep(LOOK_S)

    def ask(self) -> None:
        """Request the web server again and again, in a thread."""
        threading.Thread(target=self._ask, name="asks the web server", daemon=True).start()

    def look(self) -> None:
        """Check all of them once."""
        now = self._clock()
        passed_s, self._looked = now - self._looked, now
        for one in self._watched:
            if one.process is None:
                if one.trouble is not None and one.trouble.state == troubles.WAITS and now >= one.due:
                    self._start(one)
            elif not one.process.alive:
                self._ended(one, _how(one.process.popen.returncode))
            elif part := one.silence.look(signs(self.stack.alive_folder(one.name)), passed_s):
                self._ended(one, f"gave no sign of life for {self.silent_s:.0f} s ({part})")
            elif one.in_a_row and now - one.began > STEADY_S:
                one.in_a_row = 0

    def _begin(self, process: Process) -> Supervised:
        silence = Silence(parts_of(process.name), self.silent_s)
        return Supervised(process.name, process, silence, self._clock())

    def _ended(self, one: Supervised, why: str) -> None:
        assert one.process is not None
        left = one.process.popen.returncode == os.EX_CONFIG
        one.process.kill_group()
        self.stack.processes.remove(one.process)
        one.process = None
        one.in_a_row += 1
        wait_s = pause_s(one.in_a_row)
        one.due = self._clock() + wait_s
        state = troubles.LEFT if left else troubles.WAITS
        one.trouble = Trouble(one.name, why, time.time(), one.in_a_row, state, wait_s)
        self._say(f"{one.name} {why}" + ("." if left else f"; starting it again in {wait_s:g} s."))
        self._tell()

    def _start(self, one: Supervised) -> None:
        fresh = self._begin(self.stack.start(one.name))
        one.process, one.silence, one.began = fresh.process, fresh.silence, fresh.began
        assert one.trouble is not None
        one.trouble = replace(one.trouble, state=troubles.AGAIN)
        self._tell()

    def _tell(self) -> None:
        with suppress(OSError):  # a full disk: the processes matter more
            troubles.write(self.stack.folder, [one.trouble for one in self._watched if one.trouble])

    def _ask(self) -> None:
        """A request to answer; the sign of life shows whether it was answered."""
        while True:
            with suppress(urllib.error.URLError, OSError, ValueError):
                urllib.request.urlopen(f"{self.stack.url}/healthz", timeout=ASK_EVERY_S).close()
            time.sleep(min(ASK_EVERY_S, self.silent_s / 4))


def signs(folder: Path) -> dict[str, int]:
    """Part → the time of its last sign of life, by any clock: only changes count."""
    try:
        return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    except OSError:
        return {}


def _how(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
