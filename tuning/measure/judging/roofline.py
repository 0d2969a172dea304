"""The time below which a result cannot have been computed: what is faster is a cheat.

Peaks are generous on purpose (above any CPU known, at any clock): only the impossible is caught here, and a
fast honest kernel never.
"""

from __future__ import annotations

from opatlas.identity import Operator, Setting, Target

CLOCK_HZ = 6.5e9
FLOPS_PER_CYCLE = 64  # two 512-bit fused multiply-adds of float32
MATRIX_UNIT = 32  # AMX on bfloat16 and int8 against that
L1_BYTES_PER_CYCLE = 192  # two loads and a store of 64 bytes
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
    threads = min(setting.threads, target.cores)
    narrow = any(value.dtype not in ("float32", "float64") for value in operator.inputs if value.data is None)
    peak = threads * CLOCK_HZ * FLOPS_PER_CYCLE * (MATRIX_UNIT if narrow else 1)
    convolves = any("Conv" in op for op in operator.op_types)
    by_flops = description.flops / peak / (FAST_ALGORITHM if convolves else 1)
    views = all(op in _MOVES_NOTHING for op in operator.op_types)
    by_bytes = 0.0 if views else description.bytes_moved / (threads * CLOCK_HZ * L1_BYTES_PER_CYCLE)
    return 1e6 * max(0.0 if views else by_flops, by_bytes)
