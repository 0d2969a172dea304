"""Routes that compile whatever C they are given, one runs it there too; importable inside the sandbox."""

from __future__ import annotations

import ctypes
from pathlib import Path

from opatlas.identity import Operator, Setting, Target
from tests.tuning.measure.kernels import c_artifact
from tests.tuning.measure.routes import Obedient
from tuning.routes.base import BuiltArtifact, Candidate, RouteError


class Compiling(Obedient):
    """``parameters["source"]`` is the whole C source behind the usual preamble."""

    name = "compiling"

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        return c_artifact(workdir, "kernel", operator, setting, candidate.parameters["source"])


class Probing(Compiling):
    """Runs it too, where things are built, and fails with what it says: as a compiler would that was taken
    over."""

    name = "probing"

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        artifact = super().build(operator, target, setting, candidate, workdir)
        library = ctypes.CDLL(str(artifact.folder / "kernel.so"))
        library.opatlas_error.restype = ctypes.c_char_p
        library.opatlas_run(None, 0, None, None)
        raise RouteError(library.opatlas_error().decode())
