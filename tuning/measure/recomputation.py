"""Whether a kernel takes as long on values that it has never seen as on those it was timed on.

Timed calls repeat two input sets, since changing them would be timed too. What remembers results instead of
computing them is therefore run again, on values that no two calls share; the copying is timed alone and
taken off. How many runs, and which values come last, only the parent knows; the last outputs are compared
with a reference that no child could find.
"""

from __future__ import annotations

import secrets
import time

from tuning.measure.outcome import Status
from tuning.measure.sandbox.process import ChildFailed
from tuning.measure.specimen import BUFFERS
from tuning.measure.subject import Subject
from tuning.measure.timing.quiet import Turn

FRESH_RATIO = 2.5
"""Fresh inputs lie in the copying core's cache only, and branches on them are not learnt by heart: an honest
ReLU on two threads was seen to take twice as long."""
SLACK_US, THREADS_SLACK_US = 3.0, 15.0
WAKE_US, WAKE_AFTER_US = 90.0, 30.0
"""A pool's threads sleep while longer copies go on, and have to be woken for each run."""
TRIES = 6
BURSTS, LARGE_BYTES = 6, 1 << 20
"""Further short runs of a few calls: what leaves some calls out cannot know which one is looked at. Fewer of
large outputs, whose comparison takes long."""
BATCH_US = 1500.0
MOST_CALLS = 2000
MOST_COPIED_BYTES = 256 << 20
"""Of one run: an input can be a table of which a call reads a few rows."""
MOVED_BYTES_PER_US = 20e3
"""New values of more than LARGE_BYTES are not in the cores' caches, where the timed calls find theirs: an
honest Add of 9 MB took 312 us instead of 43, an average pool of 5 MB 305 instead of 50."""
COPYING_SLACK = 0.1
"""Part of the copying by which its time differs from run to run."""
LONG_CALL_US = 20_000.0


def must_recompute(subject: Subject, claimed_us: float) -> None:
    """Raises :class:`ChildFailed` (CHEATED) where new values give other results or take much longer."""
    assert subject.child is not None and subject.runner is not None
    if not subject.specimen.operator.runtime_inputs:
        return
    subject.child.resume()
    copied = sum(flat.nbytes for flat in subject.specimen.runtime_spans())
    moved = copied + sum(slot.nbytes for slot in subject.answers.output_slots)
    large = moved > LARGE_BYTES
    most = max(BUFFERS, min(MOST_CALLS, MOST_COPIED_BYTES // max(1, copied)))
    long = claimed_us > LONG_CALL_US / 4
    for _ in range(2 if large or long else BURSTS):
        few = BUFFERS + secrets.randbelow(BUFFERS if long else min(12, most))
        _fresh_us(subject, few, compute=True)
        _judge(subject)
    if subject.artifact.manifest.kind == "recipe":
        # A library's call from our list has nothing to remember with; what keeps its outputs finds them out
        # of the caches here (a Pad of 6 MB took four times as long), and that is no deceit.
        return
    copying_us = computing_us = fresh_us = float("inf")
    for attempt in range(TRIES):
        calls = _how_many(claimed_us, most)
        # The least of each by itself: what disturbs the copying must excuse nobody.
        copying_us = min(copying_us, _fresh_us(subject, calls, compute=False) / calls)
        subject.ask({"do": "poison"}, Status.CRASHED)
        computing_us = min(computing_us, _fresh_us(subject, calls, compute=True) / calls)
        _judge(subject)
        fresh_us = max(0.0, computing_us - copying_us)
        enough = attempt > 0 or long
        slack_us = _slack_us(subject.specimen.threads, copying_us)
        slack_us += max(0, moved - LARGE_BYTES) / MOVED_BYTES_PER_US
        if enough and fresh_us <= FRESH_RATIO * claimed_us + slack_us:
            break
    else:
        known = f"{claimed_us:.3g} us on values it knows"
        raise ChildFailed(Status.CHEATED, f"a run on new values takes {fresh_us:.3g} us, {known}")
    subject.evidence.facts["fresh_us"] = round(fresh_us, 3)


def _how_many(claimed_us: float, most: int) -> int:
    if claimed_us > LONG_CALL_US:
        return BUFFERS
    usual = int(min(most, max(2 * BUFFERS, BATCH_US / max(claimed_us, 0.1))))
    return usual // 2 + secrets.randbelow(usual // 2 + 1)


def _fresh_us(subject: Subject, calls: int, *, compute: bool) -> float:
    assert subject.child is not None
    shifts = {str(number): shift for number, shift in subject.specimen.held_shifts.items()}
    subject.answers.poison()
    turn, started = Turn.start(subject.child.pid), time.perf_counter()
    command = {"do": "fresh", "calls": calls, "final": shifts, "compute": compute}
    subject.accept(subject.ask(command, Status.CRASHED))
    elapsed_us = (time.perf_counter() - started) * 1e6
    # Without the time in which it waited for a CPU: what the host does accuses nobody.
    return elapsed_us * (1 - min(1.0, turn.disturbance())) if compute else elapsed_us


def _slack_us(threads: int, copying_us: float) -> float:
    slack_us = COPYING_SLACK * copying_us
    if threads == 1:
        return slack_us + SLACK_US
    return slack_us + THREADS_SLACK_US + (WAKE_US if copying_us > WAKE_AFTER_US else 0.0)


def _judge(subject: Subject) -> None:
    try:
        subject.judge(subject.specimen.held)
    except ChildFailed as failed:
        if failed.status in (Status.NOT_FINITE, Status.WRONG_RESULT):
            detail = f"right when checked, wrong in runs on new values: {failed.detail}"
            raise ChildFailed(Status.CHEATED, detail) from failed
        raise
