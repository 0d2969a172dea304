"""The laboratory: builds, checks and times candidates in sandboxed children, one measurement at a time.

The only door to measuring: services talk to :class:`Laboratory`; zygotes, sandbox, timer and checker are
its parts. It never raises for what a candidate does.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from tuning.measure import procfs
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
from tuning.measure.sandbox.zygote import Zygote
from tuning.measure.scrutiny.referees import Referees
from tuning.measure.specimen import Specimen, needed_bytes, tensor_bytes
from tuning.measure.subject import Subject
from tuning.measure.timing.caches import CacheFlusher
from tuning.measure.timing.lock import MachineLock
from tuning.routes.base import BuiltArtifact, Candidate, Learning, Route, SearchRecord, Tunable
from tuning.routes.manual.own import is_own
from tuning.routes.manual.submitted import KINDS

log = logging.getLogger(__name__)

TRANSFER_S = 10.0
"""For fitting a handful of known schedules to an operator: each takes a fraction of a second."""

_MEASURING = ("opatlas.load", "opatlas.load.pool:pool_library", "tuning.measure.bound_kernel")
SUBMITTED = tuple(KINDS)
"""Routes whose code somebody else wrote: its children never share a zygote with ours."""

PRELOAD: Mapping[str, tuple[str, ...]] = {
    "native": ("numpy", *_MEASURING, "opatlas.load.c_abi"),
    "manual": ("numpy", *_MEASURING, "opatlas.load.c_abi"),
    "cpp": ("numpy",),
    "cuda": ("numpy", "opatlas.load", "tuning.measure.bound_kernel", "opatlas.load.cuda.module"),
    "xla": ("numpy", "jax", *_MEASURING),
    "library": (
        *("numpy", "onnx", "torch", "onnxruntime"),
        *(*_MEASURING, "opatlas.load.torch.recipe", "opatlas.load.onnxruntime_recipe"),
        *("opatlas.load.numpy_recipe", "opatlas.load.numpy_arrays", "opatlas.load.torch.variants"),
        *("tuning.routes.registry", "tuning.measure.judging.reference"),
    ),
}
"""What a zygote imports beside its routes' ``preload``. ``native`` runs compiled candidates: it shares
neither processes nor memory with the default, which lives in ``library``. ``manual`` is like it, for what
somebody submitted, which ``cpp`` compiles: where it runs there is no compiler. ``cuda`` runs device code,
and initialises CUDA in its children only. ``xla`` loads what needs JAX."""


READS_CODE = "cpp"
"""The zygote whose children disassemble: it has the tools, imports next to nothing, and takes it that what
lies there is hostile."""

ON_DEVICE = ("cuda", "library", "inductor")
"""Zygotes whose children reach the laboratory's device, where it has one."""
BUILDS_ON_DEVICE = ("inductor",)
"""Those whose builds time something on it: they are alone on the machine, and may take longer."""
DEVICE_BUILD_S = 180.0


