"""Invented misses in every state with their reasons, and an audit log."""

from __future__ import annotations

import json

import numpy as np

from bench.seed.bulk import insert
from bench.seed.catalogue import World
from bench.seed.implementations import NAME
from catalog import models
from catalog.models import MissState

AUDITED = 20_000

STATES: tuple[tuple[MissState, float, str], ...] = (
    (MissState.PROMOTED, 0.30, f"{NAME}: worth 41 ms an hour, 12 s of exploration"),
    (MissState.WAITING, 0.25, ""),
    (MissState.POSTPONED, 0.15, f"{NAME}: 12 operators of more worth wait; this one saves about 3 µs a run"),
    (MissState.UNSUPPORTED, 0.12, f"{NAME}: no route can express it"),
    (MissState.DISCARDED, 0.10, f"{NAME}: needs 41 GB of memory; the machine has 8 GB"),
    (MissState.FAILED, 0.08, f"{NAME}: every candidate failed: 2 wrong results, 1 crash"),
)
"""What the operators without implementations are in: (state, share, reason)."""


def states_of_missed(world: World) -> list[int]:
    """Indices into STATES, one for each missed operator: the same whenever it is asked."""
    shares = np.cumsum([share for _, share, _ in STATES])
    places = (np.arange(world.size.missed) * 0.6180339887) % 1.0
    return np.minimum(np.searchsorted(shares, places), len(STATES) - 1).tolist()


def add_misses(world: World) -> None:
    """One miss for each operator: those that are known are explored."""
    known, missed = world.size.known, world.size.missed
    random = world.random
    chosen = states_of_missed(world)
    total = known + missed
    asked_s = np.concatenate(
        [np.maximum(world.known_at_s[:known] - 60, 0), random.integers(0, world.now_s, missed)]
    )
    insert(
        models.Miss,
        {
            "operator_id": world.operators,
            **world.place,
            "scope": models.SHARED,
            "count": random.integers(1, 40, total),
            "calls": random.integers(1, 13, total).astype(float),
            "related": [bool(flag) for flag in random.random(total) < 0.1],
            "state": ["explored"] * known + [STATES[state][0].value for state in chosen],
            "reason": [""] * known + [STATES[state][2] for state in chosen],
            "first_asked_at": world.moments(asked_s),
            "last_asked_at": world.moments(np.minimum(asked_s + 3600, world.now_s)),
        },
    )


def add_audit(world: World) -> None:
    """What people and keys did, over the whole time."""
    count = min(AUDITED, max(world.size.usage // 500, 50))
    actions = ("exploration.priority", "queue.pause", "key.create", "kernel.approve", "environment.declare")
    owners = world.organisations
    insert(
        models.AuditEntry,
        {
            "at": world.moments(np.sort(world.random.integers(0, world.now_s, count))),
            "actor": [f"{NAME}-{number % 17}" for number in range(count)],
            "organisation_id": [owners[number % len(owners)] for number in range(count)],
            "action": [actions[number % len(actions)] for number in range(count)],
            "subject": [f"{NAME} {number}" for number in range(count)],
            "detail": json.dumps({NAME: True}),
            "request_id": "",
            "address": "192.0.2.1",
        },
    )
