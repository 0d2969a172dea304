"""One operator through ``torch.export`` and AOTInductor into a package. Runs in the child."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from opatlas.load.needs import installed_version
from tuning.routes.base import Artifact, RouteError
from tuning.routes.compiler.inductor.cxx import Compiler, used_features, vector_bits

PACKAGE = "kernel.pt2"
MOST_CONSTANT_BYTES = 64 << 20
"""Above this, tensors that the exported graph brings along are not packaged."""

_headers: Path | None = None


def warm() -> None:
    """What a zygote does once: import everything; its folder is where its children share headers."""
    global _headers
    import_inductor()
    _headers = Path.cwd() / "inductor-headers"


def import_inductor() -> None:
    """Import Inductor without its pool of compiling processes."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    import torch._dynamo
    import torch._inductor.codegen.cpp_wrapper_cpu
    import torch._inductor.compile_fx  # noqa: F401
    from torch._inductor import config

    config.compile_threads = 1


def options(target: Target, setting: Setting, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Inductor's settings for a candidate; its own are under ``options``."""
    return {
        "cpp.threads": setting.threads,
        "cpp.simdlen": vector_bits(target) or 1,
        "cpp.march": "",  # the target's features are told one by one instead
        "aot_inductor.enable_line_tables": False,
        "aot_inductor.precompile_headers": False,  # they are, but not again for every build
        "aot_inductor.package_constants_in_so": False,
        **parameters.get("options", {}),
    }


def build_package(
    operator: Operator, target: Target, setting: Setting, parameters: Mapping[str, Any], workdir: Path
) -> Artifact:
    """Compile; raises RouteError for what Inductor or the C++ compiler refuses."""
    import torch

    import_inductor()
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(workdir / "cache")
    started = time.perf_counter()
    torch.set_num_threads(setting.threads)
    exported = _export(operator)
    chosen = options(target, setting, parameters)
    held = sum(value.nbytes for value in exported.constants.values() if isinstance(value, torch.Tensor))
    if held > MOST_CONSTANT_BYTES:
        raise RouteError(f"the graph holds {held >> 20} MiB of tensors of its own")
    chosen["aot_inductor.package_constants_in_so"] = held > 0
    export_s = time.perf_counter() - started
    compiler = Compiler(target, _headers or workdir.parent / "inductor-headers")
    with compiler.installed():
        torch._inductor.aoti_compile_and_package(
            exported, package_path=str(workdir / PACKAGE), inductor_configs=chosen
        )
    content = (workdir / PACKAGE).read_bytes()
    version = installed_version("torch")
    assert version is not None
    manifest = Manifest(
        kind="package",
        route="inductor",
        operator=operator.to_json(),
        setting=setting.to_json(),
        files={PACKAGE: hashlib.sha256(content).hexdigest()},
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
    return Artifact(manifest, workdir, schedule, _source(workdir / PACKAGE), facts)


def _export(operator: Operator) -> Any:
    import torch

    from opatlas.load.torch_graph import Unsupported
    from opatlas.load.torch_module import OperatorModule, example_inputs

    try:
        with torch.no_grad():
            module = OperatorModule(operator, example_inputs(operator, operator.constant_inputs)).eval()
            inputs = tuple(example_inputs(operator, operator.runtime_inputs).values())
            return torch.export.export(module, inputs, strict=False)
    except Unsupported as error:
        raise RouteError(str(error)) from error


def _source(package: Path) -> str:
    """What was generated for this operator: its kernels, and the function that calls them."""
    with zipfile.ZipFile(package) as archive:
        texts = {
            kind: archive.read(name).decode()
            for name in archive.namelist()
            for kind in ("kernel.cpp", "wrapper.cpp")
            if name.endswith(kind)
        }
    parts = [_without_commands(texts.get("kernel.cpp", "")).strip()]
    run = re.search(r"void AOTInductorModel::run_impl\(.*?^\} // AOTInductorModel::run_impl", 
                    texts.get("wrapper.cpp", ""), re.DOTALL | re.MULTILINE)  # fmt: skip
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
