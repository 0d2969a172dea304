"""What has to be done to TVM before it can be used as a quick, forkable compiler.

Measured on two cores of a Zen 5: ``import tvm`` takes 1.4 s and 384 MB with PyTorch, 0.4 s and 189 MB
without; the x86 tensor intrinsics take 0.07 s, all of them more than a minute.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

VERSIONS = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}
"""The only pair that works: with later ffi releases MetaSchedule's TuneContext segfaults."""

_lock = threading.Lock()
_INTRINSICS = "tvm.s_tir.tensor_intrin"


def import_tvm() -> Any:
    """The ``tvm`` module, imported in its lean form and with only the x86 intrinsics. Starts no thread."""
    with _lock:
        if _INTRINSICS not in sys.modules:
            with _without_torch():
                tvm = importlib.import_module("tvm")
                importlib.import_module("tvm.relax.frontend.onnx")
            _import_x86_intrinsics(tvm)
            importlib.import_module("tuning.routes.compiler.tvm.intrinsics").register()
            _bound_gather(tvm)
        return sys.modules["tvm"]


def _bound_gather(tvm: Any) -> None:
    """Let the frontend's Gather clamp its indices: TVM's default reads whatever lies outside the tensor, in
    the memory of the job that loaded the kernel."""
    take = tvm.relax.op.take

    def bounded(x: Any, indices: Any, axis: int | None = None, mode: str = "clip") -> Any:
        return take(x, indices, axis, mode)

    tvm.relax.op.take = bounded


@contextmanager
def _without_torch() -> Iterator[None]:
    """Hide PyTorch from tvm_ffi, which otherwise imports it for an exchange of tensors not used here."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]


def _import_x86_intrinsics(tvm: Any) -> None:
    """Import ``tensor_intrin.x86`` alone: its package's ``__init__`` would parse hundreds for other chips.

    Every intrinsic calls ``inspect.stack()``, which reads source lines for each frame unless told not to.
    """
    package = types.ModuleType(_INTRINSICS)
    package.__path__ = [str(Path(tvm.s_tir.__file__).parent / "tensor_intrin")]
    package.__package__ = _INTRINSICS
    stack = inspect.stack
    inspect.stack = lambda context=1: stack(0)  # type: ignore[assignment]
    try:
        sys.modules[_INTRINSICS] = package
        importlib.import_module(f"{_INTRINSICS}.x86")
        tvm.s_tir.tensor_intrin = package
    except BaseException:
        del sys.modules[_INTRINSICS]
        raise
    finally:
        inspect.stack = stack


def installed_versions() -> dict[str, str]:
    """Distribution → installed version, for those of :data:`VERSIONS` that are there. Imports nothing."""
    found = {}
    for name in VERSIONS:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
