"""Attention of four dimensions. PURE."""

from __future__ import annotations

import math
from collections.abc import Iterator

from opatlas.identity import Operator, Setting, Target, Value
from tuning.routes.compiler.triton.launch import (
    Configuration,
    TritonLaunch,
    has_tma,
    in_workspace,
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
_BLOCKS = ((128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 3), (128, 64, 4, 3), (64, 128, 4, 2),
           (128, 32, 4, 4), (64, 32, 4, 3), (32, 32, 2, 3), (16, 128, 4, 3), (16, 64, 4, 3))  # fmt: skip
"""Queries (of all heads that share their keys) and keys of a block, warps, stages."""


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
        q, k, v = (operator.value(number) for number in operator.nodes[0].inputs[:3])
        batches, heads, queries, size = q.shape
        rows = queries * (heads // k.shape[1])
        wide = q.dtype == "float32" or size > 128
        fitting = [
            one
            for one in _BLOCKS
            if one[0] <= power_of_two(rows, 16)
            and one[1] <= power_of_two(k.shape[2], 16)
            and (not wide or one[0] * one[1] <= 64 * 64)
            and (size <= 64 or one[0] < 32 * one[2])  # a row and more a thread does not fit into registers
        ]
        moved = q.dtype != "float32" and has_tma(target) and size % 8 == 0 and v.shape[3] % 8 == 0
        for in_block, keys, warps, stages in fitting or [(16, 16, 2, 2)]:
            blocks = parts(rows, in_block) * batches * k.shape[1]
            for split in _splits(blocks, parts(k.shape[2], keys), target):
                for tma in (1, 0) if moved else (0,):
                    yield {
                        "block_q": in_block,
                        "block_k": keys,
                        "warps": warps,
                        "stages": 2 if wide else stages,
                        "split": split,
                        "tma": tma,
                    }

    def launch(self, operator: Operator, setting: Setting, configuration: Configuration) -> TritonLaunch:
        node = operator.nodes[0]
        q, k, v = (operator.value(number) for number in node.inputs[:3])
        batches, heads, queries, size = q.shape
        mask, split, group = _mask(operator), configuration["split"], heads // k.shape[1]
        kind = "none" if mask is None else "kept" if mask.dtype == "bool" else "added"
        strides = (0,) * 4 if mask is None else _spread(mask)
        scale = node.attributes.get("scale")
        numbers = {
            "SCALE": float(size**-0.5 if scale is None else scale) * math.log2(math.e),
            "BATCHES": batches,
            "HEADS": heads,
            "GROUP": group,
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
            "SPLIT": configuration["split"],
            "TMA": bool(configuration["tma"]),
        }
        pointers = (
            *(of_input(name, operator, node.inputs[at]) for at, name in enumerate("qkv")),
            of_input("mask", operator, node.inputs[0 if mask is None else 3]),
            of_output("y", operator),
            in_workspace("sums") if split > 1 else of_output("sums", operator),
        )
        blocks = parts(queries * group, configuration["block_q"])
        return TritonLaunch(
            "attention:attention",
            pointers,
            numbers,
            (blocks, batches * k.shape[1], split),
            configuration["warps"],
            configuration["stages"],
            then=(blocks, batches * k.shape[1], 1) if split > 1 else None,
            workspace_bytes=4 * split * batches * heads * queries * (v.shape[3] + 2) if split > 1 else 0,
        )


def _splits(blocks: int, deep: int, target: Target) -> Iterator[int]:
    """In how many parts the keys are worth being passed over: as many as give every multiprocessor a block,
    which is what few queries of long contexts need; and one."""
    most = min(target.multiprocessors // blocks, deep // 2, 32)
    if most > 1:
        yield power_of_two(most + 1) // 2
    yield 1


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
