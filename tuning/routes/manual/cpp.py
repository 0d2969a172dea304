"""Hand-written kernels: source that somebody submitted, compiled for each operator that it matches."""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from opatlas.load.toolchain import find_compiler
from tuning.routes.base import Answer, BuiltArtifact, Candidate, No, RouteError, Yes
from tuning.routes.manual.compiling import LIBRARY, all_flags, compile_kernel
from tuning.routes.manual.flags import InvalidFlags, check_flags, features_of
from tuning.routes.manual.header import ALIGNMENT, NAME, header
from tuning.routes.manual.submitted import KINDS, MAX_SOURCE_BYTES, SubmittedRoute, missing_features


class CppRoute(SubmittedRoute):
    """C and C++ kernels."""

    name = "cpp"
    kinds: tuple[str, ...] = (KINDS["cpp"],)
    zygote = "cpp"  # where it is compiled; it runs elsewhere, see ``zygotes.zygote_of``
    preload: tuple[str, ...] = ("tuning.routes.manual.cpp",)

    def versions(self) -> Mapping[str, str]:
        return compiler_versions()

    def available(self, target: Target) -> Answer:
        if reason := self.foreign(target):
            return No(reason)
        try:
            compiler = find_compiler()
        except LoadError as error:
            return No(str(error))
        return Yes(" ".join(compiler))

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        given = candidate.parameters
        source, language = str(given["source"]), str(given["language"])
        try:
            flags = check_flags(list(given["flags"]), language)
        except InvalidFlags as error:
            raise RouteError(str(error)) from error
        if len(source.encode()) > MAX_SOURCE_BYTES:
            raise RouteError(f"its source is larger than {MAX_SOURCE_BYTES >> 10} KiB")
        if missing := missing_features(flags, target):
            raise RouteError(f"it needs {', '.join(missing)}, which this processor does not have")
        began = time.perf_counter()
        try:
            library, log = compile_kernel(source, (NAME, header(operator, setting)), language, flags, workdir)
        except LoadError as error:  # no compiler for this language
            raise RouteError(str(error)) from error
        facts = {
            "compile_s": round(time.perf_counter() - began, 4),
            "library_bytes": library.stat().st_size,
            "build_log": log,
            "flags": all_flags(language, flags),
            "versions": dict(compiler_versions()),
        }
        return BuiltArtifact(_manifest(operator, setting, flags, library), workdir, "", source, facts)


@cache
def compiler_versions() -> Mapping[str, str]:
    """``{"gcc": "12.2.0"}``: the C compiler here; empty where there is none."""
    try:
        command = find_compiler()
        said = subprocess.run(
            [*command, "-dumpfullversion", "-dumpversion"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (LoadError, OSError, subprocess.TimeoutExpired):
        return {}
    name = "zig" if "ziglang" in command else Path(command[0]).name
    return {name: said.stdout.strip().splitlines()[0]} if said.stdout.strip() else {name: "unknown"}


def _manifest(operator: Operator, setting: Setting, flags: tuple[str, ...], library: Path) -> Manifest:
    described: dict[str, Any] = {"operator": operator.to_json(), "setting": setting.to_json()}
    return Manifest(
        kind="c-abi",
        route="cpp",
        files={LIBRARY: hashlib.sha256(library.read_bytes()).hexdigest()},
        features=features_of(flags),
        alignment=ALIGNMENT,
        **described,
    )
