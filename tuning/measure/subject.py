"""A candidate on the bench: its child, loaded and bound, checked against the references, then timed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from opatlas import noise as limits
from tuning.measure import procfs
from tuning.measure.device.watch import claim_bytes
from tuning.measure.judging.check import Reference, compare
from tuning.measure.judging.process_state import GROWTH_BYTES, Conduct, code_changed
from tuning.measure.judging.tolerance import WHOLE
from tuning.measure.outcome import COPIES, Outcome, Status
from tuning.measure.sandbox.process import Bounds, Child, ChildFailed, Took, Unseen
from tuning.measure.sandbox.zygote import Zygote
from tuning.measure.shared_tensors import BUFFERS, flag_at
from tuning.measure.specimen import Answers, Specimen, Staging, tensor_bytes
from tuning.measure.timing.timer import Runner
from tuning.measure.transfers import runs_on_device
from tuning.routes.base import BuiltArtifact

HOPELESS_RATIO, HOPELESS_S = 30.0, 1.5
"""A first run this many times the default's, and this long, is not waited for again."""
FLAT_SHARE = 0.25
FLAT_WINDOW_S = 0.01
WARM_RUNS = 2
"""Before its threads are looked at: pools start with the first call."""
GRACE_S = 0.8
"""Longer than any library's idle threads spin (OpenBLAS: tens of milliseconds; libiomp5: 200 ms)."""


