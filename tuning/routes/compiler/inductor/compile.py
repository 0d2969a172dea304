"""One operator through ``torch.export`` and AOTInductor into a package. Runs in the child."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opatlas.identity import Operator, Setting, Target, detect_target, parse_operator
from opatlas.load import Manifest
from opatlas.load.needs import installed_version
from tuning.routes.base import BuiltArtifact, RouteError
from tuning.routes.compiler.inductor.cxx import Compiler, used_features, vector_bits
from tuning.routes.compiler.inductor.packing import Constants

log = logging.getLogger(__name__)

PACKAGE = "kernel.pt2"
PACKED = "packed.json"
MOST_CONSTANT_BYTES = 64 << 20
"""Above this, a graph that brings tensors of its own along is not packaged."""

_headers: Path | None = None


def warm() -> None:
    """What a zygote does once: import everything; its folder is where its children share headers."""
    global _headers
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        import torch  # noqa: F401

        return  # Inductor asks for the device when it is imported: whoever forks must not have
    import_inductor()
    _headers = Path.cwd() / "inductor-headers"
    _rehearse()


def import_inductor() -> None:
    """Import Inductor without its pool of compiling processes."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    import torch._dynamo
    import torch._inductor.codegen.cpp_wrapper_cpu
    import torch._inductor.compile_fx  # noqa: F401
    from torch._inductor import config

    config.compile_threads = 1


class _Enough(BaseException):
    """Ends a rehearsal where the C++ compiler would start."""


def _rehearse() -> None:
    """Compile a little up to its C++, once for all children: Inductor prepares its patterns (2,000 of them)
    and imports half of itself only when it is used. Starts no thread."""
    import torch
    from torch._inductor import cpp_builder

    def stop(*_: Any) -> None:
        raise _Enough

    operator = parse_operator({"op": "Softmax", "inputs": [{"dtype": "float32", "shape": [4, 32]}]})
    chosen = options(detect_target(), Setting(threads=1), {})
    builder: Any = cpp_builder
    real, builder._run_compile_cmd = builder._run_compile_cmd, stop
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
            torch._inductor.aoti_compile_and_package(
                _export(operator), package_path=f"{folder}/none.pt2", inductor_configs=chosen
            )
    except _Enough:
        return
    except Exception as error:
        log.warning("Inductor's rehearsal failed: %s", error)
    finally:
        builder._run_compile_cmd = real


def options(target: Target, setting: Setting, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Inductor's settings for a candidate; its own are under ``options``."""
    return {
        "cpp.threads": setting.threads,
        "cpp.simdlen": vector_bits(target) or 1,
        "cpp.march": "",  # the target's features are told one by one instead
        "always_keep_tensor_constants": True,  # else up to 8 numbers would be written into the code
        "aot_inductor.enable_line_tables": False,
        "aot_inductor.precompile_headers": False,  # they are, but not again for every build
        "aot_inductor.package_constants_in_so": False,
        **parameters.get("options", {}),
    }


def build_package(
    operator: Operator, target: Target, setting: Setting, parameters: Mapping[str, Any], workdir: Path
) -> BuiltArtifact:
    """Compile; raises RouteError for what Inductor or the C++ compiler refuses."""
    import_inductor()
    import torch

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(workdir / "cache")
    started = time.perf_counter()
    torch.set_num_threads(setting.threads)
    exported = _export(operator)
    export_s = time.perf_counter() - started
    compiler = Compiler(target, _headers or workdir.parent / "inductor-headers")
    chosen = options(target, setting, parameters)
    packed = _compile(exported, chosen, compiler, workdir)
    source = source_in(workdir / PACKAGE)
    if chosen.get("max_autotune") and "micro_gemm" not in source:
        raise RouteError("Inductor has no GEMM template for it")
    content = (workdir / PACKAGE).read_bytes()
    files = {PACKAGE: hashlib.sha256(content).hexdigest()}
    if packed:
        description = json.dumps(packed, sort_keys=True).encode()
        (workdir / PACKED).write_bytes(description)
        files[PACKED] = hashlib.sha256(description).hexdigest()
    version = installed_version("torch")
    assert version is not None
    manifest = Manifest(
        kind="package",
        route="inductor",
        operator=operator.to_json(),
        setting=setting.to_json(),
        files=files,
        needs={"torch": version},
        features=used_features(target),
    )
    facts = {
        "compile_s": round(time.perf_counter() - started, 3),
        "export_s": round(export_s, 3),
        "cxx_s": compiler.seconds,
        "bytes": len(content),
        "versions": {"torch": version},
    }
    schedule = json.dumps({"torch": version, "options": chosen}, indent=1, sort_keys=True)
    return BuiltArtifact(manifest, workdir, schedule, source, facts)


def _compile(
    exported: Any, chosen: dict[str, Any], compiler: Compiler, workdir: Path
) -> Mapping[str, Mapping[str, Any]]:
    """Leave the package in ``workdir``; how its packed constants come from the buffers."""
    import torch

    own = {name: value for name, value in exported.constants.items() if isinstance(value, torch.Tensor)}
    buffers = dict(exported.named_buffers())
    # Weights are the loader's to give; values that belong to the graph itself have to come with it.
    inside = bool(own)
    while True:
        held = sum(value.nbytes for value in (*own.values(), *buffers.values())) if inside else 0
        if held > MOST_CONSTANT_BYTES:
            raise RouteError(f"the package would hold {held >> 20} MiB of tensors")
        chosen["aot_inductor.package_constants_in_so"] = inside
        constants = Constants(buffers, own)
        with compiler.installed(), constants.watched():
            torch._inductor.aoti_compile_and_package(
                exported, package_path=str(workdir / PACKAGE), inductor_configs=chosen
            )
        if inside or not constants.unknown:
            return constants.packed
        inside = True


def _export(operator: Operator) -> Any:
    import torch

    from opatlas.load.torch.graph import Unsupported
    from opatlas.load.torch.module import OperatorModule, example_inputs

    try:
        with torch.no_grad():
            module = OperatorModule(operator, example_inputs(operator, operator.constant_inputs)).eval()
            inputs = tuple(example_inputs(operator, operator.runtime_inputs).values())
            return torch.export.export(module, inputs, strict=False)
    except Unsupported as error:
        raise RouteError(str(error)) from error


def source_in(package: Path) -> str:
    """What was generated for this operator: its kernels, and the function that calls them."""
    with zipfile.ZipFile(package) as archive:
        texts = {
            kind: archive.read(name).decode()
            for name in archive.namelist()
            for kind in ("kernel.cpp", "wrapper.cpp")
            if name.endswith(kind)
        }
    parts = [_without_commands(texts.get("kernel.cpp", "")).strip()]
    run = re.search(
        r"void AOTInductorModel::run_impl\(.*?^\} // AOTInductorModel::run_impl",
        texts.get("wrapper.cpp", ""),
        re.DOTALL | re.MULTILINE,
    )
    if run:
        parts.append(run.group(0))
    return "\n\n".join(part for part in parts if part) + "\n"


def _without_commands(text: str) -> str:
    """Without the comments that say how it was compiled and on which machine's paths."""
    lines = text.splitlines()
    return "\n".join(
        line
        for line in lines
        if not re.match(r"// (Compile cmd|Link cmd|g\+\+ |clang|/|Triton kernels)", line)
    )
