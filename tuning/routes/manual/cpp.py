"""Hand-written kernels: source that somebody submitted, compiled for each operator that it matches."""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from opatlas.load.toolchain import find_compiler
from tuning.routes.base import Answer, Budget, BuiltArtifact, Candidate, Method, No, RouteError, Yes
from tuning.routes.manual.compiling import LIBRARY, all_flags, compile_kernel
from tuning.routes.manual.flags import InvalidFlags, check_flags, features_of
from tuning.routes.manual.header import ALIGNMENT, NAME, header
from tuning.routes.manual.matching import Pattern

MAX_SOURCE_BYTES = 128 << 10


@dataclass(frozen=True)
class SubmittedKernel:
    """One version of a kernel, with all that compiling it takes."""

    organisation: str
    name: str
    version: int
    language: str
    source: str
    flags: tuple[str, ...]
    pattern: Pattern

    @property
    def label(self) -> str:
        return f"{self.name} v{self.version}"

    def candidate(self) -> Candidate:
        """The candidate that this kernel is, whatever the operator: its code is part of it."""
        parameters = {
            "organisation": self.organisation,
            "kernel": self.name,
            "version": self.version,
            "language": self.language,
            "flags": list(self.flags),
            "source": self.source,
        }
        return Candidate("cpp", parameters, self.label)


class CppRoute:
    """C and C++ kernels. Which ones there are, a worker binds with :meth:`with_kernels`."""

    name = "cpp"
    method: Method = "manual"
    zygote = "cpp"  # where it is compiled; it runs elsewhere, see ``laboratory.zygote_of``
    preload: tuple[str, ...] = ("tuning.routes.manual.cpp",)
    builds_in_process = False

    def __init__(self, kernels: Iterable[SubmittedKernel] = ()) -> None:
        self.kernels = tuple(kernels)

    def with_kernels(self, kernels: Iterable[SubmittedKernel]) -> CppRoute:
        """The same route, with these kernels to contest."""
        return CppRoute(kernels)

    def versions(self) -> Mapping[str, str]:
        return compiler_versions()

    def available(self, target: Target) -> Answer:
        if target.kind != "cpu":
            return No(f"cpp kernels run on processors; the target is {target.kind}")
        try:
            compiler = find_compiler()
        except LoadError as error:
            return No(str(error))
        return Yes(" ".join(compiler))

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        if any(not kernel.pattern.refuses(operator) for kernel in self.kernels):
            return Yes()
        return No("no approved kernel serves it")

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        """Every bound kernel that matches and that this processor can run: people chose them, so none is
        left out for the budget's sake."""
        for kernel in self.kernels:
            if not kernel.pattern.refuses(operator) and not missing_features(kernel.flags, target):
                yield kernel.candidate()

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


def missing_features(flags: Iterable[str], target: Target) -> tuple[str, ...]:
    """What code compiled with these flags needs, and this processor does not have."""
    has = set(target.features)
    return tuple(feature for feature in features_of(tuple(flags)) if feature not in has)


@cache
def compiler_versions() -> Mapping[str, str]:
    """``{"gcc": "12.2.0"}``: the C compiler here; empty where there is none."""
    try:
        command = find_compiler()
        said = subprocess.run(
            [*command, "-dumpfullversion", "-dumpversion"],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
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
