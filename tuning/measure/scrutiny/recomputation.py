"""Whether a kernel takes as long on values that it has never seen as on those it was timed on.

Timed calls repeat two input sets, since changing them would be timed too. So after the timing come runs on
sets that were drawn meanwhile (``fresh_sets``). A child is handed some of them, copies them into buffers of
their own, and then is told to run once on each: only that is timed. Every output is compared with its
reference, so the least of several times counts: no run of them was left out. What they take beyond what is
usual, and not enough to accuse anybody, counts as the kernel's time: remembering gains nothing.

Nothing is taken off that the child could make larger. Where a CPU is free, both sides spin on a flag, and the
time is the runs' own; else a handshake is in it, and only the default's is taken off. The host can only
lengthen a time: a disturbed one accuses nobody. What a process does outside of its runs shows in its CPU
time, which the parent reads.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from opatlas.cores import usable_cores
from opatlas.evidence import Evidence
from opatlas.noise import CALM_BETWEEN_S, NOISY_SHARE
from tuning.measure import procfs
from tuning.measure.outcome import Status
from tuning.measure.sandbox.process import ChildFailed, Took, Unseen
from tuning.measure.scrutiny.fresh_sets import FreshSet, FreshSets
from tuning.measure.subject import Subject
from tuning.measure.timing.quiet import Turn, wait_until_quiet

UNSEEN_RATIO, SLACK_US = 1.5, 6.0
"""To the timed calls, above which nobody is believed, and usual in one batch; beside it what the default
needs more in the same minute: the first calls after a rest take some microseconds more, and on a busy host
many."""
MORE_US = 8.0
"""Of one batch: what the default's needing more may excuse. Above it this minute tells nothing."""
POOL_RATIO, POOL_SLACK_US = 2.5, 210.0
"""The same with several threads, which have to be woken and share a CPU with the parent."""
COLD_BYTES_PER_US, WARM_BYTES = 20e3, 1 << 20
"""New values of more than a core's cache holds are not where the timed calls find theirs: an honest Add of
9 MB took 312 us instead of 43, an average pool of 5 MB 305 instead of 50."""
MOST_BATCHES, ENOUGH, ENOUGH_HEAVY = 40, 8, 3
"""In all, undisturbed ones before anybody is accused, and of heavy calls before what they take counts;"""
BEYOND_DOUBT, BEYOND_NOISE = 1.5, 3.0
"""so many times what is allowed, in the least of them; or, at the end of disturbed ones while the default was
left alone, so many. An accusation is for good: what lies between proves neither, and is noisy."""
PRESSED_US, KEPT_NS = 200, 50e3
"""Waited for a CPU by anybody on the machine, and by the parent: a batch meanwhile is no quiet one."""
OTHERS_NS = 30e3
"""CPU time that other threads may use in a batch where the setting has one thread."""
TAKING_NS, TAKING_NS_PER_BYTE, TAKING_SHARE = 3e6, 3.0, 1.3
"""CPU time that taking the values may cost beside the runs: three times what it costs here."""
ANSWER_NS = 400e3
"""From its flag to its packet: what comes later was still at work."""
OVERSPENT = 3
"""quiet batches with more."""


@dataclass
class Batches:
    """Runs of one process on new values, and what they came to. ``known_us``: of a call on known ones."""

    subject: Subject
    known_us: float
    handshake_ns: float  # of a process that is trusted
    least_ns: float = float("inf")
    counted: int = 0
    quiet: int = 0
    overspent: int = 0

    @property
    def spin(self) -> bool:
        """Whether a CPU is free for the parent to spin on."""
        return self.subject.specimen.threads < usable_cores()

    def us(self, calls: int) -> float:
        """Of one call, without the one on known values that wakes the threads of several."""
        beside_ns = 1e3 * self.known_us if self.subject.specimen.threads > 1 else 0.0
        beside_ns += 0.0 if self.spin else self.handshake_ns / 2
        return max(0.0, self.least_ns - beside_ns) / calls / 1e3

    def add(self, took: Took, calls: int, *, quiet: bool) -> None:
        """Count one batch. Raises :class:`ChildFailed` where too many spent what no time shows; such a batch
        counts for nothing."""
        helped, overspent = _helped(self.subject, took), _overspent(self.subject, took, calls)
        if self.subject.compiled and (helped or overspent):
            # A child that spins spends CPU time while we are kept from ours: that accuses nobody. Threads of
            # its own accuse it all the same: they may be why it is not quiet.
            self.overspent += quiet or bool(helped)
            if self.overspent >= OVERSPENT:
                raise ChildFailed(Status.CHEATED, helped or overspent)
            return
        self.counted += 1
        self.quiet += quiet
        self.least_ns = min(self.least_ns, took.elapsed_ns)


def must_recompute(
    subject: Subject, default: Subject, fresh: FreshSets, claimed: Evidence, processes: int = 1
) -> float | None:
    """What a call takes at least, in us: the claimed time, or more where new values show more; None where the
    host kept it from being told. Raises :class:`ChildFailed` (CHEATED) where new values give other results or
    take far longer."""
    if not subject.specimen.operator.runtime_inputs:
        return claimed.median_us
    assert default.runner is not None
    handshake_ns = default.runner.fixed_ns
    batches = Batches(subject, claimed.median_us, handshake_ns)
    # What one process of it leaves behind can tell another nothing.
    fresh.forget_used()
    fresh.draw_ahead(processes)
    with subject.as_cheat("right when checked, wrong in runs on new values"):
        subject.bind_unseen()
        counted_us = _timed(batches, Batches(default, claimed.default_us, handshake_ns), fresh)
        for wide in fresh.wide():
            _run_batch(batches, [wide])
    return counted_us


