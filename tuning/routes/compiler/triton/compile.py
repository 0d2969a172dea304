"""One launch through Triton into a cubin and its launch plan. Runs in the child; needs no device.

Triton's kernels take more arguments than their authors write: addresses of scratch memory, at the end. How
many depends on Triton's version, so they are counted in the PTX that it wrote.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import math
import os
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from opatlas.load.cuda.plan import LaunchPlan
from opatlas.load.needs import installed_version
from tuning.routes.base import BuiltArtifact, RouteError
from tuning.routes.compiler.triton.launch import TYPES, Configuration, TritonLaunch

CUBIN = "kernel.cubin"
KERNELS = "tuning.routes.compiler.triton.kernels"
WARP = 32
ALIGNMENT = 16
"""Bytes. Of what pointers point at: the code may load so many at once."""
PHASE = "phase"
"""The last argument of kernels that are launched more than once in a run: for which time."""
HIDDEN = 2
"""Triton 3.3 added the address of a global scratch, 3.4 one for profiling."""
SCRATCH_ALIGNMENT = 128
"""Bytes: descriptors of tensors lie there."""
SHARED_BYTES = {80: 163 << 10, 86: 99 << 10, 87: 163 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10,
                103: 227 << 10, 120: 99 << 10, 121: 99 << 10}  # fmt: skip
"""Shared memory that one block may have, by architecture; of others nothing is known beforehand."""
PTX_BEFORE_CUDA = 4
"""PTX 8.x is CUDA 12's, 9.x is 13's. Within a major version any driver loads what a later minor one made."""


def build_module(
    operator: Operator,
    target: Target,
    setting: Setting,
    launch: TritonLaunch,
    configuration: Configuration,
    workdir: Path,
) -> BuiltArtifact:
    """Raises RouteError, or what Triton raises."""
    began = time.perf_counter()
    os.environ["TRITON_CACHE_DIR"] = str(workdir / "cache")
    number = int(target.arch.removeprefix("sm_").rstrip("af"))
    function = load_kernel(launch, workdir)
    made = compiled(function, launch, number)
    cubin, ptx, found = made.asm["cubin"], str(made.asm["ptx"]), made.metadata
    if found.shared > SHARED_BYTES.get(number, found.shared):
        raise RouteError(f"a block needs {found.shared} bytes of shared memory; {target.arch} has fewer")
    plan = launch_plan(launch, ptx, found, operator, PHASE in function.arg_names)
    (workdir / CUBIN).write_bytes(cubin)
    facts = {
        "compile_s": round(time.perf_counter() - began, 4),
        "functions": used(made, workdir / CUBIN),
        "shared_bytes": found.shared,
        "versions": {"triton": installed_version("triton")},
    }
    manifest = Manifest(
        kind="cuda-module",
        route="triton",
        operator=operator.to_json(),
        setting=setting.to_json(),
        files={CUBIN: hashlib.sha256(cubin).hexdigest()},
        launch=plan.to_json(),
    )
    source = launch.text or inspect.getsource(function.fn)
    source += f"\n# {json.dumps({**configuration, **launch.numbers}, sort_keys=True)}\n"
    return BuiltArtifact(manifest, workdir, ptx, source, facts)


def load_kernel(launch: TritonLaunch, workdir: Path) -> Any:
    """Triton's function: of our kernels, or of the text that a template wrote."""
    if not launch.text:
        module, _, name = launch.kernel.partition(":")
        return getattr(importlib.import_module(f"{KERNELS}.{module}"), name)
    path = workdir / f"{launch.kernel}.py"  # Triton reads sources from files
    path.write_text(launch.text)
    spec = importlib.util.spec_from_file_location(f"opatlas_triton_{launch.kernel}", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return getattr(made, launch.kernel)


def compiled(function: Any, launch: TritonLaunch, arch: int) -> Any:
    """What Triton makes of it for this architecture (90 is sm_90)."""
    signature = {pointer.name: f"*{TYPES[pointer.dtype]}" for pointer in launch.pointers}
    signature |= {PHASE: "i32"} | dict.fromkeys(launch.numbers, "constexpr")
    ordered = {name: signature[name] for name in function.arg_names}
    aligned = {
        (place,): [["tt.divisibility", ALIGNMENT]]
        for place, name in enumerate(ordered)
        if name not in (PHASE, *launch.numbers)
    }
    options = {"num_warps": launch.warps, "num_stages": launch.stages, "enable_fp_fusion": True}
    return triton.compile(
        ASTSource(function, ordered, dict(launch.numbers), aligned),
        target=GPUTarget("cuda", arch, WARP),
        options=options,
    )


def launch_plan(launch: TritonLaunch, ptx: str, found: Any, operator: Operator, phased: bool) -> LaunchPlan:
    """Ours, from what Triton says of the kernel it made; ``phased``: whether it has that argument."""
    if found.num_ctas != 1:
        raise RouteError("the launch plan has no clusters of blocks")
    parameters = len(re.findall(r"\.param\s", ptx.partition(".entry")[2].partition(")")[0]))
    pointers = [dict(pointer.argument) for pointer in launch.pointers]
    phases = [[{"int32": number}] if phased else [] for number in range(len(launch.grids))]
    hidden = parameters - len(pointers) - phased
    if not 0 <= hidden <= HIDDEN:
        raise RouteError(f"Triton's kernel has {hidden} hidden arguments; {HIDDEN} are known")
    scratch_bytes = int(getattr(found, "global_scratch_size", 0)) * max(map(math.prod, launch.grids))
    if getattr(found, "profile_scratch_size", 0):
        raise RouteError("Triton's kernel wants memory for a profiler")
    behind = -(-launch.workspace_bytes // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
    scratch = [{"workspace": behind} if scratch_bytes else {"int64": 0}, {"int64": 0}][:hidden]
    document = {
        "module": CUBIN,
        "arch": re.search(r"\.target\s+(sm_\w+)", ptx)[1],  # type: ignore[index]
        "driver": _driver(ptx),
        "workspace_bytes": behind + scratch_bytes,
        "packed_bytes": [],
        "prepare": [],
        "run": [
            {
                "function": found.name,
                "grid": list(grid),
                "block": [WARP * found.num_warps, 1, 1],
                "shared_bytes": found.shared,
                "arguments": [*pointers, *phase, *scratch],
            }
            for grid, phase in zip(launch.grids, phases, strict=True)
        ],
    }
    return LaunchPlan.from_json(document, operator)


def used(made: Any, cubin: Path) -> Mapping[str, Mapping[str, int]]:
    """Registers and stack of its function, as the cubin says; nothing where the tool that reads it is not
    there."""
    from triton import knobs

    try:
        said = subprocess.run(
            [knobs.nvidia.cuobjdump.path, "-res-usage", str(cubin)],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return {}
    found = re.search(r"REG:(\d+) STACK:(\d+)", said.stdout)
    return {made.metadata.name: {"registers": int(found[1]), "stack_bytes": int(found[2])}} if found else {}


def _driver(ptx: str) -> int:
    """The least CUDA that a driver must be for."""
    version = re.search(r"\.version\s+(\d+)\.", ptx)
    assert version is not None
    return 1000 * (int(version[1]) + PTX_BEFORE_CUDA)
