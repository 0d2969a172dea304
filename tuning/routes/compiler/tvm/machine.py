"""From a target's raw CPU features to what TVM is told and what a schedule has to know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opatlas.identity import Setting, Target, llvm_target
from tuning.routes.compiler.tvm.blocks import Machine
from tuning.routes.compiler.tvm.patches import import_tvm


def used_features(target: Target) -> tuple[str, ...]:
    """The target's raw features that LLVM is told of, so that code may use them: what a manifest states."""

    def told(name: str) -> bool:
        return any(word.startswith("+") for word in llvm_target(replace(target, features=(name,)))[1])

    return tuple(sorted(name for name in target.features if told(name)))


def machine_of(target: Target, setting: Setting) -> Machine:
    """The widest vector register (64 bytes with AVX-512, 32 with AVX, else 16) and the threads."""
    features = set(target.features)
    return Machine(64 if "avx512f" in features else 32 if "avx" in features else 16, setting.threads)


def tvm_target(target: Target, setting: Setting) -> Any:
    """The ``tvm.target.Target`` for this hardware and number of threads."""
    import_tvm()
    from tvm.target import Target as TvmTarget

    cpu, attributes = llvm_target(target)
    return TvmTarget({"kind": "llvm", "mcpu": cpu, "mattr": list(attributes), "num-cores": setting.threads})
