"""Matrix products, a batch at a time, read and written where they lie."""

import triton
import triton.language as tl


@triton.jit
def product(
    a,
    b,
    c,
    y,
    sums,
    phase,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    BATCHES: tl.constexpr,
    INNER: tl.constexpr,
    A_ROW: tl.constexpr,
    A_COLUMN: tl.constexpr,
    A_OUTER: tl.constexpr,
    A_INNER: tl.constexpr,
    B_ROW: tl.constexpr,
    B_COLUMN: tl.constexpr,
    B_OUTER: tl.constexpr,
    B_INNER: tl.constexpr,
    C_ROW: tl.constexpr,
    C_COLUMN: tl.constexpr,
    ALPHA: tl.constexpr,
    BETA: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    SPLIT: tl.constexpr,
    PROGRAMS: tl.constexpr,
    TMA: tl.constexpr,
):
    """y = ALPHA · a b + BETA · c, over a batch of two dimensions, INNER the second. BETA is 0 without c.

    PROGRAMS programs take one block after another. With SPLIT above 1 each multiplies a part of the depth
    into ``sums``, and a second launch (``phase`` 1) adds the parts up. TMA: operands and result are moved by
    the device's engine for tensors, for which their rows begin at multiples of 16 bytes."""
    across: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    down: tl.constexpr = (M + BLOCK_M - 1) // BLOCK_M
    if (phase == 0) | (SPLIT == 1):
        blocks_deep: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
        deep: tl.constexpr = (blocks_deep + SPLIT - 1) // SPLIT
        work: tl.constexpr = across * down * BATCHES * SPLIT
        if TMA:
            if A_COLUMN == 1:
                a_there = tl.make_tensor_descriptor(a, [M, K], [A_ROW, 1], [BLOCK_M, BLOCK_K])
            else:
                a_there = tl.make_tensor_descriptor(a, [K, M], [A_COLUMN, 1], [BLOCK_K, BLOCK_M])
            if B_COLUMN == 1:
                b_there = tl.make_tensor_descriptor(b, [K, N], [B_ROW, 1], [BLOCK_K, BLOCK_N])
            else:
                b_there = tl.make_tensor_descriptor(b, [N, K], [B_COLUMN, 1], [BLOCK_N, BLOCK_K])
        for place in tl.range(tl.program_id(0), work, PROGRAMS, flatten=TMA and work > PROGRAMS):
            row, column, batch, part = _place(place, across, down, BATCHES, GROUP)
            rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
            depth = tl.arange(0, BLOCK_K)
            if not TMA:
                outer, inner = (batch // INNER).to(tl.int64), (batch % INNER).to(tl.int64)
                a_here = a + outer * A_OUTER + inner * A_INNER
                b_here = b + outer * B_OUTER + inner * B_INNER
            total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            first = part * deep if SPLIT > 1 else 0
            last = tl.minimum(first + deep, blocks_deep) if SPLIT > 1 else blocks_deep
            for step in range(first, last):
                begin = step * BLOCK_K
                if TMA:
                    if A_COLUMN == 1:
                        left = a_there.load([row * BLOCK_M, begin])
                    else:
                        left = a_there.load([begin, row * BLOCK_M]).T
                    if B_COLUMN == 1:
                        right = b_there.load([begin, column * BLOCK_N])
                    else:
                        right = b_there.load([column * BLOCK_N, begin]).T
                else:
                    k = begin + depth
                    left = tl.load(
                        a_here + rows[:, None] * A_ROW + k[None, :] * A_COLUMN,
                        mask=(rows[:, None] < M) & (k[None, :] < K),
                        other=0.0,
                    )
                    right = tl.load(
                        b_here + k[:, None] * B_ROW + columns[None, :] * B_COLUMN,
                        mask=(k[:, None] < K) & (columns[None, :] < N),
                        other=0.0,
                    )
                total = tl.dot(left, right, total, input_precision=PRECISION)
            keep = (rows[:, None] < M) & (columns[None, :] < N)
            if SPLIT > 1:
                sums_here = sums + (part * BATCHES + batch).to(tl.int64) * (M * N)
                tl.store(sums_here + rows[:, None] * N + columns[None, :], total, mask=keep)
            else:
                _finish(total, c, y, batch, rows, columns, keep, M, N, C_ROW, C_COLUMN, ALPHA, BETA)
    else:
        block = tl.program_id(0)
        rows = block // across * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = block % across * BLOCK_N + tl.arange(0, BLOCK_N)
        batch = tl.program_id(1)
        keep = (rows[:, None] < M) & (columns[None, :] < N)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for part in range(SPLIT):
            sums_here = sums + (part * BATCHES + batch).to(tl.int64) * (M * N)
            total += tl.load(sums_here + rows[:, None] * N + columns[None, :], mask=keep, other=0.0)
        _finish(total, c, y, batch, rows, columns, keep, M, N, C_ROW, C_COLUMN, ALPHA, BETA)


@triton.jit
def _place(
    place, across: tl.constexpr, down: tl.constexpr, BATCHES: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """Of a block: its row and column of blocks, its batch, its part of the depth. Blocks that share rows run
    beside each other, GROUP rows of them, so that both operands stay in L2."""
    number = place % (across * down)
    band = number // (GROUP * across)
    height = min(down - band * GROUP, GROUP)
    row = band * GROUP + number % (GROUP * across) % height
    column = number % (GROUP * across) // height
    rest = place // (across * down)
    return row, column, rest % BATCHES, rest // BATCHES


@triton.jit
def _finish(
    total,
    c,
    y,
    batch,
    rows,
    columns,
    keep,
    M: tl.constexpr,
    N: tl.constexpr,
    C_ROW: tl.constexpr,
    C_COLUMN: tl.constexpr,
    ALPHA: tl.constexpr,
    BETA: tl.constexpr,
):
    if ALPHA != 1.0:
        total *= ALPHA
    if BETA != 0.0:
        added = tl.load(c + rows[:, None] * C_ROW + columns[None, :] * C_COLUMN, mask=keep, other=0.0)
        total += BETA * added.to(tl.float32)
    y += batch.to(tl.int64) * (M * N)
    tl.store(y + rows[:, None] * N + columns[None, :], total.to(y.dtype.element_ty), mask=keep)
