"""strace on a child, attached from out here: the child needs no permission and cannot let go of it.

As root, and as an ordinary user, a worker may trace what runs in the sandbox that it made: the sandbox's
user namespace is its own, and what is in it is not to be traced by its fellows only.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import threading
import time
from pathlib import Path

from tuning.measure import procfs
from tuning.measure.observing.calls import Calls

ATTACH_S = 5.0
DETACH_S = 5.0
_PLACES = "/usr/local/bin:/usr/bin:/bin"


class NotTraced(Exception):
    """Why nothing can be observed here: one sentence."""


def why_no_tracer() -> str:
    """Empty where strace is installed."""
    return "" if _strace() else "strace is not installed on this worker"


class Trace:
    """The system calls of a process and of whatever it starts, until it is closed."""

    def __init__(self, pid: int) -> None:
        self.calls = Calls()
        self._process = self._attach(pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def close(self) -> None:
        """Let go of the process and read what is left."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()  # strace detaches, and ends
        self._reader.join(DETACH_S)
        if self._reader.is_alive():
            self._process.kill()
            self._reader.join(DETACH_S)
        self._process.wait()

    def _attach(self, pid: int) -> subprocess.Popen[str]:
        program = _strace()
        if not _settled(pid):
            raise NotTraced("the child did not come to rest")
        if program is None:
            raise NotTraced(why_no_tracer())
        process = subprocess.Popen(
            [program, "-f", "-s", "128", "-p", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={"LC_ALL": "C.UTF-8"},
        )
        assert process.stderr is not None
        if not select.select([process.stderr], [], [], ATTACH_S)[0]:
            process.kill()
            process.wait()
            raise NotTraced(f"strace did not attach within {ATTACH_S:.0f} s")
        first = process.stderr.readline().strip()
        if "attached" not in first or not _is_traced(pid):
            process.kill()
            process.wait()
            raise NotTraced(f"strace cannot attach: {first[:200] or 'it says nothing'}")
        return process

    def _read(self) -> None:
        assert self._process.stderr is not None
        self.calls.read(self._process.stderr)


def _settled(pid: int) -> bool:
    """Wait until a child has started up and waits for its first command: what is traced begins there."""
    deadline = time.monotonic() + ATTACH_S
    while time.monotonic() < deadline:
        if procfs.state(pid) == "S":
            return True
        time.sleep(0.001)
    return False


def _is_traced(pid: int) -> bool:
    """Whether all threads of a process have a tracer by now."""
    deadline = time.monotonic() + ATTACH_S
    while time.monotonic() < deadline:
        tasks = procfs.threads(pid)
        if tasks and all(_tracer(pid, task) for task in tasks):
            return True
        os.sched_yield()
    return False


def _tracer(pid: int, task: int) -> int:
    try:
        text = Path(f"/proc/{pid}/task/{task}/status").read_text()
    except OSError:
        return 0
    return int(text.partition("TracerPid:")[2].split()[0])


def _strace() -> str | None:
    return shutil.which("strace", path=_PLACES)
