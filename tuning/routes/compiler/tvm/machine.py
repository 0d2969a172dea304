"""From a target's raw CPU features to what LLVM and TVM are told."""

from __future__ import annotations

from typing import Any

from opatlas.identity import Setting, Target
from tuning.routes.compiler.tvm.patches import import_tvm

_LLVM_NAMES = {
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "pni": "sse3",
    "sse3": "sse3",
    "abm": "lzcnt",
    "bmi1": "bmi",
    "avx_vnni": "avxvnni",
    "sha_ni": "sha",
    "lahf_lm": "sahf",
    "pclmulqdq": "pclmul",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "avx512_vp2intersect": "avx512vp2intersect",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
}
_SAME = """
sse sse2 ssse3 sse4a avx avx2 fma f16c bmi2 popcnt movbe adx aes gfni vaes vpclmulqdq lzcnt avx512f
avx512dq avx512bw avx512vl avx512cd avx512ifma avx512vbmi
"""
LLVM_FEATURES = {**{name: name for name in _SAME.split()}, **_LLVM_NAMES}
"""Raw feature (``/proc/cpuinfo``'s name) → LLVM's, for every feature that changes generated code."""


def used_features(target: Target) -> tuple[str, ...]:
    """The target's raw features that generated code may use: what a manifest states."""
    return tuple(sorted(name for name in target.features if name in LLVM_FEATURES))


def vector_bytes(target: Target) -> int:
    """Width of the widest vector register: 64 with AVX-512, 32 with AVX, else 16."""
    features = set(target.features)
    return 64 if "avx512f" in features else 32 if "avx" in features else 16


def tvm_target(target: Target, setting: Setting) -> Any:
    """The ``tvm.target.Target`` for this hardware and number of threads.

    ``mcpu`` tunes for the architecture where LLVM knows it; the features are those that the machine really
    has, and those that LLVM would assume beside them are switched off.
    """
    import_tvm()
    from tvm.target import Target as TvmTarget
    from tvm.target.codegen import llvm_get_cpu_archlist, llvm_get_cpu_features

    plain = TvmTarget({"kind": "llvm"})
    known = {str(name) for name in llvm_get_cpu_archlist(plain)}
    names = {"zen": "znver1", **{f"zen{n}": f"znver{n}" for n in range(2, 9)}}
    mcpu = names.get(target.arch, target.arch)
    if mcpu not in known:
        mcpu = "x86-64"
    present = {LLVM_FEATURES[name] for name in used_features(target)}
    assumed = {str(name) for name in llvm_get_cpu_features(TvmTarget({"kind": "llvm", "mcpu": mcpu}))}
    absent = (assumed & set(LLVM_FEATURES.values())) - present
    mattr = [f"+{name}" for name in sorted(present)] + [f"-{name}" for name in sorted(absent)]
    return TvmTarget({"kind": "llvm", "mcpu": mcpu, "mattr": mattr, "num-cores": setting.threads})
