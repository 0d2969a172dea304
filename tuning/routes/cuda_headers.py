"""Where CUDA's headers lie: in the packages that PyTorch brings, in the toolkit of nvcc, or some in each."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

TOOLKITS = ("/usr/local/cuda", "/opt/cuda")
"""A sandbox that builds shows their headers."""
OF_DEVICE_CODE = ("cuda_fp16.h", "nv/target")
"""Of two packages, and the first includes the second."""
OF_HOST_CODE = ("cuda.h", "cuda_runtime_api.h", "crt/host_defines.h")
"""The second includes the last, which is a package of its own that PyTorch does not bring."""


def toolkit() -> Path | None:
    """A folder whose ``include`` has what code of the host's includes, as ``CUDA_HOME`` is meant."""
    return next((folder for folder in _folders() if _has(folder / "include", OF_HOST_CODE)), None)


def include_folders() -> list[Path]:
    """As few as have all that device code includes; empty where one of these is nowhere."""
    found: list[Path] = []
    for name in OF_DEVICE_CODE:
        known = (folder / "include" for folder in _folders())
        one = next((folder for folder in (*found, *known) if _has(folder, (name,))), None)
        if one is None:
            return []
        found = list(dict.fromkeys((*found, one)))
    return found


def _has(folder: Path, names: tuple[str, ...]) -> bool:
    return all((folder / name).exists() for name in names)


def _folders() -> Iterator[Path]:
    """What was asked for, the packages' before a toolkit: that may be of another CUDA than PyTorch's."""
    yield from (Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name))
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        yield from (Path(root) / name for name in ("cu13", "cuda_runtime"))
    yield from map(Path, TOOLKITS)
