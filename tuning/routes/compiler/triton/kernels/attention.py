"""Attention without its matrix of scores: a block of queries passes over the keys once."""

import triton
import triton.language as tl


@triton.jit
def attention(
    q,
    k,
    v,
    mask,
    y,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    SIZE: tl.constexpr,
    VALUE_SIZE: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASK: tl.constexpr,
    MASK_BATCH: tl.constexpr,
    MASK_HEAD: tl.constexpr,
    MASK_QUERY: tl.constexpr,
    MASK_KEY: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
):
    """Dense [batch, head, length, size]. GROUP query heads share a head of keys; MASK: "none", "added" or
    "kept" (a mask of booleans)."""
    batch, head = tl.program_id(1) // HEADS, tl.program_id(1) % HEADS
    shared = (batch * (HEADS // GROUP) + head // GROUP).to(tl.int64)
    q += tl.program_id(1).to(tl.int64) * (QUERIES * SIZE)
    y += tl.program_id(1).to(tl.int64) * (QUERIES * VALUE_SIZE)
    k += shared * (KEYS * SIZE)
    v += shared * (KEYS * VALUE_SIZE)
    mask += batch.to(tl.int64) * MASK_BATCH + head.to(tl.int64) * MASK_HEAD

    query = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    size, value_size = tl.arange(0, BLOCK_SIZE), tl.arange(0, BLOCK_VALUE)
    asked = tl.load(
        q + query[:, None] * SIZE + size[None, :],
        mask=(query[:, None] < QUERIES) & (size[None, :] < SIZE),
        other=0.0,
    )
    greatest = tl.full((BLOCK_Q,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    made = tl.zeros((BLOCK_Q, BLOCK_VALUE), tl.float32)
    last = KEYS
    if CAUSAL:
        last = tl.minimum(KEYS, (tl.program_id(0) + 1) * BLOCK_Q)
    for begin in range(0, last, BLOCK_K):
        key = begin + tl.arange(0, BLOCK_K)
        known = tl.load(
            k + key[None, :] * SIZE + size[:, None],
            mask=(key[None, :] < KEYS) & (size[:, None] < SIZE),
            other=0.0,
        )
        score = tl.dot(asked, known, input_precision=PRECISION) * SCALE
        seen = key[None, :] < KEYS
        if CAUSAL:
            seen = seen & (query[:, None] >= key[None, :])
        if MASK != "none":
            said = tl.load(
                mask + query[:, None] * MASK_QUERY + key[None, :] * MASK_KEY,
                mask=(query[:, None] < QUERIES) & (key[None, :] < KEYS),
                other=0,
            )
            if MASK == "kept":
                seen = seen & (said != 0)
            else:
                score += said.to(tl.float32)
        score = tl.where(seen, score, -float("inf"))
        higher = tl.maximum(greatest, tl.max(score, 1))
        # Where nothing was seen so far the difference would be no number.
        base = tl.where(higher == -float("inf"), 0.0, higher)
        weight = tl.exp(score - base[:, None])
        shrunk = tl.exp(greatest - base)
        total = total * shrunk + tl.sum(weight, 1)
        values = tl.load(
            v + key[:, None] * VALUE_SIZE + value_size[None, :],
            mask=(key[:, None] < KEYS) & (value_size[None, :] < VALUE_SIZE),
            other=0.0,
        )
        made = made * shrunk[:, None]
        made = tl.dot(weight.to(v.dtype.element_ty), values, made, input_precision=PRECISION)
        greatest = higher
    made = made / total[:, None]
    tl.store(
        y + query[:, None] * VALUE_SIZE + value_size[None, :],
        made.to(y.dtype.element_ty),
        mask=(query[:, None] < QUERIES) & (value_size[None, :] < VALUE_SIZE),
    )
