"""GPUs that are divided into parts (MIG): which parts one has, and by which files each is reached.

NVML knows the parts; CUDA takes a part for a device of its own, with its own memory and multiprocessors. A
process needs two files for it beside the GPU's own: one of its memory (GPU instance), one of its
multiprocessors (compute instance), whose numbers the kernel's module tells.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CAPABILITIES = Path("proc/driver/nvidia/capabilities")
_MINOR = re.compile(r"^DeviceFileMinor:\s*(\d+)", re.MULTILINE)
_ON = 1


@dataclass(frozen=True)
class GpuPart:
    """``uuid`` begins with ``MIG-``; ``product`` names the GPU and the part's size; the numbers are those of
    its two instances."""

    uuid: str
    product: str
    gpu_instance: int
    compute_instance: int


def nvml() -> Any:
    """The module ``pynvml``; None where it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def parts_of(uuid: str, number: int, library: Any) -> list[GpuPart] | None:
    """Of the GPU with this UUID (or number, where that is empty). None where it is not divided, or nobody can
    tell: an old driver and a GPU that cannot be divided refuse to be asked."""
    if library is None:
        return None
    try:
        library.nvmlInit()
        by_uuid, by_index = library.nvmlDeviceGetHandleByUUID, library.nvmlDeviceGetHandleByIndex
        whole = by_uuid(uuid) if uuid else by_index(number)
        if library.nvmlDeviceGetMigMode(whole)[0] != _ON:
            return None
        most = library.nvmlDeviceGetMaxMigDeviceCount(whole)
    except Exception:  # NVMLError has no base but Exception
        return None
    found = (_part(library, whole, index) for index in range(most))
    return [part for part in found if part is not None]


def _part(library: Any, whole: Any, index: int) -> GpuPart | None:
    try:
        handle = library.nvmlDeviceGetMigDeviceHandleByIndex(whole, index)
    except Exception:  # this many are not made
        return None
    return GpuPart(
        uuid=_text(library.nvmlDeviceGetUUID(handle)),
        product=_text(library.nvmlDeviceGetName(handle)),
        gpu_instance=int(library.nvmlDeviceGetGpuInstanceId(handle)),
        compute_instance=int(library.nvmlDeviceGetComputeInstanceId(handle)),
    )


def files_of(part: GpuPart, minor: int, root: Path) -> Sequence[Path] | None:
    """Its two files, on the GPU whose own file has this number; None where this machine was not given
    them."""
    instance = root / _CAPABILITIES / f"gpu{minor}" / "mig" / f"gi{part.gpu_instance}"
    found = []
    for told in (instance / "access", instance / f"ci{part.compute_instance}" / "access"):
        try:
            said = _MINOR.search(told.read_text(errors="replace"))
        except OSError:
            return None
        node = root / "dev/nvidia-caps" / f"nvidia-cap{said[1] if said else '?'}"
        if not node.exists():
            return None
        found.append(node)
    return found


def _text(said: str | bytes) -> str:
    """Older releases of ``nvidia-ml-py`` hand bytes on."""
    return said.decode() if isinstance(said, bytes) else said
