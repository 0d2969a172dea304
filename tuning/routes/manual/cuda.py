"""Hand-written device code: CUDA C++ for NVRTC, with the launch plan that its author wrote beside it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path

from opatlas.errors import CallerError, LoadError
from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from tuning.routes.base import Answer, BuiltArtifact, Candidate, No, RouteError, Yes
from tuning.routes.manual.flags import InvalidFlags, check_flags
from tuning.routes.manual.header import CUDA, NAME, header, whole_numbers
from tuning.routes.manual.launch_template import fill
from tuning.routes.manual.nvrtc import compile_device_code, versions
from tuning.routes.manual.submitted import KINDS, MAX_SOURCE_BYTES, SubmittedRoute

CUBIN = "kernel.cubin"


class CudaRoute(SubmittedRoute):
    """CUDA C++ kernels."""

    name = "cuda"
    kinds: tuple[str, ...] = (KINDS["cuda"],)
    zygote = "nvrtc"  # where it is compiled; it runs elsewhere, see ``zygotes.zygote_of``
    preload: tuple[str, ...] = ("tuning.routes.manual.cuda", "cuda.bindings.nvrtc")

    def versions(self) -> Mapping[str, str]:
        return versions()

    def available(self, target: Target) -> Answer:
        if reason := self.foreign(target):
            return No(reason)
        found = versions()
        if not found:
            return No("device code is compiled by NVRTC: pip install -r requirements-gpu.txt")
        return Yes(f"NVRTC {found['nvidia-cuda-nvrtc']}")

    def build(
        self, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
    ) -> BuiltArtifact:
        given = candidate.parameters
        source = str(given["source"])
        try:
            flags = check_flags(list(given["flags"]), "cuda")
        except InvalidFlags as error:
            raise RouteError(str(error)) from error
        if len(source.encode()) > MAX_SOURCE_BYTES:
            raise RouteError(f"its source is larger than {MAX_SOURCE_BYTES >> 10} KiB")
        macros = header(operator, setting, CUDA)
        began = time.perf_counter()
        try:
            plan = fill(given["launch"], whole_numbers(macros), operator, CUBIN, target.arch)
        except (CallerError, LoadError) as error:
            raise RouteError(str(error)) from error
        made = compile_device_code(source, {NAME: macros}, target.arch, flags)
        if absent := {launch.function for launch in (*plan.prepare, *plan.run)} - set(made.functions):
            raise RouteError(f"its launch plan names {sorted(absent)[0]}, which the source does not define")
        (workdir / CUBIN).write_bytes(made.cubin)
        facts = {
            "compile_s": round(time.perf_counter() - began, 4),
            "functions": {name: dict(used) for name, used in made.functions.items()},
            "build_log": made.log,
            "flags": list(flags),
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
        return BuiltArtifact(manifest, workdir, made.ptx, source, facts)
