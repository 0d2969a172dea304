"""What compilers must be told of a target: from the raw features, never from the architecture's name alone.

A virtual machine may hide a feature that the named processor has; code that uses it would crash there.
"""

from __future__ import annotations

from opatlas.identity.place.target import Target

# /proc/cpuinfo's name → the name that LLVM's -mattr and (with -m before it) GCC and Clang use: most are the
# same but for an underscore.
_X86_PLAIN = """
    adx aes avx avx2 avx512_bf16 avx512_bitalg avx512_fp16 avx512_vbmi2 avx512_vnni
    avx512_vp2intersect avx512_vpopcntdq avx512bw avx512cd avx512dq avx512f avx512ifma avx512vbmi
    avx512vl avx_vnni bmi2 f16c fma gfni movbe popcnt ssse3 vaes vpclmulqdq
"""
_X86 = {name: name.replace("_", "") for name in _X86_PLAIN.split()} | {
    "abm": "lzcnt",
    "amx_bf16": "amx-bf16",
    "amx_fp16": "amx-fp16",
    "amx_int8": "amx-int8",
    "amx_tile": "amx-tile",
    "bmi1": "bmi",
    "pclmulqdq": "pclmul",
    "pni": "sse3",
    "sha_ni": "sha",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
}
_ARM = {name: name for name in ("bf16", "i8mm", "sve", "sve2")} | {
    "asimd": "neon",
    "asimddp": "dotprod",
    "asimdhp": "fullfp16",
}
_NEWER_THAN_GCC_12 = frozenset({"amx-fp16"})

# archspec's name → LLVM's, for its scheduling model; features are always spelt out beside it.
_LLVM_CPU = {name: name for name in ("broadwell", "cascadelake", "haswell", "sapphirerapids", "skylake")} | {
    "icelake": "icelake-server",
    "skylake_avx512": "skylake-avx512",
    "zen": "znver1",
    **{f"zen{number}": f"znver{number}" for number in (2, 3, 4, 5)},
}
_LEVELS = (
    ("x86-64-v4", frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
    ("x86-64-v3", frozenset({"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"})),
    ("x86-64-v2", frozenset({"sse4_2", "ssse3", "popcnt"})),
)


def compiler_flags(target: Target) -> tuple[str, ...]:
    """``-m`` flags for GCC (12 or newer), Clang and ``zig cc``: one for each feature the target has."""
    if target.isa == "aarch64":
        extensions = sorted(_ARM[name] for name in target.features if name in _ARM and name != "asimd")
        return ("-march=" + "+".join(["armv8.2-a", *extensions]),) if "asimdhp" in target.features else ()
    known = (_X86[name] for name in target.features if name in _X86)
    return tuple(f"-m{name}" for name in sorted(known) if name not in _NEWER_THAN_GCC_12)


def llvm_target(target: Target) -> tuple[str, tuple[str, ...]]:
    """LLVM's ``mcpu`` and ``mattr``: every feature of the table with ``+`` where the target has it and ``-``
    where it has not, so that ``mcpu`` (for scheduling) can bring in nothing that is hidden."""
    if target.isa == "aarch64":
        return "generic", tuple(sorted(f"+{_ARM[name]}" for name in target.features if name in _ARM))
    have = set(target.features)
    cpu = _LLVM_CPU.get(target.arch) or next((level for level, needed in _LEVELS if needed <= have), "x86-64")
    # Off first, then on: switching AVX-512 off would take what builds on it with it.
    off = sorted(f"-{word}" for name, word in _X86.items() if name not in have)
    on = sorted(f"+{word}" for name, word in _X86.items() if name in have)
    return cpu, (*off, *on)
