"""What a route is: one way to make an implementation of an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest

Method = Literal["library", "compiler", "manual"]


@dataclass(frozen=True, slots=True)
class Yes:
    """The route can."""

    detail: str = ""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class No:
    """The route cannot, and says why in one sentence."""

    reason: str

    def __bool__(self) -> bool:
        return False


Answer = Yes | No


def answer(reason: str | None, detail: str = "") -> Answer:
    """No with the reason, where there is one."""
    return No(reason) if reason else Yes(detail)


def foreign_kind(route: str, kinds: Sequence[str], target: Target) -> str | None:
    """Why a route for targets of these kinds is none for this one; None where it is."""
    if target.kind in kinds:
        return None
    return f"{route} is for targets of kind {' or '.join(kinds)}, not {target.kind}"


EVERYWHERE = "everywhere"


@dataclass(frozen=True, slots=True)
class KnownLimit:
    """What a route does badly, or not everywhere, and why: declared where it is not mended. What ``supports``
    refuses says so itself, and needs no such entry."""

    sentence: str
    concerns: Callable[[Operator], bool]
    where: str = EVERYWHERE  # of which targets, settings or machines it is true: "on machines that …"


@dataclass(frozen=True, slots=True)
class Budget:
    """What a route may spend on one operator's untuned candidates."""

    seconds: float
    candidates: int = 16


@dataclass(frozen=True)
class Candidate:
    """One way to try: plain JSON data, enough to build it again."""

    route: str
    parameters: Mapping[str, Any]
    label: str  # a few words for people: "channels-last, packed weights"


@dataclass(frozen=True)
class BuiltArtifact:
    """What a build left in its work folder: a manifest, and the files it names, in ``folder``."""

    manifest: Manifest
    folder: Path
    schedule: str = ""  # the compiler's schedule: text that can be turned into code again
    source: str = ""  # generated or hand-written code, for people to read
    facts: Mapping[str, Any] = field(default_factory=dict)  # compile seconds, versions, workspace bytes


class Route(Protocol):
    """One library, compiler or source of hand-written kernels.

    A route imports what is heavy only inside ``build`` (and ``tune``); both run in a child process, forked
    from a zygote that has imported ``preload`` already. The other methods are cheap and run in the worker.
    """

    name: str
    method: Method
    zygote: str  # which warm zygote its builds are forked from: "library", "tvm", "halide", "xla", "cpp"
    preload: tuple[str, ...]  # modules that zygote imports before it forks
    kinds: tuple[str, ...]  # of targets that it is for: "cpu", "cuda"
    builds_in_process: bool  # True where a build only writes a manifest (recipes): no child is needed

    def versions(self) -> Mapping[str, str]:
        """Distribution → version: this route's part of the environment. Empty where it is not installed."""
        ...

    def available(self, target: Target) -> Answer:
        """Whether it works on this machine for this target. Reads versions, imports nothing heavy."""
        ...

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        """Whether it can express this operator."""
        ...

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        """Untuned candidates, the most promising first."""
        ...

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        """Make the candidate. Runs in the child; raises RouteError (or anything) when it cannot."""
        ...


MOST_MEASURED = 3
"""Candidates of one slice that are measured, the first."""


@runtime_checkable
class Tunable(Protocol):
    """A route that can search further in slices (stage 2)."""

    def tune(
        self, operator: Operator, target: Target, setting: Setting, workdir: Path, seconds: float
    ) -> Iterator[Candidate]:
        """Search for at most ``seconds``, keeping what it learnt in ``workdir`` so that the next slice goes
        on from there; yields candidates worth measuring, the best first. Runs in the child."""
        ...


@dataclass(frozen=True)
class SearchRecord:
    """What a search found, kept beyond it. ``record`` is the route's own form, plain JSON."""

    record: Mapping[str, Any]
    time_us: float
    origin: str = ""  # sizes of the neighbour that it was found for; empty: this very operator


@runtime_checkable
class Learning(Protocol):
    """A tunable route whose findings are kept as records, and serve the operator's neighbours too."""

    name: str

    def record_version(self) -> str:
        """What records must come from to be understood: ``apache-tvm 0.27.0``."""
        ...

    def transfer(
        self, operator: Operator, target: Target, setting: Setting, records: Sequence[SearchRecord]
    ) -> Iterator[Candidate]:
        """The records that can be applied to the operator, as candidates. Runs in the child."""
        ...

    def seed(self, workdir: Path, records: Sequence[SearchRecord]) -> None:
        """Lay records where the next slice of ``tune`` starts from them. Runs in the worker."""
        ...

    def learnt(self, workdir: Path) -> Sequence[SearchRecord]:
        """What the slices so far have found, the best first. Runs in the worker; imports nothing heavy, and
        takes what it cannot read for nothing."""
        ...


class RouteError(Exception):
    """A candidate that cannot be built; the message becomes the trial's detail."""
