"""What is done to the service, and when: made of a seed alone, so that the seed reproduces it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PROCESSES = ("a/web", "a/worker0", "b/web", "b/worker0", "b/courier")
"""Node and name. Each node has a web server and a worker; one has the courier."""

PLACES = {
    "web": (
        "journal-appended",
        "miss-recorded",
        "ledger-writing",
        "outbox-writing",
        "upload-received",
        "upload",
    ),
    "worker": (
        "claimed",
        "publish-committing",
        "published",
        "settling",
        "settled",
        "heartbeat",
        "sweeping",
        "leading",
        "draining",
        "store-renaming",
        "store-kept",
        "upload-claimed",
        "taking-apart",
        "upload-ending",
        "upload-ended",
    ),
    "courier": ("rollup-writing", "delivered"),
}
SLOW = {"web": "journal-appended", "worker": "store-renaming", "courier": "rollup-writing"}

BEGIN_S, EVERY_S = 5.0, (2.0, 7.0)


@dataclass(frozen=True)
class Fault:
    """One of ``faults.FAULTS``, at so many seconds from the start."""

    at_s: float
    name: str
    about: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        told = " ".join(f"{name}={value}" for name, value in self.about.items())
        return f"{self.at_s:6.1f} s  {self.name} {told}".rstrip()


def schedule(seed: int, minutes: float, names: Sequence[str]) -> list[Fault]:
    """Faults of these names for so long, in time's order. The first of each come in a random order, so that a
    run of some minutes has every kind."""
    chance = random.Random(seed)
    bag: list[str] = []
    found, at_s = [], BEGIN_S
    while at_s < minutes * 60:
        bag = bag or chance.sample(list(names), len(names))
        name = bag.pop()
        found.append(Fault(round(at_s, 1), name, _about(name, chance)))
        at_s += chance.uniform(*EVERY_S)
    return found


def kind_of(process: str) -> str:
    """``a/worker0`` → ``worker``."""
    return process.partition("/")[2].rstrip("0123456789")


def _about(name: str, chance: random.Random) -> dict[str, Any]:
    process = chance.choice(PROCESSES)
    kind, seconds = kind_of(process), round(chance.uniform(1, 6), 1)
    draws: dict[str, dict[str, Any]] = {
        "kill": {"process": process},
        "stop": {"process": process, "seconds": seconds},
        "failpoint_kill": {"process": process, "place": chance.choice(PLACES[kind]), "number": _pass(chance)},
        "failpoint_stop": {"process": process, "place": chance.choice(PLACES[kind]), "number": _pass(chance)},
        "slow_disk": {
            "process": process,
            "place": SLOW[kind],
            "seconds": round(chance.uniform(0.05, 0.4), 2),
        },
        "clock": {"process": process, "hours": chance.choice([-26, -1, 1, 26])},
        "database_gone": {"seconds": seconds},
        "network_cut": {"seconds": seconds},
        "receiver_down": {"seconds": seconds},
        "full_disk": {"node": chance.choice("ab"), "seconds": seconds},
    }
    return draws.get(name, {})


def _pass(chance: random.Random) -> int:
    return chance.choice([1, 2, 3, 5, 8])
