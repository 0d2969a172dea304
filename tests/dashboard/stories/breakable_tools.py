"""The tools of ``breakable_worker``: the real laboratory, PyTorch eager, and hand-written kernels that are
compiled outside the sandbox, by the compiler that ``CC`` names. Inside it the system's own would be found,
which no test may take away. They are checked and timed in the sandbox as ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opatlas.identity import Operator, Setting, Target
from tuning.measure.provenance import with_provenance
from tuning.routes.base import BuiltArtifact, Candidate
from tuning.routes.library.eager import Eager
from tuning.routes.manual.cpp import CppRoute
from tuning.worker import process as worker


class CompiledOutside(CppRoute):
    """C kernels, compiled in the worker's own process."""

    builds_in_process = True

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        made = super().build(operator, target, setting, candidate, workdir)
        return with_provenance(made, self, candidate, target, "T0")


def make_tools() -> worker.Tools:
    return replace(worker.real_tools(), routes=(Eager(), CompiledOutside()), prove=None)


worker.make_tools = make_tools
