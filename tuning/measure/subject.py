"""A candidate on the bench: its child, loaded and bound, checked against the references, then timed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuning.measure import procfs
from tuning.measure.judging.check import compare
from tuning.measure.judging.process_state import GROWTH_BYTES, Conduct, code_changed
from tuning.measure.outcome import Outcome, Status
from tuning.measure.sandbox.process import Bounds, Child, ChildFailed
from tuning.measure.sandbox.zygote import Zygote
from tuning.measure.specimen import BUFFERS, Answers, Specimen
from tuning.measure.timing.timer import Runner
from tuning.routes.base import BuiltArtifact

HOPELESS_RATIO, HOPELESS_S = 30.0, 0.5
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

    tolerance: float
    max_error: float | None = None
    prepare_us: float | None = None
    prepare_bytes: int | None = None
    peak_bytes: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Subject:
    """Opened by :meth:`open`; every method may raise :class:`ChildFailed`, with the status to record."""

    def __init__(
        self, zygote: Zygote, specimen: Specimen, artifact: BuiltArtifact, bounds: Bounds, run_s: float
    ) -> None:
        self.zygote = zygote
        self.specimen = specimen
        self.artifact = artifact
        self.bounds = bounds
        self.deadline = time.monotonic() + run_s
        self.evidence = Findings(tolerance=specimen.tolerance)
        self.answers = Answers(specimen.operator)
        self.child: Child | None = None
        self.runner: Runner | None = None
        self.compiled = artifact.manifest.kind == "c-abi"
        self._before: Conduct | None = None
        self._timed: Conduct | None = None

    def open(self) -> None:
        """Fork, load, prepare (untimed, recorded) and bind."""
        manifest = self.artifact.manifest
        request = {
            "do": "kernel",
            "manifest": manifest.to_json(),
            **self.specimen.request(),
            **self.answers.request(),
        }
        files = [Path(self.artifact.folder) / name for name in manifest.files]
        self.child = self.zygote.spawn(
            request, [self.specimen.inputs.fd, self.answers.memory.fd], self.bounds, bring=files
        )
        self._before = Conduct.of(self.child.pid)
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

    def check(self, default_us: float | None = None) -> None:
        """Every input set once, in poisoned outputs; ends with set b in buffer b, as timing wants it."""
        for index in [*range(BUFFERS, self.specimen.sets), *range(BUFFERS)]:
            self.answers.poison()
            started = time.monotonic()
            buffer = BUFFERS if index == self._edge else index % BUFFERS
            self.accept(self.ask({"do": "check", "set": index, "buffer": buffer}, Status.CRASHED))
            self.judge(index)
            elapsed = time.monotonic() - started
            if default_us and elapsed > max(HOPELESS_S, HOPELESS_RATIO * default_us / 1e6):
                took = f"a first run took {elapsed:.2f} s, the default's {default_us / 1e3:.2f} ms"
                raise ChildFailed(Status.SLOWER, took)
        self._must_be_alone()
        self._must_behave(self._before)

    def start_runner(self, *, cold: bool) -> Runner:
        """Calibrate a runner: how many calls make a batch."""
        assert self.child is not None
        self.ask({"do": "settle"}, Status.CRASHED)
        self.child.resume()
        for _ in range(WARM_RUNS):
            self.child.run_ns(1, self.time_left())
        self.child.outrank()
        self.child.spread(self.specimen.threads)
        self.runner = Runner(self.child, self.time_left())
        self.runner.calibrate(cold=cold)
        if self._before is not None:
            self._timed = replace(Conduct.of(self.child.pid), threads=self._before.threads)
        return self.runner

    def swap_and_poison(self) -> None:
        """Other values in the same buffers, poisoned outputs: what is remembered, not computed, shows."""
        for buffer in range(BUFFERS):
            self.ask({"do": "fill", "set": BUFFERS - 1 - buffer, "buffer": buffer}, Status.CRASHED)
        self.ask({"do": "poison"}, Status.CRASHED)

    def check_timed(self, used_buffers: int) -> None:
        """The outputs that timed calls left, after :meth:`swap_and_poison`."""
        for buffer in range(used_buffers):
            self.answers.poison()
            self.accept(self.ask({"do": "outputs", "buffer": buffer}, Status.CRASHED))
            try:
                self.judge(BUFFERS - 1 - buffer)
            except ChildFailed as failed:
                if failed.status in (Status.NOT_FINITE, Status.WRONG_RESULT):
                    raise ChildFailed(
                        Status.CHEATED, f"right when checked, wrong when timed: {failed.detail}"
                    ) from failed
                raise

    def must_be_idle(self) -> None:
        """After its last answer a candidate may spin a little for more work, and then must rest."""
        assert self.child is not None
        self.child.resume()
        self._must_be_alone()
        self._must_behave(self._timed)
        self._must_not_grow()
        deadline = time.monotonic() + GRACE_S
        before, then = procfs.wanted_ns(self.child.pid), time.perf_counter_ns()
        while True:
            time.sleep(FLAT_WINDOW_S)
            after, now = procfs.wanted_ns(self.child.pid), time.perf_counter_ns()
            if before is None or after is None:
                raise ChildFailed(Status.CRASHED, "ended after its last answer")
            if (after - before) < FLAT_SHARE * (now - then):
                return
            if time.monotonic() > deadline:
                raise ChildFailed(Status.CHEATED, f"its threads still work {GRACE_S} s after the last answer")
            before, then = after, now

    def _must_be_alone(self) -> None:
        """Its work is timed by its own process: others could do it at any time."""
        assert self.child is not None
        if self.child.relatives() or self.zygote.strays():
            raise ChildFailed(Status.CHEATED, "started processes of its own")
        if self.zygote.stopped():
            raise ChildFailed(Status.CHEATED, "stopped the process that started it")

    def _must_behave(self, before: Conduct | None) -> None:
        """A compiled kernel leaves its process as it found it."""
        assert self.child is not None
        if not self.compiled or before is None:
            return
        complaint = before.complaint(Conduct.of(self.child.pid), self.specimen.threads - 1)
        if not complaint and (changed := code_changed(self.child.pid)):
            complaint = f"changed the code of {Path(changed).name} in its process"
        if complaint:
            raise ChildFailed(Status.CHEATED, complaint)

    def _must_not_grow(self) -> None:
        assert self.child is not None
        if not self.compiled or self._timed is None:
            return
        grown = procfs.resident_bytes(self.child.pid) - self._timed.resident_bytes
        if grown > GROWTH_BYTES:
            raise ChildFailed(Status.OUT_OF_MEMORY, f"grew by {grown >> 20} MiB while it was timed")

    def outcome(self, status: Status, detail: str = "", **more: Any) -> Outcome:
        """Everything known, as data."""
        child, evidence = self.child, self.evidence
        return Outcome(
            status=status,
            detail=detail[:2000],
            max_error=evidence.max_error,
            tolerance=evidence.tolerance,
            prepare_us=evidence.prepare_us,
            prepare_bytes=evidence.prepare_bytes,
            peak_bytes=None if child is None else child.highest_bytes(),
            tier=self.zygote.tier,
            log_tail="" if child is None else child.log_tail(),
            facts={**evidence.facts},
            **more,
        )

    def renew_time(self, run_s: float) -> None:
        """Start its clock anew."""
        self.deadline = time.monotonic() + run_s

    def time_left(self) -> float:
        return max(0.05, self.deadline - time.monotonic())

    def close(self) -> None:
        if self.child is not None:
            self.zygote.forget(self.child)
        self.answers.close()

    def ask(self, command: dict[str, Any], on_error: Status) -> dict[str, Any]:
        assert self.child is not None
        if time.monotonic() > self.deadline:
            raise ChildFailed(Status.TIMED_OUT, "used up its time")
        paused = self.child.paused
        self.child.resume()
        answer = self.child.ask(command, self.time_left())
        if paused:
            self.child.pause()
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
        references = self.specimen.references[set_index]
        verdict = compare(self.answers.outputs(), references, self.specimen.tolerance)
        self.evidence.max_error = max(self.evidence.max_error or 0.0, verdict.error)
        if verdict.status is not Status.OK:
            raise ChildFailed(verdict.status, f"{verdict.detail} (input set {set_index})")
        if not self.specimen.unchanged(set_index, self.answers.inputs_back()):
            raise ChildFailed(Status.WROTE_INPUT, f"changed its inputs (input set {set_index})")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
