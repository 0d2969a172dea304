"""Attention of four dimensions. PURE."""

from __future__ import annotations

from collections.abc import Iterator

from opatlas.identity import Operator, Setting, Target, Value
from tuning.routes.compiler.triton.launch import (
    Configuration,
    TritonLaunch,
    of_input,
    of_output,
    parts,
    power_of_two,
    single,
    steps,
    unwieldy,
)
from tuning.routes.compiler.triton.templates.product import precision
from tuning.routes.compiler.triton.templates.rows import FLOATS

MOST_SIZE = 256
_BLOCKS = ((128, 64, 4, 3), (128, 128, 8, 3), (64, 64, 4, 3), (128, 32, 4, 4), (64, 32, 4, 3), (32, 32, 2, 3),
           (64, 128, 4, 3), (16, 64, 4, 3))  # fmt: skip
"""Queries and keys of a block, warps, stages."""


class Attention:
    """Scores are never written: a running softmax over blocks of keys."""

    name = "attention"
    types = frozenset(("Attention",))

    def missing(self, operator: Operator) -> str | None:
        if reason := single(operator, self.types) or unwieldy(operator):
            return reason
        node = operator.nodes[0]
        q, k, v = (operator.value(number) for number in node.inputs[:3])
        if {len(one.shape) for one in (q, k, v)} != {4}:
            return "attention of three dimensions has no Triton template"
        if any(number >= 0 for number in node.inputs[4:]) or node.attributes.get("softcap"):
            return "attention with a cache or a cap has no Triton template"
        if q.dtype not in FLOATS or {k.dtype, v.dtype} != {q.dtype}:
            return f"Triton's attention is of one of {', '.join(FLOATS)}"
        if max(q.shape[3], v.shape[3]) > MOST_SIZE:
            return f"Triton's attention has heads of at most {MOST_SIZE}"
        if (mask := _mask(operator)) is not None and not _spreads(mask, (*q.shape[:3], k.shape[2])):
            return "this attention's mask has no Triton template"
        return None

    def configurations(self, operator: Operator, target: Target, setting: Setting) -> Iterator[Configuration]:
        q, k = (operator.value(number) for number in operator.nodes[0].inputs[:2])
        wide = q.dtype == "float32" or q.shape[3] > 128
        fitting = [
            (queries, keys, warps, stages)
            for queries, keys, warps, stages in _BLOCKS
            if queries <= power_of_two(q.shape[2], 16)
            and keys <= power_of_two(k.shape[2], 16)
            and (not wide or queries * keys <= 64 * 64)
        ]
        for queries, keys, warps, stages in fitting or [(16, 16, 2, 2)]:
            yield {"block_q": queries, "block_k": keys, "warps": warps, "stages": 2 if wide else stages}

    def launch(self, operator: Operator, setting: Setting, configuration: Configuration) -> TritonLaunch:
        node = operator.nodes[0]
        q, k, v = (operator.value(number) for number in node.inputs[:3])
        batches, heads, queries, size = q.shape
        mask = _mask(operator)
        kind = "none" if mask is None else "kept" if mask.dtype == "bool" else "added"
        strides = (0,) * 4 if mask is None else _spread(mask)
        scale = node.attributes.get("scale")
        numbers = {
            "SCALE": float(size**-0.5 if scale is None else scale),
            "HEADS": heads,
            "GROUP": heads // k.shape[1],
            "QUERIES": queries,
            "KEYS": k.shape[2],
            "SIZE": size,
            "VALUE_SIZE": v.shape[3],
            "CAUSAL": bool(node.attributes["is_causal"]),
            "MASK": kind,
            **dict(zip(("MASK_BATCH", "MASK_HEAD", "MASK_QUERY", "MASK_KEY"), strides, strict=True)),
            "PRECISION": precision(operator, setting),
            "BLOCK_Q": configuration["block_q"],
            "BLOCK_K": configuration["block_k"],
            "BLOCK_SIZE": power_of_two(size, 16),
            "BLOCK_VALUE": power_of_two(v.shape[3], 16),
        }
        pointers = (
            *(of_input(name, operator, node.inputs[at]) for at, name in enumerate("qkv")),
            of_input("mask", operator, node.inputs[0 if mask is None else 3]),
            of_output("y", operator),
        )
        grid = (parts(queries, configuration["block_q"]), batches * heads, 1)
        return TritonLaunch(
            "attention:attention", pointers, numbers, grid, configuration["warps"], configuration["stages"]
        )


def _mask(operator: Operator) -> Value | None:
    inputs = operator.nodes[0].inputs
    return operator.value(inputs[3]) if len(inputs) > 3 and inputs[3] >= 0 else None


def _spreads(mask: Value, shape: tuple[int, ...]) -> bool:
    """Whether each dimension of the mask is the scores' or 1."""
    behind = shape[len(shape) - len(mask.shape) :]
    return len(mask.shape) <= 4 and all(
        size in (1, wanted) for size, wanted in zip(mask.shape, behind, strict=True)
    )


def _spread(mask: Value) -> tuple[int, ...]:
    found = tuple(0 if size == 1 else step for size, step in zip(mask.shape, steps(mask), strict=True))
    return (0,) * (4 - len(found)) + found
