"""Matrix products, a batch at a time, read and written where they lie."""

import triton
import triton.language as tl


@triton.jit
def product(
    a,
    b,
    c,
    y,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
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
):
    """y = ALPHA · a b + BETA · c, over a batch of two dimensions, INNER the second. BETA is 0 without c."""
    # Blocks that share rows run beside each other, GROUP rows of them, so that both operands stay in L2.
    number = tl.program_id(0)
    across: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    down: tl.constexpr = (M + BLOCK_M - 1) // BLOCK_M
    band = number // (GROUP * across)
    height = min(down - band * GROUP, GROUP)
    row = band * GROUP + number % (GROUP * across) % height
    column = number % (GROUP * across) // height
    batch = tl.program_id(1)
    a += (batch // INNER).to(tl.int64) * A_OUTER + (batch % INNER).to(tl.int64) * A_INNER
    b += (batch // INNER).to(tl.int64) * B_OUTER + (batch % INNER).to(tl.int64) * B_INNER
    y += batch.to(tl.int64) * (M * N)

    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for begin in range(0, K, BLOCK_K):
        k = begin + depth
        left = tl.load(
            a + rows[:, None] * A_ROW + k[None, :] * A_COLUMN,
            mask=(rows[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        right = tl.load(
            b + k[:, None] * B_ROW + columns[None, :] * B_COLUMN,
            mask=(k[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total = tl.dot(left, right, total, input_precision=PRECISION)
    if ALPHA != 1.0:
        total *= ALPHA
    keep = (rows[:, None] < M) & (columns[None, :] < N)
    if BETA != 0.0:
        added = tl.load(c + rows[:, None] * C_ROW + columns[None, :] * C_COLUMN, mask=keep, other=0.0)
        total += BETA * added.to(tl.float32)
    tl.store(y + rows[:, None] * N + columns[None, :], total.to(y.dtype.element_ty), mask=keep)
