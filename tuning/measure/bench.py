"""One operator on the bench, with a live default to time every candidate against."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opatlas.evidence import Evidence
from opatlas.identity import Setting, Target
from opatlas.memory import total_bytes
from opatlas.noise import SITTINGS
from tuning.measure.device.watch import DeviceWatch, claim_bytes, summary
from tuning.measure.judging.roofline import floor_us
from tuning.measure.kept import KeptSetUp, KeptSetUps
from tuning.measure.outcome import NO_MATTER, LineUp, Matter, Outcome, Status
from tuning.measure.sandbox.process import Bounds, ChildFailed
from tuning.measure.sandbox.zygote import Zygote
from tuning.measure.scrutiny.after_race import Scrutiny
from tuning.measure.scrutiny.fresh_sets import FreshSets
from tuning.measure.scrutiny.referees import Referees
from tuning.measure.specimen import Specimen, needed_bytes, tensor_bytes
from tuning.measure.subject import Subject
from tuning.measure.timing.caches import CacheFlusher, evicting_bytes
from tuning.measure.timing.lock import MachineLock
from tuning.measure.timing.stats import ProcessSpread
from tuning.measure.timing.timer import CONTEST, DEFAULT_ALONE, LINE_UP, Effort, Flush, Runner, race
from tuning.routes.base import BuiltArtifact

MEMORY_SHARE, CHILD_BYTES = 0.3, 200 << 20
"""Of the machine's memory for all candidates of one heat, and what a process takes beside its tensors."""


@dataclass(frozen=True)
class Limits:
    """Bounds on one candidate."""

    build_s: float = 60.0
    run_s: float = 20.0  # checking and timing together
    memory_bytes: int = 4 << 30
    disk_bytes: int = 512 << 20
    ends: float = math.inf  # by the monotonic clock: no build runs beyond it, or is begun just before it

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.memory_bytes, self.disk_bytes)


@dataclass(frozen=True)
class Equipment:
    """What a bench borrows from its laboratory. ``zygote_for`` gives the zygote that may run an artifact,
    ``submitted`` says whether somebody else wrote it, ``hands`` are threads for what is not timed."""

    target: Target
    lock: MachineLock
    zygote_for: Callable[[BuiltArtifact], Zygote]
    submitted: Callable[[BuiltArtifact], bool]
    kept: KeptSetUps
    library: Callable[[], Zygote]
    flusher: Callable[[], CacheFlusher]
    hands: Callable[[], Executor]
    device: DeviceWatch | None = None  # with memory of its own
    spread: ProcessSpread = field(default_factory=ProcessSpread)


class Bench:
    """One operator to measure candidates of. Made by ``Laboratory.bench``.

    ``default`` is the default's own check and time (ratio 1). Where it is not ok, nothing can be measured:
    this class stands for an operator that cannot be put on a bench at all, and every try says why.
    """

    def __init__(self, default: Outcome) -> None:
        self.default = default

    def measure(self, artifact: BuiltArtifact, limits: Limits | None = None) -> Outcome:
        """Check the artifact against the reference, then time it in turns with the default."""
        return self.no_default()

    def heat(self, artifacts: Iterable[BuiltArtifact], limits: Limits | None = None) -> list[Outcome]:
        """Check all, each as soon as it comes, and race them with the default, a few rounds each and more for
        fewer (``heat``)."""
        return [self.no_default() for _ in artifacts]

    def line_up(
        self,
        artifacts: Sequence[BuiltArtifact],
        effort: Effort = LINE_UP,
        limits: Limits | None = None,
        *,
        sittings: int = SITTINGS,
        matter: Matter = NO_MATTER,
    ) -> LineUp:
        """Check all, and race them with the default, in fresh processes in every sitting (``lineup``)."""
        return LineUp(tuple(self.no_default() for _ in artifacts))

    def no_default(self) -> Outcome:
        """What every try comes to where the default is not ok."""
        return Outcome(self.default.status, f"the default does not run: {self.default.detail}")


