"""An untimed run of a kernel, watched by strace from outside; what the harness does itself is taken off.

The same is done with an honest, empty kernel of the same operator: what is left is the kernel's own. It is
seen from before it is loaded (constructors, ``prepare``) to its last run. A kernel that behaves in a few
untimed runs and not later is not found out here; the checks of timed runs are for that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tuning.measure import procfs
from tuning.measure.observing.calls import Calls
from tuning.measure.observing.tracing import NotTraced, Trace, why_no_tracer
from tuning.measure.sandbox.process import Bounds, Child, ChildFailed
from tuning.measure.sandbox.zygote import Zygote
from tuning.measure.specimen import Specimen
from tuning.measure.subject import Subject
from tuning.routes.base import BuiltArtifact

RUNS = 8
RUN_S = 20.0


@dataclass(frozen=True)
class Watched:
    """One kernel's life: what it asked of the system, and how much it grew."""

    calls: Calls
    grown_bytes: int
    failed: str = ""  # why it did not come to its end


def observe(
    zygote: Zygote,
    make_specimen: Callable[[], Specimen],
    artifact: BuiltArtifact,
    honest: BuiltArtifact,
    bounds: Bounds,
) -> dict[str, Any]:
    """What the kernel did that the honest one did not, as JSON; ``why_not`` where nothing was observed."""
    if why_not := why_no_tracer():
        return {"why_not": why_not}
    try:
        with closing(make_specimen()) as specimen:
            expected = _watch(zygote, specimen, honest, bounds)
            if expected.failed:
                return {"why_not": f"an empty kernel does not run either: {expected.failed}"}
            seen = _watch(zygote, specimen, artifact, bounds)
    except (NotTraced, ChildFailed, OSError, MemoryError) as error:
        return {"why_not": str(error)[:300] or type(error).__name__}
    own = seen.calls.beyond(expected.calls).to_json()
    grown = max(0, seen.grown_bytes - expected.grown_bytes)
    return {"runs": RUNS, **own, "grown_bytes": grown, "failed": seen.failed[:300]}


class _Watching:
    """A zygote whose next child is traced from its first word on."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote
        self.trace: Trace | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._zygote, name)

    def spawn(self, *arguments: Any, **named: Any) -> Child:
        child = self._zygote.spawn(*arguments, **named)
        try:
            self.trace = Trace(child.pid)
        except NotTraced:
            self._zygote.forget(child)
            raise
        return child


def _watch(zygote: Zygote, specimen: Specimen, artifact: BuiltArtifact, bounds: Bounds) -> Watched:
    watching = _Watching(zygote)
    subject = Subject(watching, specimen, artifact, bounds, RUN_S)  # type: ignore[arg-type]
    failed, grown = "", 0
    try:
        subject.open()
        assert subject.child is not None
        before = procfs.resident_bytes(subject.child.pid)
        subject.child.run_ns(RUNS, subject.time_left())
        grown = procfs.resident_bytes(subject.child.pid) - before
    except ChildFailed as error:
        if watching.trace is None:
            raise
        failed = error.detail
    finally:
        if watching.trace is not None:
            watching.trace.close()
        subject.close()
    assert watching.trace is not None
    return Watched(watching.trace.calls, grown, failed)
