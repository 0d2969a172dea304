"""Implementations that fail on this machine: no further process runs them, and they are reported.

What is known of one is stored beside its artifact's files, for all processes of the machine. A kernel that
kills its process can write nothing. So a file says that it is being tried, under a lock that ends with the
process: a file without a holder was left by a process that died.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opatlas.errors import printable

log = logging.getLogger("opatlas")

ASK_AGAIN_S = 600.0
"""How often a machine asks what became of its report."""
LOAD, RUN, CRASH = "load", "run", "crash"
"""Where it failed. What cannot be loaded is tried again all the same: the machine may have been mended."""
NOT_REPRODUCED = "not_reproduced"
"""The service's answer if a worker has verified the implementation again without a failure."""
_MARK, _TRYING = "failing.json", "trying-"

_went_well: set[str] = set()
"""Artifacts that this process has run."""


@dataclass(frozen=True)
class FailureWatch:
    """For one artifact with its files in ``folder``. ``report`` gets failures, and is quick."""

    best: Mapping[str, Any]
    folder: Path
    report: Callable[[Mapping[str, Any]], None]
    compiled: bool

    @property
    def artifact(self) -> str:
        return str(self.best["artifact"])

    def why_not(self) -> str:
        """Why it must not run on this machine; empty if it may."""
        if self.compiled and self.artifact not in _went_well and _was_left(self.folder):
            self.failed(CRASH, "Crash", "a process died while it ran it for the first time")
        mark = read_mark(self.folder)
        if mark.get("state") != "failing" or mark.get("where") == LOAD:
            return ""
        told = mark["report"]
        if not mark["final"] and time.time() - mark["asked_at"] > ASK_AGAIN_S:
            write_mark(self.folder, {**mark, "asked_at": time.time()})
            self.report(told)  # whose answer says what a worker has found
        return f"it failed on this machine ({told['error']}: {told['message']})"

    def failed(self, where: str, error: str, message: str) -> None:
        """No process of this machine runs it again, until a worker has verified it; and then once more at
        most. Reported once."""
        before = read_mark(self.folder)
        if before.get("state") == "failing" and where in (LOAD, before.get("where")):
            return
        told = {
            "implementation": self.best["implementation"],
            "artifact": self.artifact,
            "where": where,
            "error": printable(error, 80),
            "message": printable(message),
        }
        final = before.get("state") == "cleared"
        mark = {"state": "failing", "where": where, "final": final, "asked_at": time.time(), "report": told}
        write_mark(self.folder, mark)
        label = printable(f"{self.best.get('route', '')}: {self.best.get('label', '')}")
        log.warning("%s (artifact %s…) does not work here: %s", label, self.artifact[:12], told["message"])
        self.report(told)

    @contextlib.contextmanager
    def trying(self) -> Iterator[None]:
        """Entered around what may kill the process: loading a compiled kernel, and its first calls."""
        if not self.compiled or self.artifact in _went_well:
            yield
            return
        with _being_tried(self.folder):
            yield

    def went_well(self) -> None:
        _went_well.add(self.artifact)


def report_of(failed: Mapping[str, Any], job: str, versions: Mapping[str, str]) -> dict[str, Any]:
    """The report of one failure (``POST /api/v1/failures``)."""
    return {"failed": [dict(failed)], "job": job, "versions": dict(versions)}


def hear(report: Mapping[str, Any], answer: Any, folder_of: Callable[[str], Path]) -> None:
    """The service's answer to a report: if a worker could not reproduce it, the artifact gets one more chance
    on this machine."""
    try:
        states = {row["artifact"]: row["state"] for row in answer["results"]}
    except (KeyError, TypeError):
        return
    for one in report["failed"]:
        folder = folder_of(one["artifact"])
        mark = read_mark(folder)
        if (
            states.get(one["artifact"]) == NOT_REPRODUCED
            and mark.get("state") == "failing"
            and not mark["final"]
        ):
            write_mark(folder, {"state": "cleared"})


def read_mark(folder: Path) -> Mapping[str, Any]:
    """What is known of an artifact on this machine; empty if that cannot be read."""
    try:
        mark = json.loads((folder / _MARK).read_bytes())
        if mark["state"] == "failing":
            told, _ = mark["report"], (mark["where"], mark["final"], float(mark["asked_at"]))
            str(told["error"]), str(told["message"])
        return dict(mark)
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_mark(folder: Path, mark: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):  # a full disk: this process knows, others find out by themselves
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{_MARK}.{os.getpid()}"
        part.write_text(json.dumps(mark))
        part.replace(folder / _MARK)


@contextlib.contextmanager
def _being_tried(folder: Path) -> Iterator[None]:
    path = folder / f"{_TRYING}{os.getpid()}-{os.urandom(4).hex()}"
    try:
        held = (folder / f".{path.name}").open("xb")
        fcntl.flock(held, fcntl.LOCK_EX)
        Path(held.name).rename(path)  # locked before anybody can see it
    except OSError:  # it cannot be written down: it is tried all the same
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        held.close()


def _was_left(folder: Path) -> bool:
    """Whether a process died while trying it; reported once."""
    left = False
    for path in folder.glob(f"{_TRYING}*"):
        with contextlib.suppress(OSError), path.open("rb") as found:  # locked: it is being tried just now
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()  # fails where its process has finished meanwhile
            left = True
    return left
