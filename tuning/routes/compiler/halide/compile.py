"""A lowered pipeline becomes a c-abi artifact: schedule, object file, wrapper, shared library, manifest."""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path
from typing import Any

from opatlas.errors import LoadError, first_line
from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from opatlas.load.toolchain import compile_shared
from tuning.routes.base import BuiltArtifact, RouteError
from tuning.routes.compiler.halide.lower import Lowered, is_strict, lower
from tuning.routes.compiler.halide.machine import (
    AUTOSCHEDULERS,
    autoscheduler_attempts,
    halide_target,
    import_halide,
)
from tuning.routes.compiler.halide.shim import FUNCTION, VERSION_SCRIPT, packed_bytes, wrapper_source
from tuning.routes.compiler.halide.table import ALIGNMENT, VERSION, used_levels

LIBRARY = "kernel.so"
_CHECKS = re.compile(r"\s*(assert|let \S+\.(buffer|min|ext))")
_LOOPS, _FUNCS = 4, 8
_SOURCE_LIMIT = 60_000  # characters of code kept for people


def build_artifact(
    operator: Operator, target: Target, setting: Setting, scheduler: str, layout: str, workdir: Path
) -> BuiltArtifact:
    """Lower, schedule, compile, link, describe; raises RouteError."""
    hl = import_halide()
    started = time.perf_counter()
    native = halide_target(target, strict=is_strict(operator, setting))
    attempts, refused = autoscheduler_attempts(scheduler, target, setting), ""
    for number, parameters in enumerate(attempts):
        lowered = lower(operator, target, setting, layout)
        if _slow(lowered) and "disable_subtiling" not in parameters and number + 1 < len(attempts):
            continue
        pipeline = hl.Pipeline(lowered.outputs)
        try:
            schedule = _schedule(pipeline, lowered, scheduler, parameters, native, setting)
            break
        except hl.HalideError as error:
            # Adams2019 sometimes ends with a schedule that Halide finds illegal; another search does not.
            refused = first_line(error)
    else:
        raise RouteError(f"{scheduler} finds no legal schedule: {refused}")
    scheduled_s = time.perf_counter() - started
    statement, operands = _compile(pipeline, lowered, native, workdir)
    compiled_s = time.perf_counter() - started - scheduled_s
    _link(operator, operands, workdir)
    manifest = Manifest(
        kind="c-abi",
        route="halide",
        operator=operator.to_json(),
        setting=setting.to_json(),
        files={LIBRARY: hashlib.sha256((workdir / LIBRARY).read_bytes()).hexdigest()},
        features=used_levels(target)[1],
        alignment=ALIGNMENT,
    )
    facts = {
        "autoscheduler": scheduler,
        "schedule_s": round(scheduled_s, 4),
        "compile_s": round(compiled_s, 4),
        "link_s": round(time.perf_counter() - started - scheduled_s - compiled_s, 4),
        "funcs": len(lowered.pipeline.funcs) + len(lowered.outputs),
        "state_bytes": packed_bytes(operands),
        "strict_float": lowered.pipeline.strict,
        "library_bytes": (workdir / LIBRARY).stat().st_size,
        "halide_target": native.to_string() if hasattr(native, "to_string") else str(native),
        "versions": {"halide": VERSION},
    }
    return BuiltArtifact(manifest, workdir, schedule, statement, facts)


def _schedule(
    pipeline: Any, lowered: Lowered, scheduler: str, parameters: dict[str, str], native: Any, setting: Setting
) -> str:
    """Apply an autoscheduler, or our own schedule, and return it as text."""
    hl = import_halide()
    if scheduler not in AUTOSCHEDULERS:
        from tuning.routes.compiler.halide.product_schedule import apply

        return apply(lowered, setting)
    found = pipeline.apply_autoscheduler(native, hl.AutoschedulerParams(scheduler, parameters))
    told = ", ".join(f"{name}={value}" for name, value in parameters.items())
    return f"// {scheduler} ({told}) for {native}\n{found.schedule_source}"


def _slow(lowered: Lowered) -> bool:
    """Whether Adams2019's search over tiles inside tiles would take minutes: seen with pooling and
    convolutions over two axes."""
    funcs = lowered.pipeline.funcs
    return len(funcs) > _FUNCS or any(len(made.shape) + len(made.reduced) > _LOOPS for made in funcs)


def _compile(pipeline: Any, lowered: Lowered, native: Any, workdir: Path) -> tuple[str, list[Any]]:
    """Write ``kernel.o``; returns the lowered loops as text and the operands in the function's order."""
    hl = import_halide()
    arguments = [argument for argument in pipeline.infer_arguments() if argument.name in lowered.operands]
    kind, text = hl.OutputFileType, workdir / "kernel.stmt"
    outputs = {kind.object: str(workdir / "kernel.o"), kind.stmt: str(text)}
    pipeline.compile_to(outputs, arguments, FUNCTION, native)
    names = [argument.name for argument in arguments]
    names += [f"out{place}" for place in range(len(lowered.outputs))]
    statement = text.read_text(errors="replace")
    text.unlink()
    return _readable(statement), [lowered.operands[name] for name in names]


def _link(operator: Operator, operands: list[Any], workdir: Path) -> None:
    wrapper, exports, compiled = workdir / "wrapper.c", workdir / "exports.map", workdir / "kernel.o"
    wrapper.write_text(wrapper_source(operator, operands))
    exports.write_text(VERSION_SCRIPT)
    flags = (f"-Wl,--version-script={exports}", "-Wl,-Bsymbolic", "-Wl,-z,defs", "-Wl,-s", "-O2")
    try:
        compile_shared([wrapper], workdir / LIBRARY, objects=[compiled], flags=flags)
    except LoadError as error:
        raise RouteError(str(error)) from error
    for left_over in (compiled, wrapper, exports):
        left_over.unlink()


def _readable(statement: str) -> str:
    """Halide's loops without the buffer checks before them."""
    text = "\n".join(line for line in statement.splitlines() if not _CHECKS.match(line))
    return text if len(text) <= _SOURCE_LIMIT else text[:_SOURCE_LIMIT] + "\n// … cut off here\n"
