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
    sums,
    phase,
    SCALE: tl.constexpr,
    BATCHES: tl.constexpr,
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
    SPLIT: tl.constexpr,
    TMA: tl.constexpr,
):
    """Dense [batch, head, length, size]. GROUP query heads share a head of keys, and lie in one block: its
    row ``r`` is query ``r // GROUP`` of head ``r % GROUP`` of them. MASK: "none", "added" or "kept" (a mask
    of booleans). SCALE has the logarithm of e to base 2 in it.

    With SPLIT above 1 a block passes over a part of the keys and leaves what it found in ``sums``; a second
    launch (``phase`` 1) weighs the parts. Blocks of keys that every query sees whole come first, those with
    an edge after them. TMA: keys and values are moved by the device's engine for tensors."""
    shared = tl.program_id(1)
    batch, first_head = shared // (HEADS // GROUP), shared % (HEADS // GROUP) * GROUP
    # The last queries see most keys: their blocks begin first.
    number = tl.num_programs(0) - 1 - tl.program_id(0) if CAUSAL else tl.program_id(0)
    row = number * BLOCK_Q + tl.arange(0, BLOCK_Q)
    query, head = row // GROUP, first_head + row % GROUP
    there = query < QUERIES
    place = (batch * HEADS + head).to(tl.int64) * QUERIES + query
    value_size = tl.arange(0, BLOCK_VALUE)
    rows: tl.constexpr = BATCHES * HEADS * QUERIES
    if (phase == 0) | (SPLIT == 1):
        size = tl.arange(0, BLOCK_SIZE)
        asked = tl.load(
            q + place[:, None] * SIZE + size[None, :], mask=there[:, None] & (size[None, :] < SIZE), other=0.0
        )
        k += shared.to(tl.int64) * (KEYS * SIZE)
        v += shared.to(tl.int64) * (KEYS * VALUE_SIZE)
        if TMA:
            k_there = tl.make_tensor_descriptor(k, [KEYS, SIZE], [SIZE, 1], [BLOCK_K, BLOCK_SIZE])
            v_there = tl.make_tensor_descriptor(
                v, [KEYS, VALUE_SIZE], [VALUE_SIZE, 1], [BLOCK_K, BLOCK_VALUE]
            )
        mask_rows = mask + batch.to(tl.int64) * MASK_BATCH + head * MASK_HEAD + query * MASK_QUERY
        seen_by_all, seen = KEYS, KEYS
        if CAUSAL:
            seen_by_all = tl.minimum(KEYS, number * BLOCK_Q // GROUP + 1)
            seen = tl.minimum(KEYS, (number * BLOCK_Q + BLOCK_Q - 1) // GROUP + 1)
        first, last = 0, (seen + BLOCK_K - 1) // BLOCK_K
        whole = seen_by_all // BLOCK_K
        if SPLIT > 1:
            deep = (last + SPLIT - 1) // SPLIT
            first = tl.program_id(2) * deep
            last = tl.minimum(first + deep, last)
            whole = tl.maximum(first, tl.minimum(whole, last))
        greatest = tl.full((BLOCK_Q,), -float("inf"), tl.float32)
        total = tl.zeros((BLOCK_Q,), tl.float32)
        made = tl.zeros((BLOCK_Q, BLOCK_VALUE), tl.float32)
        for edge in tl.static_range(2):
            for step in range(whole if edge else first, last if edge else whole):
                begin = step * BLOCK_K
                key = begin + tl.arange(0, BLOCK_K)
                if TMA:
                    known, values = k_there.load([begin, 0]).T, v_there.load([begin, 0])
                else:
                    known = tl.load(
                        k + key[None, :] * SIZE + size[:, None],
                        mask=(key[None, :] < KEYS) & (size[:, None] < SIZE),
                        other=0.0,
                    )
                    values = tl.load(
                        v + key[:, None] * VALUE_SIZE + value_size[None, :],
                        mask=(key[:, None] < KEYS) & (value_size[None, :] < VALUE_SIZE),
                        other=0.0,
                    )
                score = tl.dot(asked, known, input_precision=PRECISION) * SCALE
                if MASK != "none":
                    said = tl.load(
                        mask_rows[:, None] + key[None, :] * MASK_KEY,
                        mask=there[:, None] & (key[None, :] < KEYS),
                        other=0,
                    )
                    if MASK == "kept":
                        score = tl.where(said != 0, score, -float("inf"))
                    else:
                        score += said.to(tl.float32) * 1.4426950408889634
                if edge:
                    near = key[None, :] < KEYS
                    if CAUSAL:
                        near = near & (query[:, None] >= key[None, :])
                    score = tl.where(near, score, -float("inf"))
                higher = tl.maximum(greatest, tl.max(score, 1))
                # Where nothing was seen so far the difference would be no number.
                base = tl.where(higher == -float("inf"), 0.0, higher)
                weight = tl.exp2(score - base[:, None])
                shrunk = tl.exp2(greatest - base)
                total = total * shrunk + tl.sum(weight, 1)
                made = made * shrunk[:, None]
                made = tl.dot(weight.to(v.dtype.element_ty), values, made, input_precision=PRECISION)
                greatest = higher
        if SPLIT == 1:
            tl.store(
                y + place[:, None] * VALUE_SIZE + value_size[None, :],
                (made / total[:, None]).to(y.dtype.element_ty),
                mask=there[:, None] & (value_size[None, :] < VALUE_SIZE),
            )
        else:
            kept = tl.program_id(2) * rows + place
            tl.store(
                sums + kept[:, None] * VALUE_SIZE + value_size[None, :],
                made,
                mask=there[:, None] & (value_size[None, :] < VALUE_SIZE),
            )
            sums += SPLIT * rows * VALUE_SIZE
            tl.store(sums + kept, greatest, mask=there)
            tl.store(sums + SPLIT * rows + kept, total, mask=there)
    else:
        ends = sums + SPLIT * rows * VALUE_SIZE
        greatest = tl.full((BLOCK_Q,), -float("inf"), tl.float32)
        total = tl.zeros((BLOCK_Q,), tl.float32)
        made = tl.zeros((BLOCK_Q, BLOCK_VALUE), tl.float32)
        for part in range(SPLIT):
            kept = part * rows + place
            found = tl.load(
                sums + kept[:, None] * VALUE_SIZE + value_size[None, :],
                mask=there[:, None] & (value_size[None, :] < VALUE_SIZE),
                other=0.0,
            )
            peak = tl.load(ends + kept, mask=there, other=-float("inf"))
            higher = tl.maximum(greatest, peak)
            base = tl.where(higher == -float("inf"), 0.0, higher)
            shrunk, grown = tl.exp2(greatest - base), tl.exp2(peak - base)
            total = total * shrunk + grown * tl.load(ends + SPLIT * rows + kept, mask=there, other=0.0)
            made = made * shrunk[:, None] + grown[:, None] * found
            greatest = higher
        tl.store(
            y + place[:, None] * VALUE_SIZE + value_size[None, :],
            (made / total[:, None]).to(y.dtype.element_ty),
            mask=there[:, None] & (value_size[None, :] < VALUE_SIZE),
        )
