"""A laboratory and routes that behave as their candidates say: for what the services do, not for speed.

A candidate's parameters: ``ratio`` (default ÷ candidate), ``behave``: "ok", "build_failed", "crashed",
"wrong", "noisy", "lucky" (confirmed at half its first ratio), "kill_worker" (SIGKILL to the worker process),
"die" (an exception in the worker's own code); ``incumbent``, the ratio that the incumbent has when timed
beside it; and ``step_s``, how long its timing takes.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from opatlas.evidence import Evidence
from opatlas.identity import Node, Operator, Setting, Target, Value
from opatlas.load import Manifest
from tuning.measure.laboratory import Limits
from tuning.measure.outcome import Outcome, Status
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

    def confirm(
        self,
        artifact: BuiltArtifact,
        incumbent: BuiltArtifact | None,
        limits: Limits = Limits(),  # noqa: B008
    ) -> Outcome:
        recipe = dict(artifact.manifest.recipe or {})
        outcome = self._time(artifact, "confirm", 0.5 if recipe.get("behave") == "lucky" else 1.0)
        if incumbent is None:
            return outcome
        ratio = recipe.get("incumbent", dict(incumbent.manifest.recipe or {}).get("ratio", 1.0))
        return replace(outcome, incumbent=_outcome({}, ratio))

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
            recipe = {"library": "fake", **candidate.parameters}
            return BuiltArtifact(
                Manifest("recipe", route.name, operator.to_json(), setting.to_json(), recipe=recipe), workdir
            )

    def build_all(
        self, operator: Operator, setting: Setting, jobs: Sequence[tuple[Any, Candidate, Path]],
        limits: Limits = Limits(),  # noqa: B008
    ) -> list[BuiltArtifact | Outcome]:  # fmt: skip
        return [self.build(route, operator, setting, *rest) for route, *rest in jobs]

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
