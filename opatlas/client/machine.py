"""What this machine is, and what a process on it can load; quick, since every job waits for it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from opatlas.client.cache.store import EntryStore, digest_of
from opatlas.cores import usable_cores
from opatlas.identity.place.cpu import detect_target
from opatlas.identity.place.kinds import CUDA
from opatlas.identity.place.target import Target

LIBRARIES = ("jax", "jaxlib", "numpy", "onnxruntime", "torch")
"""Libraries whose exact versions recipes and packages need."""


def this_machine(store: EntryStore | None) -> Target:
    """The processor; from the cache if it was described since the machine started."""
    name = digest_of(["this machine", _boot(), usable_cores()])
    kept = store.fact(name) if store is not None else None
    if kept is not None:
        return Target.from_json(kept)
    found = detect_target()
    if store is not None:
        store.keep_fact(name, found.to_json())
    return found


def installed(target: Target) -> dict[str, Any]:
    """What this process can load: kinds of artifacts for the target, and its libraries."""
    compiled = "cuda-module" if target.kind == CUDA.name else "c-abi"
    return {"kinds": [compiled, "package", "recipe"], "versions": installed_versions(LIBRARIES)}


def installed_versions(distributions: Iterable[str]) -> dict[str, str]:
    """Versions of the installed ones, by their folders' names: importlib.metadata takes 25 ms."""
    wanted, found = set(distributions), dict[str, str]()
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder or "."):
                name, dash, version = entry.name.removesuffix(".dist-info").partition("-")
                if dash and entry.name.endswith(".dist-info") and name.lower().replace("_", "-") in wanted:
                    found.setdefault(name.lower().replace("_", "-"), version)
    return found


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return str(time.time())  # no two are the same: it is described each time
