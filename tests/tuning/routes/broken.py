"""Routes that import well, say that they are available, and do not work; importable inside the sandbox."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opatlas.identity import Operator, Setting, Target
from tuning.routes.base import BuiltArtifact, Candidate
from tuning.routes.compiler.halide import HalideRoute
from tuning.routes.manual.cpp import CppRoute


class NoFolder(HalideRoute):
    """As Halide was in T1 once."""

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        raise RuntimeError("Unable to create temp directory\nand more of it")


class Wrong(CppRoute):
    """Its compiler makes something else of the source."""

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        source = str(candidate.parameters["source"]).replace("x[i] < 0 ? 0", "x[i] < 0 ? 1")
        wrong = replace(candidate, parameters={**candidate.parameters, "source": source})
        return super().build(operator, target, setting, wrong, workdir)
