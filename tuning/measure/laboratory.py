"""The laboratory: builds, checks and times candidates in sandboxed children, one measurement at a time.

The only door to measuring: services talk to :class:`Laboratory`; zygotes, sandbox, timer and checker are
its parts. It never raises for what a candidate does.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType

from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from tuning.measure import procfs
from tuning.measure.bench import Bench, Equipment, Limits, open_bench
from tuning.measure.builder import build_here, build_in_child, request_for, tune_in_child
from tuning.measure.outcome import Outcome, Status
from tuning.measure.sandbox import tiers as sandbox
from tuning.measure.sandbox.process import ChildFailed
from tuning.measure.sandbox.zygote import Zygote
from tuning.measure.specimen import Specimen, needed_bytes
from tuning.measure.timing.caches import CacheFlusher
from tuning.measure.timing.lock import MachineLock
from tuning.routes.base import BuiltArtifact, Candidate, Learning, Route, SearchRecord, Tunable

log = logging.getLogger(__name__)

TRANSFER_S = 10.0
"""For fitting a handful of known schedules to an operator: each takes a fraction of a second."""

_MEASURING = ("opatlas.load", "opatlas.load.pool:pool_library", "tuning.measure.bound_kernel")
SUBMITTED = ("cpp",)
"""Routes whose code somebody else wrote: its children never share a zygote with ours."""

PRELOAD: Mapping[str, tuple[str, ...]] = {
    "native": ("numpy", *_MEASURING, "opatlas.load.c_abi"),
    "manual": ("numpy", *_MEASURING, "opatlas.load.c_abi"),
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
somebody submitted; ``xla`` loads what needs JAX."""


def zygote_of(manifest: Manifest) -> str:
    """Which zygote's children load an artifact."""
    if manifest.kind == "c-abi":
        return "manual" if manifest.route in SUBMITTED else "native"
    return "xla" if "jax" in manifest.needs else "library"


class Laboratory(AbstractContextManager["Laboratory"]):
    """Owns the warm zygotes and the machine's measurement lock.

    Everything below ``home/lab-<pid>`` is its own; it goes when the laboratory closes. Start and use it
    in one thread that lives as long as it does (sandboxes end with the thread that started them).
    """

    def __init__(
        self, home: Path, target: Target, *, tier: str | None = None, readable: Sequence[Path] = ()
    ) -> None:
        """``tier`` forces a sandbox tier; ``readable`` are further folders that children may read."""
        self.target = target
        self.tier = sandbox.SandboxTier(tier) if tier else sandbox.best_tier()
        self.home = Path(home).absolute() / f"lab-{os.getpid()}-{id(self):x}"
        self.home.mkdir(parents=True)
        self.readable = tuple(readable)
        self.lock = MachineLock()
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
        with nullcontext() if route.builds_in_process else self.lock.building():
            return self._build(route, operator, setting, candidate, workdir, limits or Limits())

    def build_all(
        self,
        operator: Operator,
        setting: Setting,
        jobs: Sequence[tuple[Route, Candidate, Path]],
        limits: Limits | None = None,
    ) -> list[BuiltArtifact | Outcome]:
        """Build several candidates, each in its own folder, as many at a time as there are cores.

        One zygote builds one after the other; different zygotes build side by side.
        """
        queues: dict[str, list[int]] = {}
        for number, (route, _, _) in enumerate(jobs):
            queues.setdefault("" if route.builds_in_process else route.zygote, []).append(number)
        built: dict[int, BuiltArtifact | Outcome] = {}
        for name in queues:
            if name and not (zygote := self._zygote(name)).alive:
                zygote.start()  # by this thread: it must outlive the builders'

        def work(numbers: Sequence[int]) -> None:
            for number in numbers:
                route, candidate, folder = jobs[number]
                built[number] = self._build(route, operator, setting, candidate, folder, limits or Limits())

        with self.lock.building(), ThreadPoolExecutor(os.cpu_count()) as builders:
            # The longest queue first, so that it does not end alone.
            for done in [
                builders.submit(work, one) for one in sorted(queues.values(), key=len, reverse=True)
            ]:
                done.result()
        return [built[number] for number in range(len(jobs))]

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
        """Set an operator up: inputs, float64 reference, the default checked and timed."""
        needed, machine = needed_bytes(operator), procfs.total_bytes()
        if needed > machine // 2:
            too_large = f"measuring it needs {needed >> 20} MiB; this machine has {machine >> 20} MiB"
            yield Bench(Outcome(Status.OUT_OF_MEMORY, too_large))
            return
        specimen = partial(Specimen, operator, setting)
        with open_bench(self._equipment, specimen, setting, default, Limits()) as bench:
            yield bench

    def close(self) -> None:
        """End all processes and remove all files."""
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
        request = {
            **request_for(route, operator, self.target, setting),
            "candidate": {
                "route": candidate.route,
                "parameters": dict(candidate.parameters),
                "label": candidate.label,
            },
        }
        return build_in_child(self._zygote(route.zygote), request, workdir, limits.bounds, limits.build_s)

    @cached_property
    def _equipment(self) -> Equipment:
        return Equipment(
            target=self.target,
            lock=self.lock,
            zygote_for=lambda artifact: self._zygote(zygote_of(artifact.manifest)),
            library=lambda: self._zygote("library"),
            flusher=lambda: self._flusher,
        )

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
            self._zygotes[name] = Zygote(
                name, preload, self.tier.name, self.home / name, self._pool_folder, self.readable
            )
        return self._zygotes[name]


__all__ = ["Bench", "Laboratory", "Limits"]
