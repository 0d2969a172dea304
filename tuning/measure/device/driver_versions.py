"""The software of a device that is no package: its driver, and the newest CUDA that this knows."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from opatlas.identity.place.kinds import CUDA
from tuning.measure.device.gpus import ROOT
from tuning.measure.device.mig import nvml
from tuning.routes.base import Route

_TOLD = Path("proc/driver/nvidia/version")
_VERSION = re.compile(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", re.MULTILINE)


def environment_of(route: Route, kind: str) -> dict[str, str]:
    """What results of a route depend on where it is installed, on targets of this kind: its packages, and on
    a GPU the driver that runs what they make."""
    versions = dict(route.versions())
    return {**versions, **_here()} if versions and kind == CUDA.name else versions


@cache
def _here() -> dict[str, str]:
    return driver_versions()


def driver_versions(root: Path = ROOT, library: Any = None) -> dict[str, str]:
    """``nvidia-driver`` and ``cuda-driver``, as far as NVML (``library``: ``pynvml``, or what has its
    functions) or the kernel's module tell: ``580.95.05`` and ``13.0``."""
    library = library or nvml()
    try:
        library.nvmlInit()
        newest = int(library.nvmlSystemGetCudaDriverVersion())
        cuda = f"{newest // 1000}.{newest % 1000 // 10}"
        return {"nvidia-driver": str(library.nvmlSystemGetDriverVersion()), "cuda-driver": cuda}
    except Exception:  # not installed, or NVMLError, which is no Exception of ours
        told = root / _TOLD
        found = _VERSION.search(told.read_text()) if told.exists() else None
        return {"nvidia-driver": found[1]} if found else {}
