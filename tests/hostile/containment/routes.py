"""A route that compiles whatever C it is given; importable inside the sandbox."""

from __future__ import annotations

from pathlib import Path

from opatlas.identity import Operator, Setting, Target
from tests.tuning.measure.kernels import c_artifact
from tests.tuning.measure.routes import Obedient
from tuning.routes.base import BuiltArtifact, Candidate


class Compiling(Obedient):
    """``parameters["source"]`` is the whole C source behind the usual preamble."""

    name = "compiling"

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        return c_artifact(workdir, "kernel", operator, setting, candidate.parameters["source"])