class LiveBench(Bench):
    """Inputs, reference outputs and a live default; with what is ``kept`` of an earlier bench of the
    operator, the default is only started when somebody runs against it."""

    def __init__(
        self,
        equipment: Equipment,
        specimen: Specimen,
        setting: Setting,
        default: BuiltArtifact,
        limits: Limits,
        kept: KeptSetUp | None = None,
    ) -> None:
        self._equipment = equipment
        self._specimen = specimen
        self._setting = setting
        self._artifact = default
        self._limits = limits
        self._subject: Subject | None = None
        self._cold = setting.cache == "cold"
        self._right_on_all: set[Path] = set()  # folders of our own artifacts
        self._default_us: float | None = None  # once it is known
        self._referees = Referees(specimen, default.manifest.route, equipment.library, equipment.device)
        self._fresh = FreshSets(specimen.operator, self._referees.of, specimen.dealer)
        self._strangers_ran = False
        self._processes = 1  # of a submitted artifact, on these inputs
        super().__init__(Outcome(Status.UNSUPPORTED, "it is being set up"))
        if kept is None:
            self.default = self._set_up()
        else:
            self.default, self._referees.method = kept.default, kept.method
            self._right_on_all.add(default.folder)  # the same artifact, in the folder of this slice
        self._timed_now = kept is None
        self._default_us = self.default.timing.median_us if self.default.timing else None

    def measure(self, artifact: BuiltArtifact, limits: Limits | None = None) -> Outcome:
        limits = limits or Limits()
        if not self.default.ok:
            return self.no_default()
        with self._equipment.lock.measuring():
            return self._examine(artifact, limits)

    def renew(self) -> str:
        """Fresh inputs and their references, for processes that are started from now on; why not, where
        there are no references."""
        self._specimen.renew()
        self._fresh.forget_all()
        self._processes = SITTINGS
        with self._equipment.lock.building():
            failed = self._compute_references()
        self.drop_default()  # the next one takes the renewed inputs
        return failed

    def left_behind(self) -> KeptSetUp | None:
        """What the operator's next bench need not do again; None where there is nothing, or where what
        somebody submitted has seen the inputs."""
        if self._strangers_ran or not self.default.ok or not self._specimen.references:
            return None
        return KeptSetUp(self._specimen, self._referees.method, self.default)

    def machine_lock(self) -> AbstractContextManager[None]:
        """The machine's measurement lock, for who drives subjects himself."""
        return self._equipment.lock.measuring()

    def beside_builds(self) -> AbstractContextManager[None]:
        """The machine's lock for what is not timed."""
        return self._equipment.lock.building()

    def _set_up(self) -> Outcome:
        with self._equipment.lock.building():
            failed = self._compute_references()
        if failed:
            return Outcome(Status.UNSUPPORTED, failed)
        with self._equipment.lock.measuring():
            subject = self.new_subject(self._artifact, self._limits)
            try:
                self.ready(subject)
                result = race([subject.live_runner], DEFAULT_ALONE, self.flush())
            except ChildFailed as failed_child:
                outcome = subject.outcome(failed_child.status, failed_child.detail)
                subject.close()
                if self._equipment.device is not None:
                    self._equipment.device.default_ran(failed_child.detail)
                return outcome
        if self._equipment.device is not None:
            self._equipment.device.default_ran("")
        self._subject = subject
        subject.evidence.facts.update(self._referees.facts())
        return subject.outcome(Status.OK, timing=result.timings[0].as_default)

    def _compute_references(self) -> str:
        """Fill the specimen's references; why not, where no method can."""
        specimen = self._specimen
        try:
            specimen.references = self._referees.judge_specimen()
        except ChildFailed as failed:
            return failed.detail
        return ""

    def _examine(self, artifact: BuiltArtifact, limits: Limits) -> Outcome:
        """Check and race; once more with a new default, where it was the default that broke."""
        for _ in range(2):
            outcome = self._attempt(artifact, limits)
            if outcome is not None:
                return outcome
        return Outcome(Status.NOISY, "the default broke twice while this was timed", tier=self.default.tier)

    def _attempt(self, artifact: BuiltArtifact, limits: Limits) -> Outcome | None:
        """None where the default broke: not the candidate's fault."""
        try:
            default = self.live_default()
        except ChildFailed as failed:
            return Outcome(failed.status, f"the default does not run any more: {failed.detail}")
        subject = self.new_subject(artifact, limits)
        try:
            self.ready(subject)
            return self._race(default, subject)
        except ChildFailed as failed:
            if default.runner is failed.culprit:
                self.drop_default()
                return None
            return subject.outcome(failed.status, failed.detail)
        except OSError as error:
            return subject.outcome(Status.LOAD_FAILED, f"its files cannot be read: {error}")
        finally:
            subject.close()

    def _race(self, default: Subject, subject: Subject) -> Outcome:
        scrutiny = self.scrutiny(subject, default)
        runners = [default.live_runner, subject.live_runner]
        result = race(runners, CONTEST, self.flush(), scrutiny.watch.each_round)
        timing, status, detail = result.timings[0], result.status, result.detail
        subject.evidence.facts.update(race_facts(subject.live_runner, result.rounds, result.noisy_rounds))
        if status in (Status.OK, Status.NOISY):
            verdict, doubt, timing = self.scrutinised(scrutiny, timing)
            if verdict is Status.NOISY:
                status, detail = verdict, doubt
        return subject.outcome(status, detail, timing=timing)

    @property
    def spread(self) -> ProcessSpread:
        """What this machine's processes differ by."""
        return self._equipment.spread

    def is_submitted(self, artifact: BuiltArtifact) -> bool:
        """Whether somebody else wrote it."""
        return self._equipment.submitted(artifact)

    def scrutiny(self, subject: Subject, default: Subject) -> Scrutiny:
        """Of a race that begins now."""
        submitted = self.is_submitted(subject.artifact)
        looks = submitted and not self._fresh.batch.heavy
        return Scrutiny.begin(subject, default, looks=looks, submitted=submitted)

    def scrutinised(self, scrutiny: Scrutiny, timing: Evidence) -> tuple[Status, str, Evidence]:
        """When the race is over: OK or NOISY, why, and the times that count. Raises ChildFailed."""
        floor = floor_us(self._specimen.operator, self._equipment.target, self._setting)
        # Of an earlier slice it tells nothing of the machine as it is now: then it is timed once more.
        alone_us = self._default_us if self._timed_now and self._default_us is not None else 0.0
        return scrutiny.end(timing, floor, self._fresh, self._processes, alone_us, self.flush())

    def together(self) -> int:
        """How many candidates fit into memory beside each other."""
        operator, device = self._specimen.operator, self._equipment.device
        each = CHILD_BYTES + needed_bytes(operator) // 2
        together = int(MEMORY_SHARE * total_bytes()) // each
        if device is not None and device.total_bytes:
            there = claim_bytes(tensor_bytes(operator), device.total_bytes)
            together = min(together, device.total_bytes // there - 1)  # beside the default
        return max(1 if device else 2, together)

    def _started(self, artifact: BuiltArtifact, limits: Limits) -> Subject:
        """Loaded, checked and warmed up; closed again where it fails."""
        subject = self.new_subject(artifact, limits)
        try:
            self.ready(subject)
        except (ChildFailed, OSError):
            subject.close()
            raise
        return subject

    def ready(self, subject: Subject) -> None:
        """Load, check against the references, and warm up. Raises ChildFailed or OSError."""
        self.check(subject)
        self.warm(subject)

    def warm(self, subject: Subject) -> None:
        subject.renew_time()  # it waited for the others
        subject.start_runner(cold=self._cold, evict_bytes=evicting_bytes(self._equipment.target))

    def aside(
        self, work: Callable[[Subject], None], subject: Subject
    ) -> Future[ChildFailed | OSError | None]:
        """Begin what is not timed, beside other such work; what it raises is its result."""

        def quietly() -> ChildFailed | OSError | None:
            try:
                work(subject)
            except (ChildFailed, OSError) as error:
                return error
            return None

        return self._equipment.hands().submit(quietly)

    def check(self, subject: Subject) -> None:
        """Load it, and check it against the references. Raises ChildFailed or OSError.

        Our own code that was right on all sets is checked on the timed ones from then on: it remembers
        nothing, and on heavy operators checks are what a race takes longest for.
        """
        folder = subject.artifact.folder
        if (device := self._equipment.device) is not None and (why := device.prove(self._self_test)):
            raise ChildFailed(Status.UNSUPPORTED, why)
        subject.renew_time()
        subject.open()
        subject.check(self._default_us, only_timed=folder in self._right_on_all)
        if not self.is_submitted(subject.artifact):
            self._right_on_all.add(folder)
        subject.live.pause()

    def settle_doubts(self) -> None:
        """Before it closes: whether the device still computes, if something went wrong on it."""
        if (device := self._equipment.device) is not None:
            device.prove(self._self_test)

    def _self_test(self) -> str | None:
        """The default once more, in a fresh process and against its references; what is wrong, if anything
        is; None where it never ran here, and so proves nothing."""
        if not self.default.ok:
            return None
        subject = self.new_subject(self._artifact, self._limits)
        try:
            subject.open()
            subject.check(only_timed=True)
        except (ChildFailed, OSError) as error:
            return str(error)
        finally:
            subject.close()
        return ""

    def live_default(self) -> Subject:
        """The default's process, started again where it is gone."""
        if self._subject is None:
            self._subject = self._started(self._artifact, self._limits)
        # It lives as long as the bench does: its own clock starts anew with every candidate.
        self._subject.renew_time(self._limits.run_s)
        return self._subject

    def drop_default(self) -> None:
        if self._subject is not None:
            with contextlib.suppress(ChildFailed):
                self._subject.close()
            self._subject = None

    def new_subject(self, artifact: BuiltArtifact, limits: Limits) -> Subject:
        zygote = self._equipment.zygote_for(artifact)
        self._strangers_ran |= self.is_submitted(artifact)
        unseen = self._fresh.batch.calls
        return Subject(zygote, self._specimen, artifact, limits.bounds, limits.run_s, unseen)

    def flush(self) -> Flush | None:
        """A device's caches are emptied by the process that runs on it (``Runner.evict_bytes``)."""
        if not self._cold or self._equipment.target.kind != "cpu":
            return None
        flusher = self._equipment.flusher()
        return lambda child: flusher.flush()


def race_facts(runner: Runner, rounds: int, noisy_rounds: int) -> dict[str, Any]:
    """What is written down of a race beside its times."""
    seen = summary(runner.readings)
    return {
        **({"device": seen} if seen else {}),
        "rounds": rounds,
        "noisy_rounds": noisy_rounds,
        "calls_per_batch": runner.calls,
        "handshake_us": round(runner.fixed_ns / 1e3, 2),
    }
