"""The time below which a result cannot have been computed: what is faster is a cheat.

Peaks are generous on purpose (above any processor known, at any clock): only the impossible is caught here,
and a fast honest kernel never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from opatlas.identity import Operator, Setting, Target

CLOCK_HZ = 6.5e9
FLOPS_PER_CYCLE = 64  # two 512-bit fused multiply-adds of float32
MATRIX_UNIT = 32  # AMX on bfloat16 and int8 against that
L1_BYTES_PER_CYCLE = 192  # two loads and a store of 64 bytes

GPU_CLOCK_HZ = 3.5e9
GPU_FLOPS_PER_CYCLE = 512  # of a multiprocessor: 128 fused multiply-adds of float32, and as much again
GPU_MATRIX_UNIT = 64  # tensor cores on eight bits (16,384 on sm_100) against that, and twice as much
GPU_L1_BYTES_PER_CYCLE = 512  # 128 loaded and 128 stored, and as much again
FAST_ALGORITHM = 6.0
"""Winograd F(4×4, 3×3) needs a quarter of a convolution's multiplications; larger tiles a little less."""

_MOVES_NOTHING = frozenset(
    {
        "Reshape",
        "Transpose",
        "Identity",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Slice",
        "Expand",
        "Split",
        "Dropout",
    }
    | {"Cast", "Gather", "Shape", "Size", "Concat", "DepthToSpace", "SpaceToDepth"}
)
"""A library may answer these with a view."""


def floor_us(operator: Operator, target: Target, setting: Setting) -> float:
    """The least time that one run can take, in microseconds; 0 where nothing is known."""
    from opatlas.identity import describe

    description = describe(operator)
    if all(op in _MOVES_NOTHING for op in operator.op_types):
        return 0.0
    narrow = any(value.dtype not in ("float32", "float64") for value in operator.inputs if value.data is None)
    flops_per_s, bytes_per_s = _PEAKS[target.kind](target, setting, narrow)
    convolves = any("Conv" in op for op in operator.op_types)
    by_flops = description.flops / flops_per_s / (FAST_ALGORITHM if convolves else 1)
    return 1e6 * max(by_flops, description.bytes_moved / bytes_per_s)


def _cpu(target: Target, setting: Setting, narrow: bool) -> tuple[float, float]:
    cycles_per_s = min(setting.threads, target.cores) * CLOCK_HZ
    flops_per_cycle = FLOPS_PER_CYCLE * (MATRIX_UNIT if narrow else 1)
    return cycles_per_s * flops_per_cycle, cycles_per_s * L1_BYTES_PER_CYCLE


def _cuda(target: Target, setting: Setting, narrow: bool) -> tuple[float, float]:
    cycles_per_s = target.multiprocessors * GPU_CLOCK_HZ
    by_matrix_unit = narrow or setting.tf32
    flops_per_cycle = GPU_FLOPS_PER_CYCLE * (GPU_MATRIX_UNIT if by_matrix_unit else 1)
    return cycles_per_s * flops_per_cycle, cycles_per_s * GPU_L1_BYTES_PER_CYCLE


_PEAKS: Mapping[str, Callable[[Target, Setting, bool], tuple[float, float]]] = {"cpu": _cpu, "cuda": _cuda}
"""By a target's kind: floating-point operations and bytes a second."""
