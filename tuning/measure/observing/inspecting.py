"""What an approver is shown of one build: its untimed run, its machine code, the risk lines of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuning.measure.machine_code import MOST_TEXT
from tuning.measure.observing.risks import ordered, risks_of_code, risks_of_run
from tuning.measure.observing.watching import observe
from tuning.measure.reading import NotRead, read_in_child
from tuning.measure.sandbox.process import Bounds
from tuning.measure.sandbox.zygote import Zygote
from tuning.measure.specimen import Specimen
from tuning.routes.base import BuiltArtifact

EMPTY = """\
#include "opatlas_abi.h"
static void nothing(int32_t task, int32_t tasks, void *arg) { (void)task; (void)tasks; (void)arg; }
int opatlas_run(const opatlas_tensor *t, int32_t n, const opatlas_threads *threads, void *state)
{
    (void)t; (void)n; (void)state;
    if (threads->count > 1)
        threads->parallel_for(threads->pool, nothing, 0, threads->count);
    return 0;
}
"""
"""The honest kernel that everybody's is held against: it starts the pool, as most do. A thread that another
starts instead of the pool's has to be asked for by name, which its machine code shows."""


@dataclass(frozen=True)
class Inspection:
    """Facts as bounded JSON, and their risk lines, the gravest first."""

    observed: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, Any] = field(default_factory=dict)
    assembly: str = ""

    @property
    def risks(self) -> list[dict[str, str]]:
        found = ordered([*risks_of_run(self.observed), *risks_of_code(self.code)])
        return [risk.to_json() for risk in found]


def inspect(
    runs_in: Zygote,
    reads_in: Zygote,
    make_specimen: Callable[[], Specimen],
    artifact: BuiltArtifact,
    honest: BuiltArtifact,
    bounds: Bounds,
) -> Inspection:
    """Never raises for what the kernel does: what could not be looked at says why."""
    observed = observe(runs_in, make_specimen, artifact, honest, bounds)
    described = _disassembled(reads_in, artifact, bounds)
    return Inspection(observed, described["code"], str(described["assembly"])[:MOST_TEXT])


def _disassembled(zygote: Zygote, artifact: BuiltArtifact, bounds: Bounds) -> dict[str, Any]:
    library = next(iter(artifact.manifest.files))
    try:
        found = read_in_child(zygote, "disassemble", Path(artifact.folder) / library, bounds)
        return {"assembly": str(found["assembly"]), "code": dict(found["code"])}
    except (NotRead, KeyError, TypeError, ValueError) as error:
        return _not(str(error))


def _not(why: str) -> dict[str, Any]:
    return {"assembly": "", "code": {"why_not": why[:300] or "no reason given"}}