def _timed(batches: Batches, usual: Batches, fresh: FreshSets) -> float | None:
    """``usual``: the default's, whose runs on new values tell what this minute does to anybody's."""
    subject, calls = batches.subject, fresh.batch.calls
    ratio, usual_us = _usual(batches, calls)
    allowed_us = ratio * batches.known_us + usual_us
    for number in range(MOST_BATCHES):
        with subject.off_the_clock():
            sets = fresh.everyday(number)
        _run_batch(batches, sets)
        taken_us = batches.us(calls)
        subject.evidence.facts["fresh_us"] = round(taken_us, 3)
        if taken_us <= batches.known_us + usual_us:
            return batches.known_us
        subject.live.pause()  # whatever its threads do, the default is left alone
        with subject.off_the_clock():
            _controlled(usual, sets)
        if number + 1 < (ENOUGH_HEAVY if fresh.batch.heavy else ENOUGH):
            continue
        more_us = max(0.0, usual.us(calls) - usual.known_us)
        if taken_us <= allowed_us + min(more_us, MORE_US / calls):
            share = max(1.0, usual.us(calls) / usual.known_us)
            return max(batches.known_us, min(taken_us - usual_us - more_us, taken_us / share))
        beyond = BEYOND_DOUBT if batches.quiet >= ENOUGH else BEYOND_NOISE
        # Where the default is not left alone either, the host is why, however much is missing.
        alone = batches.counted >= ENOUGH and usual.quiet >= ENOUGH
        decided = batches.quiet >= ENOUGH or (number + 1 == MOST_BATCHES and alone)
        if decided and taken_us > beyond * (allowed_us + more_us):
            known = f"{batches.known_us:.3g} us on values it knows"
            raise ChildFailed(Status.CHEATED, f"a run on new values takes {taken_us:.3g} us, {known}")
    return None


def _controlled(usual: Batches, sets: Sequence[FreshSet]) -> None:
    usual.subject.renew_time()
    try:
        usual.subject.bind_unseen()
        _run_batch(usual, sets)
        usual.subject.live.pause()
    except ChildFailed as failed:
        failed.culprit = usual.subject.runner
        raise


def _usual(batches: Batches, calls: int) -> tuple[float, float]:
    """Of one call on new values: times those on known ones above which it is not believed, and us that it
    may take beside them."""
    cold_us = max(0, _moved_bytes(batches.subject) - WARM_BYTES) / COLD_BYTES_PER_US
    alone = batches.subject.specimen.threads == 1
    ratio, slack_us = (UNSEEN_RATIO, SLACK_US) if alone else (POOL_RATIO, POOL_SLACK_US)
    return ratio, slack_us / calls + cold_us


def _moved_bytes(subject: Subject) -> int:
    """Of one call: runtime inputs and outputs."""
    moved = sum(flat.nbytes for flat in subject.specimen.own[0].values())
    return moved + sum(slot.nbytes for slot in subject.answers.output_slots[0])


def _run_batch(batches: Batches, sets: Sequence[FreshSet]) -> None:
    """One batch: timed, judged, and its CPU time looked at."""
    subject, child = batches.subject, batches.subject.live
    child.resume()
    subject.must_keep_still()
    subject.answers.poison()
    subject.staging.put([one.spans for one in sets])
    ask = Unseen(len(sets), bool(secrets.randbits(1)), subject.specimen.threads > 1, batches.spin)
    pressed_us, kept_ns, turn = procfs.waiting_us(), procfs.delay_ns(os.getpid()), Turn.start(child.pid)
    took = subject.run_unseen(ask)
    kept_ns = procfs.delay_ns(os.getpid()) - kept_ns
    pressed_us = procfs.waiting_us() - pressed_us
    quiet = turn.disturbance() <= NOISY_SHARE and pressed_us < PRESSED_US and kept_ns < KEPT_NS
    _judge(subject, sets)
    batches.add(took, len(sets), quiet=quiet)
    if not quiet:
        with subject.off_the_clock():
            wait_until_quiet(CALM_BETWEEN_S)


def _judge(subject: Subject, sets: Sequence[FreshSet]) -> None:
    subject.accept(subject.ask({"do": "give", "calls": len(sets)}, Status.CRASHED))
    for call, one in enumerate(sets):
        subject.judge_call(call, one.references, one.spans, "new values")


def _helped(subject: Subject, took: Took) -> str:
    """Work of threads that the setting does not have; one sentence, or nothing."""
    if subject.specimen.threads > 1 or took.others_ns <= OTHERS_NS:
        return ""
    return f"used {took.others_ns / 1e6:.3g} ms of other threads in a run on new values, with one thread"


def _overspent(subject: Subject, took: Took, calls: int) -> str:
    """Work beside its runs, that no time shows; one sentence, or nothing."""
    if took.answer_ns > ANSWER_NS:
        return f"answered {took.answer_ns / 1e6:.3g} ms after it had said that it was done"
    allowed = TAKING_NS + calls * TAKING_NS_PER_BYTE * _moved_bytes(subject) + TAKING_SHARE * took.elapsed_ns
    if took.first_ns > allowed:
        return f"worked {(took.first_ns - took.elapsed_ns) / 1e6:.3g} ms beside its runs on new values"
    return ""