@dataclass
class Findings:
    """What is known so far; becomes an :class:`Outcome` whatever happens next."""

    max_error: float | None = None
    prepare_us: float | None = None
    prepare_bytes: int | None = None
    peak_bytes: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Subject:
    """Opened by :meth:`open`; every method may raise :class:`ChildFailed`, with the status to record."""

    def __init__(
        self,
        zygote: Zygote,
        specimen: Specimen,
        artifact: BuiltArtifact,
        bounds: Bounds,
        run_s: float,
        unseen: int = 1,
    ) -> None:
        """``unseen``: how many sets of unseen inputs it can take at a time."""
        self.zygote = zygote
        self.specimen = specimen
        self.artifact = artifact
        self.bounds = bounds
        self._run_s = run_s
        self.deadline = time.monotonic() + run_s
        self.evidence = Findings()
        self.answers = Answers(specimen.operator, unseen)
        self.staging = Staging(specimen.operator, unseen)
        self.child: Child | None = None
        self.runner: Runner | None = None
        self.compiled = artifact.manifest.kind == "c-abi"
        self.keeps_outputs = artifact.manifest.kind in ("c-abi", "cuda-module")  # where they lie
        self.on_device = runs_on_device(artifact.manifest)
        self._placed = tuple(range(BUFFERS))  # which input set lies in which timed buffer
        self._unseen = False  # whether it has buffers for new values
        self._before: Conduct | None = None
        self._timed: Conduct | None = None

    @property
    def live(self) -> Child:
        """Its process, once it is open."""
        assert self.child is not None
        return self.child

    @property
    def live_runner(self) -> Runner:
        """Its runner, once it is calibrated."""
        assert self.runner is not None
        return self.runner

    def open(self) -> None:
        """Fork, load, prepare (untimed, recorded) and bind."""
        manifest = self.artifact.manifest
        request = {
            "do": "kernel",
            "manifest": manifest.to_json(),
            **self.specimen.request(),
            **self.answers.request(),
            "staging": self.staging.request(),
            "start_at": self.staging.start,
            "done_at": self.answers.done,
        }
        files = [Path(self.artifact.folder) / name for name in manifest.files]
        memories = [self.specimen.inputs.fd, self.answers.memory.fd, self.staging.memory.fd]
        if (device := self.zygote.device) is not None:
            claim = claim_bytes(tensor_bytes(self.specimen.operator), device.total_bytes)
            self.bounds = replace(self.bounds, device_bytes=claim)
            request["device_bytes"] = [claim, device.total_bytes]
        self.child = self.zygote.spawn(request, memories, self.bounds, bring=files)
        self._before = Conduct.of(self.live.pid)
        loaded = self.ask({"do": "load"}, Status.LOAD_FAILED)
        prepared = self.ask({"do": "prepare"}, Status.LOAD_FAILED)
        self.ask({"do": "bind", "buffers": BUFFERS, "edge": self._edge is not None}, Status.LOAD_FAILED)
        self.evidence.facts["load_us"] = _number(loaded.get("load_us"))
        self.evidence.prepare_us = _number(prepared.get("prepare_us"))
        prepared_bytes = _number(prepared.get("prepare_bytes"))
        self.evidence.prepare_bytes = None if prepared_bytes is None else int(prepared_bytes)

    @property
    def _edge(self) -> int | None:
        """The input set that a compiled kernel gets where nothing may be read beyond; None without one to
        spare (a large operator has only those that are timed)."""
        return BUFFERS if self.compiled and self.specimen.sets > BUFFERS else None

    def check(self, default_us: float | None = None, *, only_timed: bool = False) -> None:
        """Every input set once, in poisoned outputs; ends with set b in buffer b, as timing wants it."""
        further = range(0) if only_timed else range(BUFFERS, self.specimen.sets)
        for index in [*further, *range(BUFFERS)]:
            self.answers.poison()
            started = time.monotonic()
            buffer = BUFFERS if index == self._edge else index % BUFFERS
            answer = self.ask({"do": "check", "set": index, "buffer": buffer}, Status.CRASHED)
            self.accept(answer)
            if runs_on_device(self.artifact.manifest):
                # By its own word: nothing is decided by it. The last is as warm as any.
                for name in COPIES:
                    self.evidence.facts[name] = _number(answer.get(name))
            self.judge(index)
            elapsed = time.monotonic() - started
            if default_us and elapsed > max(HOPELESS_S, HOPELESS_RATIO * default_us / 1e6):
                took = f"a first run took {elapsed:.2f} s, the default's {default_us / 1e3:.2f} ms"
                raise ChildFailed(Status.SLOWER, took)
        self._must_be_alone()
        self._must_behave(self._before)

    def start_runner(self, *, cold: bool, evict_bytes: int = 0) -> Runner:
        """Calibrate a runner: how many calls make a batch. ``evict_bytes``: who writes so much leaves nothing
        else in a device's caches."""
        self.ask({"do": "settle"}, Status.CRASHED)
        self.live.resume()
        for _ in range(WARM_RUNS):
            self.live.run_ns(1, self.time_left())
        self.live.outrank()
        self.live.spread(self.specimen.threads)
        self.runner = Runner(self.live, self.time_left(), on_device=self.on_device, device=self.zygote.device)
        if cold and self.on_device:
            self.runner.evict_bytes = evict_bytes
        self.runner.calibrate(cold=cold)
        if self.on_device and evict_bytes:
            self._time_by_the_device(self.runner, evict_bytes)
        if self._before is not None:
            self._timed = replace(Conduct.of(self.live.pid), threads=self._before.threads)
        return self.runner

    def _time_by_the_device(self, runner: Runner, evict_bytes: int) -> None:
        """What the device takes for a run by its own clock, by its child's word: nothing is decided by it
        where caches are warm. Launch-bound: most of a run's time the device waits for the host."""
        self.live.resume()
        warm_us, cold_us = (
            float(np.median(runner.each_us(evict_bytes, lead_in=lead_in))) for lead_in in (True, False)
        )
        self.live.pause()
        self.evidence.facts["by_the_device"] = {
            "warm_us": round(warm_us, 2),
            "cold_us": round(cold_us, 2),
            "launch_bound": warm_us < limits.LAUNCH_BOUND * runner.per_call_us,
        }

    def swap_and_poison(self) -> None:
        """Other values in the same buffers, poisoned outputs: what is remembered, not computed, shows."""
        self._placed = self._placed[::-1]
        for buffer, index in enumerate(self._placed):
            self.ask({"do": "fill", "set": index, "buffer": buffer}, Status.CRASHED)
        self.ask({"do": "poison"}, Status.CRASHED)

    def spoil(self) -> None:
        """The same values, a few outputs changed: what is kept, not computed, shows. Of kernels whose
        outputs lie where they did."""
        self.ask({"do": "spoil"}, Status.CRASHED)

    def check_timed(self) -> None:
        """The outputs that timed calls left since :meth:`swap_and_poison` or :meth:`spoil`."""
        assert self.runner is not None
        for buffer in range(1 if self.runner.single else BUFFERS):
            self.answers.poison()
            self.accept(self.ask({"do": "outputs", "buffer": buffer}, Status.CRASHED))
            with self.as_cheat("right when checked, wrong when timed"):
                self.judge(self._placed[buffer])

    @contextmanager
    def as_cheat(self, what: str) -> Iterator[None]:
        """Who was right before has no honest reason to be wrong now."""
        try:
            yield
        except ChildFailed as failed:
            if failed.status in (Status.NOT_FINITE, Status.WRONG_RESULT):
                raise ChildFailed(Status.CHEATED, f"{what}: {failed.detail}") from failed
            raise

    def bind_unseen(self) -> None:
        """Buffers for new values, once; what it used so far is noted first, since these add to it."""
        if self._unseen:
            return
        # Drawing new values and their references took time that is not its own.
        self.renew_time()
        self._unseen = True
        self.live.resume()
        self._must_not_grow()
        self.evidence.peak_bytes = self.live.highest_bytes()
        self.ask({"do": "bind_unseen"}, Status.CRASHED)

    def run_unseen(self, ask: Unseen) -> Took:
        """Runs on the sets that lie in the staging memory."""
        start = flag_at(self.staging.memory.map, self.staging.start)
        done = flag_at(self.answers.memory.map, self.answers.done)
        return self.live.run_unseen_ns(ask, self.time_left(), start, done)

    def must_keep_still(self) -> None:
        """No thread and no handler of its own since it was timed: the quick look, between two runs."""
        self._must_behave(self._timed, its_code_too=False)

    def must_agree_with_its_device(self) -> None:
        """What a device's events say that its runs took, against the parent's clock: less was computed where
        they do not look, more cannot be."""
        if not self.on_device:
            return
        self.live.resume()
        for _ in range(limits.CLOCKS_LOOKS):
            there_us, here_us = self.live_runner.clocks()
            if limits.CLOCKS_AGREE * here_us <= there_us <= here_us + limits.FIXED_SLACK_NS / 1e3:
                self.evidence.facts["clocks"] = {"device_us": round(there_us), "parent_us": round(here_us)}
                self.live.pause()
                return
        said = f"its device's clock says {there_us:.3g} us of runs that took {here_us:.3g} us"
        raise ChildFailed(Status.CHEATED, said)

    def must_be_idle(self) -> None:
        """After its last answer a candidate may spin a little for more work, and then must rest."""
        self.live.resume()
        self._must_be_alone()
        self._must_behave(self._timed)
        deadline = time.monotonic() + GRACE_S
        before, then = procfs.wanted_ns(self.live.pid), time.perf_counter_ns()
        while True:
            time.sleep(FLAT_WINDOW_S)
            after, now = procfs.wanted_ns(self.live.pid), time.perf_counter_ns()
            if before is None or after is None:
                raise ChildFailed(Status.CRASHED, "ended after its last answer")
            if (after - before) < FLAT_SHARE * (now - then):
                return
            if time.monotonic() > deadline:
                raise ChildFailed(Status.CHEATED, f"its threads still work {GRACE_S} s after the last answer")
            before, then = after, now

    def _must_be_alone(self) -> None:
        """Its work is timed by its own process: others could do it at any time."""
        if self.live.relatives() or self.zygote.strays():
            raise ChildFailed(Status.CHEATED, "started processes of its own")
        if self.zygote.stopped():
            raise ChildFailed(Status.CHEATED, "stopped the process that started it")

    def _must_behave(self, before: Conduct | None, *, its_code_too: bool = True) -> None:
        """A compiled kernel leaves its process as it found it."""
        if not self.compiled or before is None:
            return
        complaint = before.complaint(Conduct.of(self.live.pid), self.specimen.threads - 1)
        if not complaint and its_code_too and (changed := code_changed(self.live.pid)):
            complaint = f"changed the code of {Path(changed).name} in its process"
        if complaint:
            raise ChildFailed(Status.CHEATED, complaint)

    def _must_not_grow(self) -> None:
        if not self.compiled or self._timed is None:
            return
        grown = procfs.resident_bytes(self.live.pid) - self._timed.resident_bytes
        if grown > GROWTH_BYTES:
            raise ChildFailed(Status.OUT_OF_MEMORY, f"grew by {grown >> 20} MiB while it was timed")

    def outcome(self, status: Status, detail: str = "", **more: Any) -> Outcome:
        """Everything known, as data."""
        child, evidence = self.child, self.evidence
        if self.zygote.device is not None:
            self.zygote.device.saw(status)
        return Outcome(
            status=status,
            detail=detail[:2000],
            max_error=evidence.max_error,
            tolerance=WHOLE,
            prepare_us=evidence.prepare_us,
            prepare_bytes=evidence.prepare_bytes,
            peak_bytes=self.peak_bytes(),
            tier=self.zygote.tier,
            log_tail="" if child is None else child.log_tail(),
            facts={**evidence.facts},
            **more,
        )

    def peak_bytes(self) -> int | None:
        """The most memory seen; from :meth:`bind_unseen` on what it was before, since that adds buffers."""
        if self.evidence.peak_bytes is None and self.child is not None:
            return self.live.highest_bytes()
        return self.evidence.peak_bytes

    def renew_time(self, run_s: float | None = None) -> None:
        """Start its clock anew."""
        self.deadline = time.monotonic() + (self._run_s if run_s is None else run_s)

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """What others do meanwhile is not its time."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.deadline += time.monotonic() - began

    def time_left(self) -> float:
        return max(0.05, self.deadline - time.monotonic())

    def close(self) -> None:
        if self.child is not None:
            self.zygote.forget(self.child)
        self.answers.close()
        self.staging.close()

    def ask(self, command: dict[str, Any], on_error: Status) -> dict[str, Any]:
        if time.monotonic() > self.deadline:
            raise ChildFailed(Status.TIMED_OUT, "used up its time")
        paused = self.live.paused
        self.live.resume()
        answer = self.live.ask(command, self.time_left())
        if paused:
            self.live.pause()
        if "error" in answer:
            raise ChildFailed(on_error, str(answer["error"]))
        return answer

    def accept(self, answer: dict[str, Any]) -> None:
        """Raise for what the child's own traps and shapes tell."""
        if "trespass" in answer:
            raise ChildFailed(Status.CHEATED, str(answer["trespass"]))
        if "mismatch" in answer:
            wanted = [[value.dtype, list(value.shape)] for value in self.specimen.operator.output_values]
            raise ChildFailed(Status.WRONG_RESULT, f"{answer['mismatch']}, not {wanted}")

    def judge(self, set_index: int) -> None:
        """The outputs and inputs that came back, against one of the specimen's sets."""
        specimen = self.specimen
        references, spans = specimen.references[set_index], specimen.own[set_index]
        self.judge_call(0, references, spans, f"input set {set_index}")

    def judge_call(
        self, call: int, references: Sequence[Reference], spans: Mapping[int, np.ndarray], name: str
    ) -> None:
        verdict = compare(self.answers.outputs(call), references)
        self.evidence.max_error = max(self.evidence.max_error or 0.0, verdict.error)
        if verdict.status is not Status.OK:
            raise ChildFailed(verdict.status, f"{verdict.detail} ({name})")
        if not self.answers.unchanged(spans, call):
            raise ChildFailed(Status.WROTE_INPUT, f"changed its inputs ({name})")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
