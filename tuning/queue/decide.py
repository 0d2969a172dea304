"""The decider: which misses are explored, how urgently, and which are not. PURE.

Worth is expected saving in microseconds: calls × time of one run × the expected share that exploring saves.
It orders every queue, and decides how much tuning an operator gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuning.priority import Priority

FLOPS_PER_US = 50_000.0  # 50 GFLOP/s: what one desktop core or two reach without being tuned
BYTES_PER_US = 10_000.0  # 10 GB/s
CALL_US = 5.0  # a framework's own cost of one call
GAIN = 0.3  # share of an operator's time that exploring saves, before anything is known about its kind
RELATED_SHARE = 0.1  # how likely an operator that was only named as related is to be met, cautiously
TRIVIAL = frozenset({
    "Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Shape", "Slice", "Split",
    "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that move data or nothing at all: a tuned schedule cannot gain anything."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The part of one miss on which the decision depends."""

    op_type: str
    flops: float
    bytes_moved: float
    peak_bytes: float
    calls: float = 1.0
    related: bool = False
    somebody_waits: bool = False
    age_s: float = 0.0
    measured_us: float | None = None  # the default's time, where it was measured before


@dataclass(frozen=True, slots=True)
class Situation:
    """The service's capacity for one target."""

    workers: int  # live ones that serve the target
    memory_bytes: int  # of the largest of them; 0: unknown
    backlog_s: float = 0.0  # until its live workers would have explored all that waits, tuning left out
    paused: str = ""  # why the queue is paused; empty: it is not
    capability: str = ""
    max_backlog_s: float = 6 * 3600.0
    floor_us: float = 1.0  # related operators below this worth are dropped once they are old
    old_s: float = 24 * 3600.0
    gains: Mapping[str, float] = field(default_factory=dict)  # op type → share saved so far


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision for a miss. ``reason``: one sentence, empty only if it is promoted."""

    verdict: Literal["promote", "wait", "postpone", "discard"]
    worth: float
    priority: Priority = Priority.NORMAL
    reason: str = ""


def estimate_us(flops: float, bytes_moved: float) -> float:
    """Roughly how long one run takes: arithmetic or memory, whichever is longer, and the call itself."""
    return max(flops / FLOPS_PER_US, bytes_moved / BYTES_PER_US) + CALL_US


def worth_of_miss_us(ask: Ask, gains: Mapping[str, float]) -> float:
    """Calls × time × expected gain."""
    time_us = ask.measured_us or estimate_us(ask.flops, ask.bytes_moved)
    certainty = RELATED_SHARE if ask.related else 1.0
    return ask.calls * time_us * gains.get(ask.op_type, GAIN) * certainty


def decide(ask: Ask, situation: Situation) -> Decision:
    """Promote, let wait, postpone or discard one miss."""
    worth = worth_of_miss_us(ask, situation.gains)
    if situation.memory_bytes and ask.peak_bytes > situation.memory_bytes:
        needs, has = ask.peak_bytes / 2**30, situation.memory_bytes / 2**30
        return Decision(
            "discard",
            worth,
            reason=f"It needs {needs:.1f} GiB of memory; the largest worker has {has:.1f} to give.",
        )
    if not situation.workers:
        return Decision("wait", worth, reason=f"No live worker serves this target ({situation.capability}).")
    if situation.paused:
        return Decision("postpone", worth, reason=situation.paused)
    if ask.related and worth < situation.floor_us and ask.age_s > situation.old_s:
        return Decision(
            "discard", worth, reason="Only ever named as related, long ago, and worth too little."
        )
    # What was asked for itself is never refused for load.
    if ask.related and situation.backlog_s > situation.max_backlog_s:
        hours = situation.backlog_s / 3600
        return Decision(
            "postpone", worth, reason=f"Named as related only, and {hours:.1f} h of work wait before it."
        )
    return Decision("promote", worth, priority_of(ask))


def priority_of(ask: Ask) -> Priority:
    """Misses with somebody waiting come first, those that were only named as related last."""
    if ask.somebody_waits:
        return Priority.URGENT
    return Priority.LOW if ask.related else Priority.NORMAL


def tuning_slices(op_type: str, default_us: float, calls: float, most: int) -> int:
    """The most slices of tuning for an operator, by the default's time and its calls. ``most``: for middling
    worth. Large ones get up to three times that; operators that take less than a framework's own call get
    none. ``worth.py`` decides whether a slice is worth its seconds."""
    if most <= 0 or all(part in TRIVIAL for part in op_type.split("+")) or default_us < 2 * CALL_US:
        return 0
    total_us = default_us * calls
    scale = 0.5 if total_us < 100 else 1.0 if total_us < 2_000 else 2.0 if total_us < 20_000 else 3.0
    return max(1, round(most * scale))
