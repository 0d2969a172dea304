"""Inductor on a GPU: AOTInductor's package, whose templates are timed on the device while it compiles.

Runs in a child that reaches the device, within its claim of the device's memory, while nobody else of the
machine measures or builds (``tuning.measure.laboratory``).
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from opatlas.load.needs import installed_version
from opatlas.load.package import BUILT_FOR
from tuning.routes.base import BuiltArtifact, RouteError
from tuning.routes.cuda_headers import include_folders, toolkit

PACKAGE = "kernel.pt2"
TUNED: Mapping[str, Any] = {
    "max_autotune": True,
    "max_autotune_gemm_backends": "ATEN,TRITON",
    "max_autotune_conv_backends": "ATEN,TRITON",
    "coordinate_descent_tuning": True,
}
"""What ``torch.compile(mode="max-autotune")`` sets, without its graphs: these are our own setting."""


def options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Inductor's settings for a candidate; its own are under ``options``."""
    return {
        "always_keep_tensor_constants": True,  # else up to 8 numbers would be written into the code
        "aot_inductor.package_constants_in_so": False,
        "aot_inductor.precompile_headers": False,
        **parameters.get("options", {}),
    }


def build_package(
    operator: Operator, target: Target, setting: Setting, parameters: Mapping[str, Any], workdir: Path
) -> BuiltArtifact:
    """Compile; raises RouteError for what cannot be, and where there is no device."""
    import torch

    if not torch.cuda.is_available():
        raise RouteError("Inductor needs the device while it compiles for it, and PyTorch finds none here")
    return compiled(operator, target, setting, parameters, workdir, torch.device("cuda"))


def compiled(
    operator: Operator,
    target: Target,
    setting: Setting,
    parameters: Mapping[str, Any],
    workdir: Path,
    device: Any,
) -> BuiltArtifact:
    """The same on any of PyTorch's devices."""
    import torch

    from opatlas.load.torch.device_package import BuiltFor
    from opatlas.load.torch.on_device import allow_tf32
    from tuning.routes.compiler.inductor.compile import import_inductor, source_in

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(workdir / "cache")
    if device.type == "cuda":
        _find_what_links(workdir)
    import_inductor()
    allow_tf32(setting.tf32)
    started = time.perf_counter()
    chosen = options(parameters)
    exported = _exported(operator, device)
    if any(isinstance(value, torch.Tensor) for value in exported.constants.values()):
        # Tensors that the graph brings along have to come with it; weights are the loader's to give.
        chosen["aot_inductor.package_constants_in_so"] = True
    torch._inductor.aoti_compile_and_package(
        exported, package_path=str(workdir / PACKAGE), inductor_configs=chosen
    )
    files = {PACKAGE: (workdir / PACKAGE).read_bytes()}
    files[BUILT_FOR] = BuiltFor(device.type, target.arch, setting.tf32, setting.graphs).to_bytes()
    (workdir / BUILT_FOR).write_bytes(files[BUILT_FOR])
    version = installed_version("torch")
    assert version is not None
    manifest = Manifest(
        kind="package",
        route="inductor",
        operator=operator.to_json(),
        setting=setting.to_json(),
        files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        needs={"torch": version},
    )
    facts = {
        "compile_s": round(time.perf_counter() - started, 3),
        "bytes": len(files[PACKAGE]),
        "versions": {"torch": version},
    }
    schedule = json.dumps({"torch": version, "options": chosen}, indent=1, sort_keys=True)
    return BuiltArtifact(manifest, workdir, schedule, source_in(workdir / PACKAGE), facts)


def _exported(operator: Operator, device: Any) -> Any:
    import torch

    from opatlas.load.torch.graph import Unsupported
    from opatlas.load.torch.module import OperatorModule, example_inputs

    try:
        weights = example_inputs(operator, operator.constant_inputs, device)
        inputs = tuple(example_inputs(operator, operator.runtime_inputs, device).values())
        with torch.no_grad(), device:
            return torch.export.export(OperatorModule(operator, weights).eval(), inputs, strict=False)
    except Unsupported as error:
        raise RouteError(str(error)) from error


def _find_what_links(workdir: Path) -> None:
    """Where the host compiler finds CUDA's headers, and the driver under the name that it links by: drivers
    often come without that."""
    folder = toolkit()
    if folder is None:
        raise RouteError("Inductor needs CUDA's headers: install the CUDA toolkit, or set CUDA_HOME")
    os.environ["CUDA_HOME"] = str(folder)
    if folders := include_folders():
        os.environ["CPLUS_INCLUDE_PATH"] = ":".join(map(str, folders))
    ctypes.CDLL("libcuda.so.1")
    lines = Path("/proc/self/maps").read_text().splitlines()
    driver = next(line.split()[-1] for line in lines if "libcuda.so" in line)
    (workdir / "links").mkdir(exist_ok=True)
    link = workdir / "links" / "libcuda.so"
    link.unlink(missing_ok=True)
    link.symlink_to(driver)
    os.environ["LIBRARY_PATH"] = str(link.parent)
