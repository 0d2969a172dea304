"""What a candidate goes through when its race is over: whether the times can be true."""

from __future__ import annotations

from dataclasses import dataclass, replace

from opatlas.evidence import Evidence
from tuning.measure import procfs
from tuning.measure.outcome import Status
from tuning.measure.sandbox.process import ChildFailed
from tuning.measure.scrutiny.fresh_sets import FreshSets
from tuning.measure.scrutiny.recomputation import must_recompute
from tuning.measure.scrutiny.watch import Watch
from tuning.measure.subject import Subject
from tuning.measure.timing.timer import DEFAULT_ALONE, Flush, race

ROOFLINE_SLACK = 0.5
"""Only a time below half the floor is called a cheat: the peaks are generous, the flops are estimates."""
HELP_SHARE, HELP_NS = 0.02, 2e6
"""CPU time of other threads in a race, where the setting has one: of the first thread's, and beside it."""
HAMPERED = 1.1
"""The default in the race ÷ alone just after it: more is no noise, and not the default's."""


@dataclass(frozen=True)
class Scrutiny:
    """One candidate's race, begun. ``submitted``: somebody else wrote it, so that all doubts count."""

    subject: Subject
    default: Subject
    watch: Watch
    submitted: bool
    cpu_before: tuple[int, int]

    @classmethod
    def begin(cls, subject: Subject, default: Subject, *, looks: bool, submitted: bool) -> Scrutiny:
        assert default.runner is not None
        # Nobody pays for what a stranger left in the caches.
        default.runner.lead_in = submitted
        cpu_before = procfs.cpu_split_ns(subject.live.pid)
        return cls(subject, default, Watch(subject, looks), submitted, cpu_before)

    def end(
        self,
        timing: Evidence,
        floor_us: float,
        fresh: FreshSets,
        processes: int,
        alone_us: float,
        flush: Flush | None,
    ) -> tuple[Status, str, Evidence]:
        """OK or NOISY, why, and the times that count; ``processes``: how many of it need new values, this one
        among them; ``alone_us`` is what the default took when its operator
        was set up. Raises :class:`ChildFailed` (CHEATED)."""
        subject, default = self.subject, self.default
        assert subject.runner is not None
        least = subject.runner.least_us()
        if least < ROOFLINE_SLACK * floor_us:
            detail = f"{least:.3g} us a run; this machine cannot do it below {floor_us:.3g} us"
            raise ChildFailed(Status.CHEATED, detail)
        self._must_be_unaided()
        self.subject.must_agree_with_its_device()
        self.watch.end(thoroughly=self.submitted)
        if not self.submitted:
            # Libraries' calls and our own generators' code have nothing to remember with.
            subject.must_be_idle()
            return Status.OK, "", timing
        claimed = self._by_the_parent(timing)
        counted_us = must_recompute(subject, default, fresh, claimed, processes)
        subject.must_be_idle()
        if counted_us is None:
            return Status.NOISY, "no run on new values was quiet enough to be compared", timing
        if counted_us > claimed.median_us > 0:
            share = claimed.median_us / counted_us
            timing = replace(timing.with_ratio_times(share), median_us=timing.median_us / share)
        return Status.OK, "", self._unhampered(timing, alone_us, flush)

    def _by_the_parent(self, timing: Evidence) -> Evidence:
        """Times that runs on new values are held against, which the parent's clock takes: where the device's
        own counted (cold caches), those of the calibration."""
        subject, default = self.subject.live_runner, self.default.live_runner
        if not subject.evict_bytes:
            return timing
        return replace(timing, median_us=subject.per_call_us, default_us=default.per_call_us)

    def _must_be_unaided(self) -> None:
        """With one thread, no other thread computes: not even one that is started and ended in each call."""
        if not self.subject.compiled or self.subject.specimen.threads > 1:
            return
        child = self.subject.live
        child.pause()
        first, others = procfs.spent_ns(child.pid, self.cpu_before)
        if others > HELP_SHARE * first + HELP_NS:
            used = f"{others / 1e6:.3g} ms of CPU time, its first {first / 1e6:.3g}"
            raise ChildFailed(Status.CHEATED, f"other threads used {used}, with one thread")

    def _unhampered(self, timing: Evidence, alone_us: float, flush: Flush | None) -> Evidence:
        """Against the default as it is alone, where it was slower beside this candidate."""
        if timing.default_us <= HAMPERED * alone_us:
            return timing
        assert self.default.runner is not None
        self.subject.live.pause()
        alone_us = race([self.default.runner], DEFAULT_ALONE, flush).timings[0].median_us
        if timing.default_us <= HAMPERED * alone_us:
            return timing
        self.subject.evidence.facts["default_alone_us"] = round(alone_us, 3)
        return replace(timing.with_ratio_times(alone_us / timing.default_us), default_us=alone_us)
