"""The laboratory: builds, checks and times candidates in sandboxed children, one measurement at a time.

The only door to measuring: services talk to :class:`Laboratory`; zygotes, sandbox, timer and checker are
its parts. It never raises for what a candidate does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from opatlas.identity import Operator, Setting, Target
from tuning.measure.outcome import Outcome
from tuning.routes.base import Artifact, Candidate, Route


@dataclass(frozen=True)
class Limits:
    """Bounds on one candidate."""

    build_s: float = 60.0
    run_s: float = 20.0  # checking and timing together
    memory_bytes: int = 4 << 30
    disk_bytes: int = 512 << 20


class Bench:
    """One operator on the bench: inputs, reference outputs and a live default to time against."""

    default: Outcome  # the default's own check and time (ratio 1)

    def measure(self, artifact: Artifact, limits: Limits = Limits()) -> Outcome:
        """Check the artifact against the reference, then time it in turns with the default."""
        raise NotImplementedError

    def confirm(self, artifact: Artifact, incumbent: Artifact | None, limits: Limits = Limits()) -> Outcome:
        """Time again on fresh inputs and fresh samples (more of them), for a finalist."""
        raise NotImplementedError


class Laboratory(AbstractContextManager["Laboratory"]):
    """Owns the warm zygotes and the machine's measurement lock."""

    def __init__(self, home: Path, target: Target) -> None:
        raise NotImplementedError

    def warm(self, routes: tuple[Route, ...]) -> None:
        """Start the zygotes that these routes need (seconds), so that the first candidate does not wait."""
        raise NotImplementedError

    def build(
        self,
        route: Route,
        operator: Operator,
        setting: Setting,
        candidate: Candidate,
        workdir: Path,
        limits: Limits = Limits(),
    ) -> Artifact | Outcome:
        """Build in a child; an Outcome (BUILD_FAILED, TIMED_OUT, CRASHED, OUT_OF_MEMORY) when it fails."""
        raise NotImplementedError

    def tune(
        self, route: Route, operator: Operator, setting: Setting, workdir: Path, seconds: float
    ) -> list[Candidate] | Outcome:
        """One slice of a tunable route's search in a child; its candidates, the best first."""
        raise NotImplementedError

    def bench(self, operator: Operator, setting: Setting, default: Artifact) -> AbstractContextManager[Bench]:
        """Set an operator up: inputs, float64 reference, the default checked and timed."""
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError


__all__ = ["Bench", "Iterator", "Laboratory", "Limits"]