def zygote_of(manifest: Manifest) -> str:
    """Which zygote's children load an artifact."""
    if manifest.kind == "c-abi":
        return "manual" if manifest.route in SUBMITTED else "native"
    if manifest.kind == "cuda-module":
        return "cuda"
    return "xla" if "jax" in manifest.needs else "library"


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
        self._zygotes: dict[str, Zygote] = {}
        self._preload: dict[str, tuple[str, ...]] = dict(PRELOAD)

    def warm(self, routes: tuple[Route, ...]) -> None:
        """Start the zygotes that these routes need (seconds), so that the first candidate does not wait."""
        for route in routes:
            known = self._preload.get(route.zygote, PRELOAD["native"][:1])
            self._preload[route.zygote] = tuple(dict.fromkeys((*known, *route.preload)))
        names = {"library", "native", *(route.zygote for route in routes)}
        started = [zygote for name in sorted(names) if not (zygote := self._zygote(name)).alive]
        for zygote in started:
            zygote.start()
        for zygote in started:
            try:
                zygote.wait_ready()
            except ChildFailed as failed:
                log.error("zygote %s does not start: %s", zygote.name, failed.detail)
                continue
            for module, reason in zygote.ready.get("failed", {}).items():
                log.warning("zygote %s cannot import %s: %s", zygote.name, module, reason)

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
            if self._times_on_device(route):
                with self.lock.alone_meanwhile():
                    made = self._build(route, operator, setting, candidate, folder, limits or Limits())
                yield number, made
                continue
            queues.setdefault("" if route.builds_in_process else route.zygote, []).append(number)
        for name in queues:
            if name and not (zygote := self._zygote(name)).alive:
                zygote.start()  # by this thread: it must outlive the builders'
        built: SimpleQueue[tuple[int, BuiltArtifact | Outcome] | None] = SimpleQueue()  # None: a queue ended

        def work(numbers: Sequence[int]) -> None:
            for number in numbers:
                route, candidate, folder = jobs[number]
                made = self._build(route, operator, setting, candidate, folder, limits or Limits())
                built.put((number, made))

        with ThreadPoolExecutor(os.cpu_count()) as builders:
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
            return tune_in_child(self._zygote(route.zygote), request, workdir, Limits().bounds, seconds)

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
            return tune_in_child(self._zygote(route.zygote), request, workdir, Limits().bounds, TRANSFER_S)

    @contextmanager
    def bench(self, operator: Operator, setting: Setting, default: BuiltArtifact) -> Iterator[Bench]:
        """Set an operator up: inputs, float64 reference, the default checked and timed; what an earlier
        bench of it found is not found again (``kept``)."""
        needed, machine = needed_bytes(operator), procfs.total_bytes()
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
            zygote, bounds = self._zygote(zygote_of(artifact.manifest)), Limits()
            referees = Referees(specimen, "", lambda: self._zygote("library"), self.device)
            subject = Subject(zygote, specimen, artifact, bounds.bounds, bounds.run_s)
            try:
                specimen.references = referees.judge(specimen.inputs.fd, specimen.request()["sets"])
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
        runs_in = self._zygote(zygote_of(artifact.manifest))
        with self.lock.building():
            make = partial(Specimen, operator, setting)
            reads_in = self._zygote(route.zygote)
            return inspect(runs_in, reads_in, make, artifact, honest, Limits().bounds)

    def list_code(self, artifact: BuiltArtifact) -> CodeListing:
        """An artifact's machine code, disassembled beside builds and never beside a measurement."""
        submitted = artifact.manifest.route in SUBMITTED
        if self.tier.why_not_for(submitted, False):
            return CodeListing(why_not="the sandbox of this worker is not tight enough for submitted code")
        with self.lock.building():
            return list_code(self._zygote(READS_CODE), artifact)

    def close(self) -> None:
        """End all processes and remove all files."""
        self.kept.close()
        self._hands.shutdown()
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes.clear()
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
        bounds, build_s = limits.bounds, limits.build_s
        if self.device is not None and self._times_on_device(route):
            if why_not := self.device.why_too_large(tensor_bytes(operator)):
                return Outcome(Status.OUT_OF_MEMORY, why_not)
            claim = claim_bytes(tensor_bytes(operator), self.device.total_bytes)
            request["device_bytes"] = [claim, self.device.total_bytes]
            bounds, build_s = replace(bounds, device_bytes=claim), max(build_s, DEVICE_BUILD_S)
        built = build_in_child(self._zygote(route.zygote), request, workdir, bounds, build_s)
        if isinstance(built, Outcome):
            return built
        return with_provenance(built, route, candidate, self.target, self.tier.name)

    def _times_on_device(self, route: Route) -> bool:
        return self.device is not None and route.zygote in BUILDS_ON_DEVICE

    def _building(self, route: Route) -> AbstractContextManager[None]:
        return self.lock.measuring() if self._times_on_device(route) else self.lock.building()

    @cached_property
    def _equipment(self) -> Equipment:
        return Equipment(
            target=self.target,
            lock=self.lock,
            zygote_for=lambda artifact: self._zygote(zygote_of(artifact.manifest)),
            submitted=lambda artifact: artifact.manifest.route in SUBMITTED,
            kept=self.kept,
            library=lambda: self._zygote("library"),
            flusher=lambda: self._flusher,
            hands=lambda: self._hands,
            device=self.device,
        )

    @cached_property
    def _hands(self) -> ThreadPoolExecutor:
        """Threads for what is not timed; they live as long as the laboratory, since a zygote that one of them
        has to start again does not outlive it."""
        return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="laboratory")

    @cached_property
    def _flusher(self) -> CacheFlusher:
        return CacheFlusher(self.target)

    @cached_property
    def _pool_folder(self) -> Path | None:
        """Where the loader's thread pool lies compiled, so that no child needs a compiler for it."""
        from opatlas.load.pool import ensure_built

        try:
            return ensure_built().parent
        except LoadError as error:
            log.warning("the loader's thread pool cannot be built: %s", error)
            return None

    def _zygote(self, name: str) -> Zygote:
        if name not in self._zygotes:
            preload = self._preload.get(name, PRELOAD["native"])
            device = self.device if name in ON_DEVICE else None
            self._zygotes[name] = Zygote(
                name, preload, self.tier.name, self.home / name, self._pool_folder, self.readable, device
            )
        return self._zygotes[name]


def _empty(route: Route) -> Candidate:
    parameters = {"language": "c", "flags": [], "source": EMPTY}
    return Candidate(route.name, parameters, "an empty kernel")


__all__ = ["Bench", "Laboratory", "Limits"]
