"""Hand-written device code: CUDA C++ for NVRTC, with the launch plan that its author wrote beside it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opatlas.errors import CallerError, LoadError
from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from tuning.routes.base import Answer, Budget, BuiltArtifact, Candidate, Method, No, RouteError, Yes
from tuning.routes.manual.header import CUDA, NAME, header, whole_numbers
from tuning.routes.manual.launch_template import fill
from tuning.routes.manual.matching import Pattern, parse_pattern
from tuning.routes.manual.nvrtc import compile_device_code, versions

CUBIN = "kernel.cubin"
FLAGS = ("--use_fast_math", "--extra-device-vectorization", "--maxrregcount=64", "--maxrregcount=128")
"""What a kernel may ask of NVRTC."""


@dataclass(frozen=True)
class DeviceKernel:
    """One version of a kernel, with all that compiling and launching it takes."""

    name: str
    version: int
    source: str
    launch: Mapping[str, Any]
    pattern: Pattern
    flags: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.name} v{self.version}"

    def candidate(self) -> Candidate:
        """The candidate that this kernel is, whatever the operator: its code is part of it."""
        parameters = {
            "kernel": self.name,
            "version": self.version,
            "language": "cuda",
            "flags": list(self.flags),
            "launch": dict(self.launch),
            "source": self.source,
        }
        return Candidate("cuda", parameters, self.label)


class CudaRoute:
    """CUDA C++ kernels. Which ones there are, a worker binds with :meth:`with_kernels`."""

    name = "cuda"
    method: Method = "manual"
    zygote = "nvrtc"  # where it is compiled; it runs elsewhere, see ``laboratory.zygote_of``
    preload: tuple[str, ...] = ("tuning.routes.manual.cuda", "cuda.bindings.nvrtc")
    builds_in_process = False

    def __init__(self, kernels: Iterable[DeviceKernel] = ()) -> None:
        self.kernels = tuple(kernels)

    def with_kernels(self, kernels: Iterable[DeviceKernel]) -> CudaRoute:
        """The same route, with these kernels to contest."""
        return CudaRoute(kernels)

    def versions(self) -> Mapping[str, str]:
        return versions()

    def available(self, target: Target) -> Answer:
        if target.kind != "cuda":
            return No(f"device code runs on NVIDIA GPUs; the target is {target.kind}")
        found = versions()
        if not found:
            return No("device code is compiled by NVRTC: pip install -r requirements-gpu.txt")
        return Yes(f"NVRTC {found['nvidia-cuda-nvrtc']}")

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        if any(not kernel.pattern.refuses(operator) for kernel in self.kernels):
            return Yes()
        return No("no approved kernel serves it")

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        """Every bound kernel that matches: people chose them, so none is left out for the budget's sake."""
        for kernel in self.kernels:
            if not kernel.pattern.refuses(operator):
                yield kernel.candidate()

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        given = candidate.parameters
        if unknown := [flag for flag in given["flags"] if flag not in FLAGS]:
            raise RouteError(f"NVRTC may be told {', '.join(FLAGS)}, not {unknown[0]!r:.60}")
        macros = header(operator, setting, CUDA)
        began = time.perf_counter()
        try:
            plan = fill(given["launch"], whole_numbers(macros), operator, CUBIN, target.arch)
        except (CallerError, LoadError) as error:
            raise RouteError(str(error)) from error
        made = compile_device_code(given["source"], {NAME: macros}, target.arch, given["flags"])
        if absent := {launch.function for launch in (*plan.prepare, *plan.run)} - set(made.functions):
            raise RouteError(f"its launch plan names {sorted(absent)[0]}, which the source does not define")
        (workdir / CUBIN).write_bytes(made.cubin)
        facts = {
            "compile_s": round(time.perf_counter() - began, 4),
            "functions": {name: dict(used) for name, used in made.functions.items()},
            "build_log": made.log,
            "flags": list(given["flags"]),
            "versions": dict(versions()),
        }
        manifest = Manifest(
            kind="cuda-module",
            route=self.name,
            operator=operator.to_json(),
            setting=setting.to_json(),
            files={CUBIN: hashlib.sha256(made.cubin).hexdigest()},
            launch=plan.to_json(),
        )
        return BuiltArtifact(manifest, workdir, made.ptx, str(given["source"]), facts)


def read_kernel(path: Path, version: int = 1) -> DeviceKernel:
    """A kernel as it ships: ``<name>.json`` beside its source."""
    document = json.loads(path.read_text())
    source = path.with_name(document["file"]).read_text()
    pattern = parse_pattern(document["pattern"])
    flags = tuple(document.get("flags", ()))
    return DeviceKernel(document["name"], version, source, document["launch"], pattern, flags)
