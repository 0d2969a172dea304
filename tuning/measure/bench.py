"""One operator on the bench, with a live default to time every candidate against."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from opatlas.errors import OpatlasError
from opatlas.evidence import Evidence
from opatlas.identity import Setting, Target
from opatlas.noise import SITTINGS
from tuning.measure.judging.reference import methods
from tuning.measure.judging.roofline import floor_us
from tuning.measure.outcome import Outcome, Status
from tuning.measure.recomputation import must_recompute
from tuning.measure.sandbox.process import Bounds, ChildFailed
from tuning.measure.sandbox.zygote import Zygote
from tuning.measure.specimen import BUFFERS, ReferenceAnswers, Specimen
from tuning.measure.subject import Subject
from tuning.measure.timing.caches import CacheFlusher
from tuning.measure.timing.lock import MachineLock
from tuning.measure.timing.stats import pool
from tuning.measure.timing.stats import timing as timing_of
from tuning.measure.timing.timer import CONFIRM, CONTEST, DEFAULT_ALONE, Effort, race
from tuning.routes.base import BuiltArtifact

REFERENCE_S = 30.0
ROOFLINE_SLACK = 0.5
"""Only a time below half the floor is called a cheat: the peaks are generous, the flops are estimates."""


@dataclass(frozen=True)
class Limits:
    """Bounds on one candidate."""

    build_s: float = 60.0
    run_s: float = 20.0  # checking and timing together
    memory_bytes: int = 4 << 30
    disk_bytes: int = 512 << 20

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.memory_bytes, self.disk_bytes)


@dataclass(frozen=True)
class Equipment:
    """What a bench borrows from its laboratory. ``zygote_for`` gives the zygote that may run an artifact."""

    target: Target
    lock: MachineLock
    zygote_for: Callable[[BuiltArtifact], Zygote]
    library: Callable[[], Zygote]
    flusher: Callable[[], CacheFlusher]


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

    def confirm(
        self, artifact: BuiltArtifact, incumbent: BuiltArtifact | None, limits: Limits | None = None
    ) -> Outcome:
        """Time again for a finalist: fresh inputs, and fresh processes of everybody in each of SITTINGS.

        With an incumbent, all three run in turns: the outcome's ``incumbent`` and ``against_incumbent`` are
        from the same rounds (an incumbent that fails has its status and detail, and no times).
        """
        return self.no_default()

    def no_default(self) -> Outcome:
        """What every try comes to where the default is not ok."""
        return Outcome(self.default.status, f"the default does not run: {self.default.detail}")


class LiveBench(Bench):
    """Inputs, reference outputs and a live default."""

    def __init__(
        self,
        equipment: Equipment,
        specimen: Specimen,
        setting: Setting,
        default: BuiltArtifact,
        limits: Limits,
    ) -> None:
        self._equipment = equipment
        self._specimen = specimen
        self._setting = setting
        self._artifact = default
        self._limits = limits
        self._subject: Subject | None = None
        self._cold = setting.cache == "cold"
        self._reference_method = ""
        self._to_beat = 1.0  # what the best candidate so far reaches at least, as a ratio to the default
        super().__init__(self._set_up())

    def measure(self, artifact: BuiltArtifact, limits: Limits | None = None) -> Outcome:
        limits = limits or Limits()
        if not self.default.ok:
            return self.no_default()
        with self._equipment.lock.measuring():
            return self._examine(artifact, None, CONTEST, limits)

    def confirm(
        self, artifact: BuiltArtifact, incumbent: BuiltArtifact | None, limits: Limits | None = None
    ) -> Outcome:
        limits = limits or Limits()
        if not self.default.ok:
            return self.no_default()
        if failed := self.renew():
            return Outcome(Status.UNSUPPORTED, failed)
        with self._equipment.lock.measuring():
            sittings: list[Outcome] = []
            for _ in range(SITTINGS):
                self.drop_default()  # the next one takes the renewed inputs
                outcome = self._examine(artifact, incumbent, CONFIRM, limits)
                if not outcome.ok:
                    # One sitting that failed says nothing about the incumbent's times.
                    return replace(outcome, incumbent=None, against_incumbent=None)
                sittings.append(outcome)
        return _pooled(sittings)

    def renew(self) -> str:
        """Fresh inputs and their references, for processes that are started from now on; why not, where
        there are no references."""
        self._specimen.renew()
        with self._equipment.lock.building():
            failed = self._compute_references()
        self.drop_default()  # the next one takes the renewed inputs
        return failed

    def machine_lock(self) -> AbstractContextManager[None]:
        """The machine's measurement lock, for who drives subjects himself."""
        return self._equipment.lock.measuring()

    def _set_up(self) -> Outcome:
        with self._equipment.lock.building():
            failed = self._compute_references()
        if failed:
            return Outcome(Status.UNSUPPORTED, failed)
        with self._equipment.lock.measuring():
            subject = self.new_subject(self._artifact, self._limits)
            try:
                subject.open()
                subject.check()
                runner = subject.start_runner(cold=self._cold)
                result = race([runner], DEFAULT_ALONE, self.flush())
            except ChildFailed as failed_child:
                outcome = subject.outcome(failed_child.status, failed_child.detail)
                subject.close()
                return outcome
        self._subject = subject
        timing = replace(result.timings[0], ratio_to_default=1.0, ratio_low=1.0, ratio_high=1.0)
        return replace(
            subject.outcome(Status.OK, timing=timing),
            facts={**subject.evidence.facts, "reference": self._reference_method},
        )

    def _compute_references(self) -> str:
        """Fill the specimen's references; why not, where no method can."""
        specimen = self._specimen
        reasons = []
        for method in methods(specimen.operator, self._artifact.manifest.route):
            if self._reference_method not in ("", method):
                continue  # what worked for this operator before
            answers = ReferenceAnswers(specimen.operator, specimen.sets + 1)
            request: dict[str, Any] = {
                "do": "reference",
                "method": method,
                "operator": specimen.operator.to_json(),
                **specimen.reference_request(),
                "outputs": answers.request(),
            }
            try:
                reply = self._ask_reference(request, [specimen.inputs.fd, answers.memory.fd])
                if "error" not in reply:
                    specimen.references = answers.read()
                    specimen.hide_held()
                    self._reference_method = method
                    return ""
                reasons.append(f"{method}: {reply['error']}")
            except ChildFailed as failed:
                reasons.append(f"{method}: {failed.detail}")
            finally:
                answers.close()
        return "no reference can be computed: " + ("; ".join(reasons) or "no method knows it")

    def _ask_reference(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        library = self._equipment.library()
        child = library.spawn(request, fds, Limits(memory_bytes=16 << 30).bounds)
        try:
            return child.ask(None, REFERENCE_S)
        finally:
            library.forget(child)

    def _examine(
        self, artifact: BuiltArtifact, incumbent: BuiltArtifact | None, effort: Effort, limits: Limits
    ) -> Outcome:
        """Check and race; once more with a new default, where it was the default that broke."""
        outcome = None
        for _ in range(2):
            outcome = self._attempt(artifact, incumbent, effort, limits)
            if outcome is not None:
                return outcome
        return Outcome(Status.NOISY, "the default broke twice while this was timed", tier=self.default.tier)

    def _attempt(
        self, artifact: BuiltArtifact, incumbent: BuiltArtifact | None, effort: Effort, limits: Limits
    ) -> Outcome | None:
        """None where the default broke: not the candidate's fault."""
        try:
            default = self.live_default()
        except ChildFailed as failed:
            return Outcome(failed.status, f"the default does not run any more: {failed.detail}")
        assert default.runner is not None
        subject = self.new_subject(artifact, limits)
        rival: Subject | None = None
        try:
            self.ready(subject)
            rival, rival_failed = self._open_rival(incumbent, limits)
            outcome = self._race(default, subject, rival, effort)
            return outcome if rival_failed is None else replace(outcome, incumbent=rival_failed)
        except ChildFailed as failed:
            if default.runner is failed.culprit:
                self.drop_default()
                return None
            return subject.outcome(failed.status, failed.detail)
        except OSError as error:
            return subject.outcome(Status.LOAD_FAILED, f"its files cannot be read: {error}")
        finally:
            subject.close()
            if rival is not None:
                rival.close()

    def _race(self, default: Subject, subject: Subject, rival: Subject | None, effort: Effort) -> Outcome:
        assert default.runner is not None and subject.runner is not None

        def watch(rounds: int) -> None:
            # What the second round's timed calls leave must be right, for inputs that came just before it.
            if rounds == 1:
                subject.swap_and_poison()
            elif rounds == 2:
                subject.check_timed(1 if subject.runner is not None and subject.runner.single else BUFFERS)

        runners = [default.runner, subject.runner]
        if rival is not None and rival.runner is not None:
            runners.append(rival.runner)
        result = race(runners, effort, self.flush(), watch)
        timing = result.timings[0]
        facts = {
            "rounds": result.rounds,
            "noisy_rounds": result.noisy_rounds,
            "calls_per_batch": subject.runner.calls,
            "handshake_us": round(subject.runner.fixed_ns / 1e3, 2),
        }
        subject.evidence.facts.update(facts)
        if result.status in (Status.OK, Status.NOISY):
            floor = floor_us(self._specimen.operator, self._equipment.target, self._setting)
            least = subject.runner.least_us()
            if least < ROOFLINE_SLACK * floor:
                detail = f"{least:.3g} us a run; this machine cannot do it below {floor:.3g} us"
                return subject.outcome(Status.CHEATED, detail, timing=timing)
            must_recompute(subject, timing.median_us)
            subject.must_be_idle()
        if result.status is Status.OK:
            self._to_beat = max(self._to_beat, timing.ratio_low)
        outcome = subject.outcome(result.status, result.detail, timing=timing)
        if rival is None or len(result.timings) == 1:
            return outcome
        held = result.timings[1]
        # The same rounds of both: without the default's error, which both ratios carry.
        paired = timing_of(held.samples_us, timing.samples_us)
        return replace(outcome, incumbent=Outcome(Status.OK, timing=held), against_incumbent=paired)

    def _open_rival(
        self, incumbent: BuiltArtifact | None, limits: Limits
    ) -> tuple[Subject | None, Outcome | None]:
        """An incumbent that cannot run any more loses, and says why; it is no failure of the newcomer."""
        if incumbent is None:
            return None, None
        try:
            return self._started(incumbent, limits), None
        except (ChildFailed, OSError) as failed:
            status = failed.status if isinstance(failed, ChildFailed) else Status.LOAD_FAILED
            return None, Outcome(status, str(failed))

    def _started(self, artifact: BuiltArtifact, limits: Limits) -> Subject:
        """Loaded, checked and warmed up; closed again where it fails."""
        subject = self.new_subject(artifact, limits)
        try:
            subject.open()
            subject.check()
            subject.start_runner(cold=self._cold)
        except (ChildFailed, OSError):
            subject.close()
            raise
        return subject

    def ready(self, subject: Subject) -> None:
        """Load, check against the references, and warm up. Raises ChildFailed or OSError."""
        subject.open()
        subject.check(None if self.default.timing is None else self.default.timing.median_us)
        subject.start_runner(cold=self._cold)

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
        return Subject(zygote, self._specimen, artifact, limits.bounds, limits.run_s)

    def flush(self) -> Callable[[], None] | None:
        return self._equipment.flusher().flush if self._cold else None


def _pooled(sittings: Sequence[Outcome]) -> Outcome:
    """The last sitting's outcome with the timings of all of them, and the incumbent's (or why it failed)."""
    rivals = [one.incumbent for one in sittings if one.incumbent is not None]
    incumbent = next((rival for rival in rivals if not rival.ok), None)
    if rivals and incumbent is None:
        incumbent = Outcome(Status.OK, timing=_pooled_times(rival.timing for rival in rivals))
    return replace(
        sittings[-1],
        timing=_pooled_times(one.timing for one in sittings),
        max_error=max(one.max_error or 0.0 for one in sittings),
        facts={**sittings[-1].facts, "sittings": len(sittings)},
        incumbent=incumbent,
        against_incumbent=_pooled_times(one.against_incumbent for one in sittings),
    )


def _pooled_times(sittings: Iterable[Evidence | None]) -> Evidence | None:
    found = [one for one in sittings if one is not None]
    return pool(found) if found else None


@contextmanager
def open_bench(
    equipment: Equipment,
    make_specimen: Callable[[], Specimen],
    setting: Setting,
    default: BuiltArtifact,
    limits: Limits,
) -> Iterator[Bench]:
    """A bench, or one that says why there is none."""
    try:
        specimen = make_specimen()
    except OpatlasError as error:
        yield Bench(Outcome(Status.UNSUPPORTED, str(error)))
        return
    except (MemoryError, OSError) as error:
        yield Bench(Outcome(Status.OUT_OF_MEMORY, f"its inputs do not fit: {error}"))
        return
    with closing(specimen):
        bench = LiveBench(equipment, specimen, setting, default, limits)
        try:
            yield bench
        finally:
            bench.drop_default()
