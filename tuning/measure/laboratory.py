"""The laboratory: builds, checks and times candidates in sandboxed children, one measurement at a time.

The only door to measuring: services talk to :class:`Laboratory`; zygotes, sandbox, timer and checker are
its parts. It never raises for what a candidate does.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

from opatlas.cores import usable_cores
from opatlas.identity import Operator, Setting, Target
from opatlas.memory import total_bytes
from tuning.measure.bench import Bench, Equipment, Limits
from tuning.measure.builder import build_here, build_in_child, request_for, tune_in_child
from tuning.measure.device.watch import DeviceWatch, claim_bytes
from tuning.measure.kept import KeptSetUps
from tuning.measure.observing.device_code import looked_at
from tuning.measure.observing.inspecting import EMPTY, Inspection, inspect
from tuning.measure.open_bench import open_bench
from tuning.measure.outcome import Outcome, Status
from tuning.measure.provenance import with_provenance
from tuning.measure.reading import CodeListing, list_code
from tuning.measure.sandbox import tiers as sandbox
from tuning.measure.sandbox.process import ChildFailed
from tuning.measure.scrutiny.referees import Referees
from tuning.measure.specimen import Specimen, needed_bytes, tensor_bytes
from tuning.measure.subject import Subject
from tuning.measure.timing.caches import CacheFlusher
from tuning.measure.timing.lock import MachineLock
from tuning.measure.zygotes import READS_CODE, SUBMITTED, Zygotes, zygote_of
from tuning.routes.base import BuiltArtifact, Candidate, Learning, Route, SearchRecord, Tunable
from tuning.routes.manual.own import is_own

TRANSFER_S = 10.0
"""For fitting a handful of known schedules to an operator: each takes a fraction of a second."""

BUILDS_ON_DEVICE = ("inductor",)
"""Zygotes whose builds time something on the device: they are alone on the machine, and may take longer."""
DEVICE_BUILD_S = 180.0
LEAST_BUILD_S, LEAST_DEVICE_BUILD_S = 1.0, 15.0
"""What a build takes at least (a cubin some 0.3 to 1.5 s, Inductor's first kernel some 15 s): none is begun
for which less is left."""
DEVICE_BUILD_BYTES = 16 << 30
"""Of the host, for such a build, where half of the machine has as much: CUDA's libraries and the compilers'
own processes take several."""


class Laboratory(AbstractContextManager["Laboratory"]):
    """Owns the warm zygotes and the machine's measurement lock.

    Everything below ``home/lab-<pid>`` is its own; it goes when the laboratory closes. Start and use it
    in one thread that lives as long as it does (sandboxes end with the thread that started them).
    """

    def __init__(
        self,
        home: Path,
        target: Target,
        *,
        tier: str | None = None,
        readable: Sequence[Path] = (),
        device: DeviceWatch | None = None,
    ) -> None:
        """``tier`` forces a sandbox tier; ``readable`` are further folders that children may read;
        ``device``: what the target is, where that is no processor."""
        self.target = target
        self.device = device
        self.tier = sandbox.SandboxTier(tier) if tier else sandbox.best_tier()
        self.home = Path(home).absolute() / f"lab-{os.getpid()}-{id(self):x}"
        self.home.mkdir(parents=True)
        self.readable = tuple(readable)
        self.lock = MachineLock()
        self.kept = KeptSetUps()
        self.zygotes = Zygotes(self.home, self.tier, self.readable, device)

    def warm(self, routes: tuple[Route, ...]) -> None:
        """Start the zygotes that these routes need (seconds), so that the first candidate does not wait."""
        self.zygotes.warm(routes)

    def build(
        self,
        route: Route,
        operator: Operator,
        setting: Setting,
        candidate: Candidate,
        workdir: Path,
        limits: Limits | None = None,
    ) -> BuiltArtifact | Outcome:
        """Build in a child; an Outcome (BUILD_FAILED, TIMED_OUT, CRASHED, OUT_OF_MEMORY) when it fails.

        Where the route builds in the worker itself (recipes), no child is started.
        """
        with nullcontext() if route.builds_in_process else self._building(route):
            return self._build(route, operator, setting, candidate, workdir, limits or Limits())

    def build_all(
        self,
        operator: Operator,
        setting: Setting,
        jobs: Sequence[tuple[Route, Candidate, Path]],
        limits: Limits | None = None,
    ) -> list[BuiltArtifact | Outcome]:
        """Build several candidates, each in its own folder; in their order."""
        with self.lock.building():
            built = dict(self.build_each(operator, setting, jobs, limits))
        return [built[number] for number in range(len(jobs))]

    def build_each(
        self,
        operator: Operator,
        setting: Setting,
        jobs: Sequence[tuple[Route, Candidate, Path]],
        limits: Limits | None = None,
    ) -> Generator[tuple[int, BuiltArtifact | Outcome], None, None]:
        """Build as many at a time as there are cores, and give each with its number as soon as it is there.
        The caller holds the lock for builds, or hands this to who does.

        One zygote builds one after the other; different zygotes build side by side. What times something on
        the device while it is built comes first, alone.
        """
        queues: dict[str, list[int]] = {}
        for number, (route, candidate, folder) in enumerate(jobs):
            if self.times_on_device(route):
                with self.lock.alone_meanwhile():
                    made = self._build(route, operator, setting, candidate, folder, limits or Limits())
                yield number, made
                continue
            queues.setdefault("" if route.builds_in_process else route.zygote, []).append(number)
        for name in queues:
            if name and not (zygote := self.zygotes[name]).alive:
                zygote.start()  # by this thread: it must outlive the builders'
        built: SimpleQueue[tuple[int, BuiltArtifact | Outcome] | None] = SimpleQueue()  # None: a queue ended

        def work(numbers: Sequence[int]) -> None:
            for number in numbers:
                route, candidate, folder = jobs[number]
                made = self._build(route, operator, setting, candidate, folder, limits or Limits())
                built.put((number, made))

        with ThreadPoolExecutor(usable_cores()) as builders:
            # The longest queue first, so that it does not end alone.
            begun = [builders.submit(work, one) for one in sorted(queues.values(), key=len, reverse=True)]
            for queue in begun:
                queue.add_done_callback(lambda _: built.put(None))
            try:
                for _ in begun:
                    yield from iter(built.get, None)
            finally:  # who wants no more of them waits for those that run
                builders.shutdown(wait=False, cancel_futures=True)
            for queue in begun:
                queue.result()

    def tune(
        self, route: Route, operator: Operator, setting: Setting, workdir: Path, seconds: float
    ) -> list[Candidate] | Outcome:
        """One slice of a tunable route's search in a child; its candidates, the best first."""
        if not isinstance(route, Tunable):
            return Outcome(Status.UNSUPPORTED, f"route {route.name} cannot tune")
        request = request_for(route, operator, self.target, setting)
        with self.lock.building():
            return tune_in_child(self.zygotes[route.zygote], request, workdir, Limits().bounds, seconds)

    def transfer(
        self,
        route: Route,
        operator: Operator,
        setting: Setting,
        records: Sequence[SearchRecord],
        workdir: Path,
    ) -> list[Candidate] | Outcome:
        """Fit a learning route's records to the operator, in a child; its candidates."""
        if not isinstance(route, Learning):
            return Outcome(Status.UNSUPPORTED, f"route {route.name} keeps no records")
        about = request_for(route, operator, self.target, setting)
        request = {**about, "do": "transfer", "records": [asdict(record) for record in records]}
        with self.lock.building():
            return tune_in_child(self.zygotes[route.zygote], request, workdir, Limits().bounds, TRANSFER_S)

    @contextmanager
    def bench(self, operator: Operator, setting: Setting, default: BuiltArtifact) -> Iterator[Bench]:
        """Set an operator up: inputs, float64 reference, the default checked and timed; what an earlier
        bench of it found is not found again (``kept``)."""
        needed, machine = needed_bytes(operator), total_bytes()
        if needed > machine // 2:
            too_large = f"measuring it needs {needed >> 20} MiB; this machine has {machine >> 20} MiB"
            yield Bench(Outcome(Status.OUT_OF_MEMORY, too_large))
            return
        if self.device is not None and (why_not := self.device.why_too_large(tensor_bytes(operator))):
            yield Bench(Outcome(Status.OUT_OF_MEMORY, why_not))
            return
        specimen = partial(Specimen, operator, setting)
        with open_bench(self._equipment, specimen, setting, default, Limits()) as bench:
            yield bench

    def check(self, operator: Operator, setting: Setting, artifact: BuiltArtifact) -> Outcome:
        """Load an artifact in its child and compare what it computes with the reference, untimed."""
        with self.lock.building(), closing(Specimen(operator, setting)) as specimen:
            zygote, bounds = self.zygotes[zygote_of(artifact.manifest)], Limits()
            referees = Referees(specimen, "", lambda: self.zygotes["library"], self.device)
            subject = Subject(zygote, specimen, artifact, bounds.bounds, bounds.run_s)
            try:
                specimen.references = referees.judge_specimen()
                subject.open()
                subject.check()
                return subject.outcome(Status.OK)
            except ChildFailed as failed:
                return subject.outcome(failed.status, failed.detail)
            finally:
                subject.close()

    def inspect(
        self, route: Route, operator: Operator, setting: Setting, artifact: BuiltArtifact, workdir: Path
    ) -> Inspection:
        """What a compiled kernel does beside computing, and its machine code, for whoever approves it.

        ``route`` builds the empty kernel in ``workdir`` that it is held against. Takes tenths of a second.
        """
        if artifact.manifest.kind == "cuda-module":
            return Inspection(*looked_at(artifact))
        honest = self.build(route, operator, setting, _empty(route), workdir)
        if isinstance(honest, Outcome):
            return Inspection({"why_not": f"the empty kernel does not build: {honest.detail[:200]}"})
        runs_in = self.zygotes[zygote_of(artifact.manifest)]
        with self.lock.building():
            make = partial(Specimen, operator, setting)
            reads_in = self.zygotes[route.zygote]
            return inspect(runs_in, reads_in, make, artifact, honest, Limits().bounds)

    def list_code(self, artifact: BuiltArtifact) -> CodeListing:
        """An artifact's machine code, disassembled beside builds and never beside a measurement."""
        submitted = artifact.manifest.route in SUBMITTED
        if self.tier.why_not_for(submitted, False):
            return CodeListing(why_not="the sandbox of this worker is not tight enough for submitted code")
        with self.lock.building():
            return list_code(self.zygotes[READS_CODE], artifact)

    def close(self) -> None:
        """End all processes and remove all files."""
        self.kept.close()
        self._hands.shutdown()
        self.zygotes.close()
        shutil.rmtree(self.home, ignore_errors=True)
        self.lock.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _build(
        self,
        route: Route,
        operator: Operator,
        setting: Setting,
        candidate: Candidate,
        workdir: Path,
        limits: Limits,
    ) -> BuiltArtifact | Outcome:
        if route.builds_in_process:
            return build_here(route, operator, self.target, setting, candidate, workdir)
        source = str(candidate.parameters.get("source", ""))
        own = source == EMPTY or is_own(source)
        if unsafe := self.tier.why_not_for(route.name in SUBMITTED, own):
            return Outcome(Status.UNSUPPORTED, unsafe)
        request = {
            **request_for(route, operator, self.target, setting),
            "candidate": {
                "route": candidate.route,
                "parameters": dict(candidate.parameters),
                "label": candidate.label,
            },
        }
        bounds, build_s = limits.bounds, self.longest_build_s(route, limits)
        left_s = limits.ends - time.monotonic()
        if left_s < self.least_build_s(route):
            return Outcome(Status.TIMED_OUT, f"not begun: {max(0.0, left_s):.0f} s are left for it")
        build_s = min(build_s, left_s)
        if self.device is not None and self.times_on_device(route):
            if why_not := self.device.why_too_large(tensor_bytes(operator)):
                return Outcome(Status.OUT_OF_MEMORY, why_not)
            claim = claim_bytes(tensor_bytes(operator), self.device.total_bytes)
            request["device_bytes"] = [claim, self.device.total_bytes]
            host_bytes = max(bounds.memory_bytes, min(DEVICE_BUILD_BYTES, total_bytes() // 2))
            bounds = replace(bounds, device_bytes=claim, memory_bytes=host_bytes)
        built = build_in_child(self.zygotes[route.zygote], request, workdir, bounds, build_s)
        if isinstance(built, Outcome):
            return built
        return with_provenance(built, route, candidate, self.target, self.tier.name)

    def longest_build_s(self, route: Route, limits: Limits | None = None) -> float:
        """After how long one of its builds is ended."""
        if route.builds_in_process:
            return 0.0
        build_s = (limits or Limits()).build_s
        return max(build_s, DEVICE_BUILD_S) if self.times_on_device(route) else build_s

    def least_build_s(self, route: Route) -> float:
        """With less left, none is begun."""
        if route.builds_in_process:
            return 0.0
        return LEAST_DEVICE_BUILD_S if self.times_on_device(route) else LEAST_BUILD_S

    def times_on_device(self, route: Route) -> bool:
        """Whether its builds time something on the device."""
        return self.device is not None and route.zygote in BUILDS_ON_DEVICE

    def _building(self, route: Route) -> AbstractContextManager[None]:
        return self.lock.measuring() if self.times_on_device(route) else self.lock.building()

    @cached_property
    def _equipment(self) -> Equipment:
        return Equipment(
            target=self.target,
            lock=self.lock,
            zygote_for=lambda artifact: self.zygotes[zygote_of(artifact.manifest)],
            submitted=lambda artifact: artifact.manifest.route in SUBMITTED,
            kept=self.kept,
            library=lambda: self.zygotes["library"],
            flusher=lambda: self._flusher,
            hands=lambda: self._hands,
            device=self.device,
        )

    @cached_property
    def _hands(self) -> ThreadPoolExecutor:
        """Threads for what is not timed; they live as long as the laboratory, since a zygote that one of them
        has to start again does not outlive it."""
        return ThreadPoolExecutor(usable_cores(), thread_name_prefix="laboratory")

    @cached_property
    def _flusher(self) -> CacheFlusher:
        return CacheFlusher(self.target)


def _empty(route: Route) -> Candidate:
    parameters = {"language": "c", "flags": [], "source": EMPTY}
    return Candidate(route.name, parameters, "an empty kernel")


__all__ = ["SUBMITTED", "Bench", "Laboratory", "Limits", "zygote_of"]
