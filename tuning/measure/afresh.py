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
from tuning.measure.process import ChildFailed
from tuning.measure.quiet import Turn
from tuning.measure.specimen import BUFFERS
from tuning.measure.subject import Subject

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
LONG_CALL_US = 20_000.0


def must_compute_afresh(subject: Subject, claimed_us: float) -> None:
    """Raises :class:`ChildFailed` (CHEATED) where new values give other results or take much longer."""
    assert subject.child is not None and subject.runner is not None
    if not subject.specimen.operator.runtime_inputs:
        return
    subject.child.resume()
    large = sum(slot.nbytes for slot in subject.answers.output_slots) > LARGE_BYTES
    for _ in range(2 if large or claimed_us > LONG_CALL_US / 4 else BURSTS):
        _fresh_us(subject, 2 + secrets.randbelow(12 if claimed_us < LONG_CALL_US / 4 else 2), compute=True)
        _judge(subject)
    best_us = float("inf")
    for _ in range(TRIES):
        calls = _how_many(claimed_us)
        copying_us = _fresh_us(subject, calls, compute=False)
        subject.ask({"do": "poison"}, Status.CRASHED)
        best_us = min(best_us, (_fresh_us(subject, calls, compute=True) - copying_us) / calls)
        _judge(subject)
        limit_us = FRESH_RATIO * claimed_us + _slack_us(subject.specimen.threads, copying_us / calls)
        if best_us <= limit_us:
            break
    else:
        known = f"{claimed_us:.3g} us on values it knows"
        raise ChildFailed(Status.CHEATED, f"a run on new values takes {best_us:.3g} us, {known}")
    subject.evidence.facts["fresh_us"] = round(best_us, 3)


def _how_many(claimed_us: float) -> int:
    if claimed_us > LONG_CALL_US:
        return BUFFERS
    usual = int(min(MOST_CALLS, max(2 * BUFFERS, BATCH_US / max(claimed_us, 0.1))))
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
    if threads == 1:
        return SLACK_US
    return THREADS_SLACK_US + (WAKE_US if copying_us > WAKE_AFTER_US else 0.0)


def _judge(subject: Subject) -> None:
    try:
        subject.judge(subject.specimen.held)
    except ChildFailed as failed:
        if failed.status in (Status.NOT_FINITE, Status.WRONG_RESULT):
            detail = f"right when checked, wrong in runs on new values: {failed.detail}"
            raise ChildFailed(Status.CHEATED, detail) from failed
        raise
