"""A laboratory and routes that behave as their candidates say: for what the services do, not for speed.

A candidate's parameters: ``ratio`` (default ÷ candidate), ``behave``: "ok", "build_failed", "build_killed",
"crashed", "wrong", "cheated", "slower", "noisy", "lucky" (half its ratio in a line-up), "kill_worker"
(SIGKILL to the worker process), "die" (an exception in the worker's own code); ``incumbent``, the ratio that
the incumbent has when timed beside it; and ``step_s``, how long its timing takes.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

from opatlas.evidence import Evidence, Ratios
from opatlas.identity import Node, Operator, Setting, Target, Value
from opatlas.load import Manifest
from tuning.measure.laboratory import Limits
from tuning.measure.observing.inspecting import Inspection
from tuning.measure.outcome import DEFAULT, LineUp, Outcome, Status
from tuning.measure.reading import CodeListing
from tuning.measure.sandbox.tiers import SandboxTier
from tuning.routes.base import Answer, Budget, BuiltArtifact, Candidate, No, Yes

TARGET = Target(
    kind="cpu", arch="zen3", vendor="AuthenticAMD", isa="x86_64", features=("avx2", "fma"),
    cache_bytes=(("l1d", 32768), ("l2", 524288)), cores=2,
)  # fmt: skip
DEFAULT_US = 100.0


def operator(op: str = "Relu", size: int = 1024) -> Operator:
    """A one-node operator on a float32 vector."""
    value = Value("float32", (size,))
    return Operator((value,), (Node(op, (0,), (1,)),), (1,), (value,))


@dataclass
class FakeRoute:
    name: str
    method: Any = "library"
    offers: Sequence[Mapping[str, Any]] = ({"ratio": 1.0},)
    only: frozenset[str] = frozenset()  # op types that it supports; empty: all
    missing: str = ""  # why it is not available
    breaks: bool = False  # naming candidates raises
    installed: Mapping[str, str] = field(default_factory=lambda: {"fakes": "1"})
    zygote: str = "library"
    preload: tuple[str, ...] = ()
    builds_in_process: bool = True

    def versions(self) -> Mapping[str, str]:
        return self.installed

    def available(self, target: Target) -> Answer:
        return No(self.missing) if self.missing else Yes()

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        if self.only and not self.only.issuperset(operator.op_types):
            return No(f"{self.name} knows only {', '.join(sorted(self.only))}.")
        return Yes()

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        if self.breaks:
            raise ValueError("a bug in the route")
        for number, offer in enumerate(self.offers):
            yield Candidate(self.name, dict(offer), f"variant {number}")

    def build(self, *args: Any) -> BuiltArtifact:
        raise AssertionError("the laboratory builds")


@dataclass
class FakeTunable(FakeRoute):
    finds: Sequence[Mapping[str, Any]] = ()

    def tune(self, *args: Any) -> Iterator[Candidate]:
        raise AssertionError("the laboratory tunes")


EAGER = FakeRoute("eager")


class FakeBench:
    def __init__(self, laboratory: FakeLaboratory, default: BuiltArtifact) -> None:
        self.laboratory = laboratory
        recipe = dict(default.manifest.recipe or {})
        self.default = _outcome(recipe, 1.0)

    def measure(self, artifact: BuiltArtifact, limits: Limits = Limits()) -> Outcome:  # noqa: B008
        return self._time(artifact, "measure", 1.0)

    def heat(self, artifacts: Iterable[BuiltArtifact], limits: Limits = Limits()) -> list[Outcome]:  # noqa: B008
        built = list(artifacts)  # nobody is timed while others build
        return [self._time(artifact, "heat", 1.0) for artifact in built]

    def line_up(self, artifacts: Sequence[BuiltArtifact], *, sittings: int = 3, **_: Any) -> LineUp:
        recipes = [dict(artifact.manifest.recipe or {}) for artifact in artifacts]
        shares = [0.5 if recipe.get("behave") == "lucky" else 1.0 for recipe in recipes]
        outcomes = [
            self._time(*one) for one in zip(artifacts, ["line up"] * len(shares), shares, strict=True)
        ]
        beside = next((recipe["incumbent"] for recipe in recipes if "incumbent" in recipe), None)
        if beside is not None:
            outcomes[-1] = _outcome({}, beside)
        ratios = {number: one.ratio for number, one in enumerate(outcomes) if one.ok} | {DEFAULT: 1.0}
        pairs = {
            (one, other): Ratios(*(ratios[other] / ratios[one] * share for share in (1.0, 0.995, 1.005)))
            for one, other in permutations(ratios, 2)
        }
        return LineUp(tuple(outcomes), pairs, sittings=sittings, default=_outcome({}, 1.0).timing)

    def _time(self, artifact: BuiltArtifact, what: str, share: float) -> Outcome:
        recipe = dict(artifact.manifest.recipe or {})
        with self.laboratory.noting(what, artifact.manifest.route):
            time.sleep(recipe.get("step_s", self.laboratory.step_s))
            if recipe.get("behave") == "kill_worker":
                os.kill(os.getpid(), signal.SIGKILL)
            if recipe.get("behave") == "die":
                raise RuntimeError("a bug in the laboratory")
            return _outcome(recipe, recipe.get("ratio", 1.0) * share)


class FakeLaboratory(AbstractContextManager["FakeLaboratory"]):
    """Notes every step, with its process and when it began and ended, in ``home/laboratory.jsonl``."""

    tier = SandboxTier("T0")
    device = None
    step_s = float(os.environ.get("FAKE_STEP_S", "0"))

    def __init__(self, home: Path, target: Target) -> None:
        self.log = home / "laboratory.jsonl"

    def warm(self, routes: Sequence[Any]) -> None: ...

    def build(
        self, route: Any, operator: Operator, setting: Setting, candidate: Candidate, workdir: Path,
        limits: Limits = Limits(),  # noqa: B008
    ) -> BuiltArtifact | Outcome:  # fmt: skip
        with self.noting("build", route.name, operator.key):
            if candidate.parameters.get("behave") == "build_failed":
                return Outcome(Status.BUILD_FAILED, "it does not compile", log_tail="error: line 1")
            if candidate.parameters.get("behave") == "build_killed":
                return Outcome(Status.TIMED_OUT, "took longer than it may")
            recipe = {"library": "fake", **candidate.parameters}
            return BuiltArtifact(
                Manifest("recipe", route.name, operator.to_json(), setting.to_json(), recipe=recipe), workdir
            )

    def check(self, operator: Operator, setting: Setting, artifact: BuiltArtifact) -> Outcome:
        recipe = dict(artifact.manifest.recipe or {})
        with self.noting("check", artifact.manifest.route, operator.key):
            return _outcome(recipe.get("candidate", recipe), 1.0)

    def build_all(
        self, operator: Operator, setting: Setting, jobs: Sequence[tuple[Any, Candidate, Path]],
        limits: Limits = Limits(),  # noqa: B008
    ) -> list[BuiltArtifact | Outcome]:  # fmt: skip
        return [self.build(route, operator, setting, *rest) for route, *rest in jobs]

    def build_each(
        self, operator: Operator, setting: Setting, jobs: Sequence[tuple[Any, Candidate, Path]],
        limits: Limits = Limits(),  # noqa: B008
    ) -> Generator[tuple[int, BuiltArtifact | Outcome], None, None]:  # fmt: skip
        yield from enumerate(self.build_all(operator, setting, jobs, limits))

    def tune(
        self, route: Any, operator: Operator, setting: Setting, workdir: Path, seconds: float
    ) -> list[Candidate] | Outcome:
        count = workdir / "slices"
        number = int(count.read_text()) if count.exists() else 0
        count.write_text(str(number + 1))
        with self.noting("tune", route.name, operator.key):
            time.sleep(self.step_s)
            if number >= len(route.finds):
                return []
            return [Candidate(route.name, dict(route.finds[number]), f"found in slice {number}")]

    def inspect(
        self, route: Any, operator: Operator, setting: Setting, artifact: BuiltArtifact, workdir: Path
    ) -> Inspection:
        return Inspection({"runs": 8, "calls": {}}, {"imports": []}, "opatlas_run:\n    ret")

    def list_code(self, artifact: BuiltArtifact) -> CodeListing:
        return CodeListing("opatlas_run:\n    1000:\tret", 2, "objdump")

    def bench(
        self, operator: Operator, setting: Setting, default: BuiltArtifact
    ) -> AbstractContextManager[Any]:
        return _Opened(FakeBench(self, default))

    def noting(self, what: str, route: str, operator: str = "") -> AbstractContextManager[None]:
        return _Noted(self.log, {"what": what, "route": route, "operator": operator})

    def __exit__(self, *exc: object) -> None: ...


class _Opened(AbstractContextManager[FakeBench]):
    def __init__(self, bench: FakeBench) -> None:
        self._bench = bench

    def __enter__(self) -> FakeBench:
        return self._bench

    def __exit__(self, *exc: object) -> None: ...


class _Noted(AbstractContextManager[None]):
    def __init__(self, log: Path, entry: dict[str, Any]) -> None:
        self._log, self._entry = log, {**entry, "pid": os.getpid(), "began": time.time()}

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None:
        with self._log.open("a") as stream:
            stream.write(json.dumps({**self._entry, "ended": time.time()}) + "\n")


def _outcome(recipe: Mapping[str, Any], ratio: float) -> Outcome:
    behaviour = recipe.get("behave", "ok")
    if behaviour == "crashed":
        return Outcome(Status.CRASHED, "signal 11", tier="T0")
    if behaviour == "noisy":
        return Outcome(Status.NOISY, "8 of 8 rounds were disturbed", tier="T0")
    if behaviour == "cheated":
        return Outcome(Status.CHEATED, "right when checked, wrong when timed", tier="T0")
    if behaviour == "slower":
        return Outcome(Status.SLOWER, "three times slower than the default", tier="T0")
    if behaviour == "wrong":
        return Outcome(Status.WRONG_RESULT, "off by 3", max_error=3.0, tolerance=1e-5, tier="T0")
    median = DEFAULT_US / ratio
    timing = Evidence(
        median,
        median * 0.01,
        DEFAULT_US,
        ratio,
        ratio * 0.995,
        ratio * 1.005,
        (median,) * 5,
    )
    return Outcome(Status.OK, timing=timing, max_error=1e-7, tolerance=1e-5, tier="T0")
