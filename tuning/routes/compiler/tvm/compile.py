"""A scheduled module becomes a c-abi artifact: object file, wrapper, shared library, manifest."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from opatlas.load.toolchain import compile_shared
from tuning.routes.base import BuiltArtifact, RouteError
from tuning.routes.compiler.tvm.lean import relax, tvm
from tuning.routes.compiler.tvm.lower import WrapperPlan, to_module, to_plan
from tuning.routes.compiler.tvm.machine import tvm_target, used_features
from tuning.routes.compiler.tvm.patches import installed_versions
from tuning.routes.compiler.tvm.shim import VERSION_SCRIPT, wrapper_source
from tuning.routes.compiler.tvm.table import ALIGNMENT

LIBRARY = "kernel.so"
_SOURCE_LIMIT = 60_000  # characters of code kept for people
_ASSEMBLY_LINES = 400


@dataclass(frozen=True)
class Traces:
    """The schedule as data: PrimFunc's name in the lowered module → TVM's trace as JSON."""

    functions: Mapping[str, Any]

    def to_text(self) -> str:
        """What an artifact keeps as its schedule; its ``functions`` are a candidate's ``traces``."""
        versions = installed_versions()
        document = {"format": "tvm-traces", "versions": versions, "functions": dict(self.functions)}
        return json.dumps(document, sort_keys=True, indent=1)


def lower_only(operator: Operator, target: Target, setting: Setting) -> tuple[Any, Any]:
    """The unscheduled module and TVM's target."""
    native = tvm_target(target, setting)
    try:
        return to_module(operator, setting, native), native
    except RouteError:
        raise
    except Exception as error:  # TVM's errors share no base but Exception
        raise RouteError(f"TVM's frontend refuses it: {last_line(error)}") from error


def finish(module: Any, operator: Operator, native: Any) -> tuple[Any, WrapperPlan]:
    """Split weight-layout blocks off the scheduled functions, plan the calls; returns the plan's IRModule."""
    with native:
        module = relax.transform.SplitLayoutRewritePreproc()(module)
    plan = to_plan(module, operator)
    functions = {
        symbol: function.with_attr("global_symbol", symbol) for symbol, function in plan.functions.items()
    }
    return tvm.IRModule(functions), plan


def build_artifact(
    operator: Operator,
    target: Target,
    setting: Setting,
    scheduled: Any,
    traces: Traces,
    native: Any,
    workdir: Path,
) -> BuiltArtifact:
    """Compile, link, describe. ``scheduled`` is the lowered module with its PrimFuncs replaced."""
    started = time.perf_counter()
    kernels, plan = finish(scheduled, operator, native)
    objects, assembly = [], ""
    if plan.functions:
        library = tvm.tirx.build(kernels, native)
        library.write_to_file(str(workdir / "kernel.o"), "o")
        objects, assembly = [workdir / "kernel.o"], library.inspect_source("asm")
    compiled_s = time.perf_counter() - started
    wrapper, exports = workdir / "wrapper.c", workdir / "exports.map"
    wrapper.write_text(wrapper_source(plan, operator))
    exports.write_text(VERSION_SCRIPT)
    flags = (f"-Wl,--version-script={exports}", "-Wl,-Bsymbolic", "-Wl,-s", "-O1")
    try:
        compile_shared([wrapper], workdir / LIBRARY, objects=objects, flags=flags)
    except LoadError as error:
        raise RouteError(str(error)) from error
    script = "\n\n".join(f"# {name}\n{function.script()}" for name, function in plan.functions.items())
    for left_over in (*objects, wrapper, exports):
        left_over.unlink()
    manifest = Manifest(
        kind="c-abi",
        route="tvm",
        operator=operator.to_json(),
        setting=setting.to_json(),
        files={LIBRARY: hashlib.sha256((workdir / LIBRARY).read_bytes()).hexdigest()},
        features=used_features(target),
        alignment=ALIGNMENT,
    )
    facts = {
        "compile_s": round(compiled_s, 4),
        "link_s": round(time.perf_counter() - started - compiled_s, 4),
        "kernels": len(plan.functions),
        "calls": len(plan.run),
        "prepare_calls": len(plan.prepare),
        "scratch_bytes": plan.scratch_bytes,
        "state_bytes": plan.state_bytes,
        "library_bytes": (workdir / LIBRARY).stat().st_size,
        "llvm_target": str(native),
        "versions": installed_versions(),
    }
    return BuiltArtifact(manifest, workdir, traces.to_text(), _readable(script, assembly), facts)


def _readable(script: str, assembly: str) -> str:
    """TVMScript of what was compiled, and the assembly around its innermost loops."""
    lines = [line for line in assembly.splitlines() if not line.lstrip().startswith((".", "#"))]
    start = _densest(lines)
    code = "\n".join(lines[start : start + _ASSEMBLY_LINES])
    return f"{script[:_SOURCE_LIMIT]}\n\n# --- assembly (excerpt) ---\n{code}\n"


def _densest(lines: list[str]) -> int:
    """Where the stretch with the most vector instructions starts: the rest is argument checks."""
    vectors = [0, *accumulate(("mm" in line and "%" in line) for line in lines)]
    last = max(0, len(lines) - _ASSEMBLY_LINES)
    return max(
        range(last + 1), key=lambda start: vectors[min(start + _ASSEMBLY_LINES, len(lines))] - vectors[start]
    )


def last_line(error: BaseException) -> str:
    """TVM's errors carry pages of trace; the last line says what it was."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
