"""Incidents of this machine's processes, on disk: the supervisor writes them, the overview shows them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

SHOWN = timedelta(hours=1)
"""How long a process's end is shown after its restart."""

AGAIN, WAITS, LEFT = "again", "waits", "left"
"""It was started again; it will be, after a while; it said itself that it cannot serve, and is left alone."""


@dataclass(frozen=True)
class Trouble:
    """The last end of one process. ``why`` is a predicate: "was killed by SIGKILL"."""

    name: str
    why: str
    at_s: float  # since 1970
    in_a_row: int  # how often by now, without a steady minute between
    state: str  # AGAIN, WAITS or LEFT
    pause_s: float  # before it is (or was) started again

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.at_s, UTC)


def write(folder: Path, troubles: Iterable[Trouble]) -> None:
    """Whole or not at all."""
    beside = folder / f".troubles.{os.getpid()}"
    beside.write_text(json.dumps([asdict(one) for one in troubles]))
    beside.replace(folder / "troubles.json")


def read(folder: Path) -> list[Trouble]:
    """Those of the last hour, and of who is not back, the latest first; none where nobody supervises."""
    try:
        found = [Trouble(**one) for one in json.loads((folder / "troubles.json").read_text())]
    except (OSError, ValueError, TypeError):
        return []
    since = datetime.now(UTC) - SHOWN
    return sorted((one for one in found if one.at > since or one.state != AGAIN), key=lambda one: -one.at_s)
