"""What is done to each row of a tensor: softmax, normalisation, reduction.

A tensor is [outer, length, inner], dense; a row is the ``LENGTH`` elements along the middle, ``INNER`` apart.
Sums are kept in float32.
"""

import triton
import triton.language as tl


@triton.jit
def starts(LENGTH: tl.constexpr, INNER: tl.constexpr, BLOCK_ROWS: tl.constexpr):
    """This program's rows, and where each begins."""
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    return row, row // INNER * (LENGTH * INNER) + row % INNER


@triton.jit
def softmax_whole(
    x,
    y,
    ROWS: tl.constexpr,
    LENGTH: tl.constexpr,
    INNER: tl.constexpr,
    LOGARITHM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rows that fit into registers: each is read once."""
    row, start = starts(LENGTH, INNER, BLOCK_ROWS)
    column = tl.arange(0, BLOCK)
    place = start[:, None] + column[None, :] * INNER
    keep = (row < ROWS)[:, None] & (column < LENGTH)[None, :]
    value = tl.load(x + place, mask=keep, other=-float("inf")).to(tl.float32)
    value = value - tl.max(value, 1)[:, None]
    power = tl.exp(value)
    total = tl.sum(power, 1)[:, None]
    if LOGARITHM:
        made = value - tl.log(total)
    else:
        made = power / total
    tl.store(y + place, made.to(y.dtype.element_ty), mask=keep)


@triton.jit
def softmax_looped(
    x,
    y,
    ROWS: tl.constexpr,
    LENGTH: tl.constexpr,
    INNER: tl.constexpr,
    LOGARITHM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rows of any length: read once for the greatest and the sum together, and once for the result."""
    row, start = starts(LENGTH, INNER, BLOCK_ROWS)
    greatest = tl.full((BLOCK_ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_ROWS,), tl.float32)
    for begin in range(0, LENGTH, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        keep = (row < ROWS)[:, None] & (column < LENGTH)[None, :]
        value = tl.load(x + start[:, None] + column[None, :] * INNER, mask=keep, other=-float("inf"))
        value = value.to(tl.float32)
        higher = tl.maximum(greatest, tl.max(value, 1))
        # Where all so far is minus infinity the difference would be no number.
        base = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(greatest - base) + tl.sum(tl.exp(value - base[:, None]), 1)
        greatest = higher
    for begin in range(0, LENGTH, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        place = start[:, None] + column[None, :] * INNER
        keep = (row < ROWS)[:, None] & (column < LENGTH)[None, :]
        value = tl.load(x + place, mask=keep, other=0.0).to(tl.float32) - greatest[:, None]
        if LOGARITHM:
            made = value - tl.log(total)[:, None]
        else:
            made = tl.exp(value) / total[:, None]
        tl.store(y + place, made.to(y.dtype.element_ty), mask=keep)


@triton.jit
def normalised_whole(
    x,
    scale,
    bias,
    y,
    ROWS: tl.constexpr,
    LENGTH: tl.constexpr,
    EPSILON: tl.constexpr,
    CENTRED: tl.constexpr,
    BIASED: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Layer norm (CENTRED) and RMS norm of rows that fit into registers."""
    row, start = starts(LENGTH, 1, BLOCK_ROWS)
    column = tl.arange(0, BLOCK)
    place = start[:, None] + column[None, :]
    inside = column < LENGTH
    keep = (row < ROWS)[:, None] & inside[None, :]
    value = tl.load(x + place, mask=keep, other=0.0).to(tl.float32)
    if CENTRED:
        value = tl.where(keep, value - tl.sum(value, 1)[:, None] / LENGTH, 0.0)
    variance = tl.sum(value * value, 1) / LENGTH
    made = value / tl.sqrt_rn(variance + EPSILON)[:, None]
    made *= tl.load(scale + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if BIASED:
        made += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    tl.store(y + place, made.to(y.dtype.element_ty), mask=keep)


@triton.jit
def normalised_looped(
    x,
    scale,
    bias,
    y,
    ROWS: tl.constexpr,
    LENGTH: tl.constexpr,
    EPSILON: tl.constexpr,
    CENTRED: tl.constexpr,
    BIASED: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The same for rows of any length, read anew for the mean, the variance and the result."""
    row, start = starts(LENGTH, 1, BLOCK_ROWS)
    held = (row < ROWS)[:, None]
    mean = tl.zeros((BLOCK_ROWS,), tl.float32)
    if CENTRED:
        for begin in range(0, LENGTH, BLOCK):
            column = begin + tl.arange(0, BLOCK)
            keep = held & (column < LENGTH)[None, :]
            value = tl.load(x + start[:, None] + column[None, :], mask=keep, other=0.0)
            mean += tl.sum(value.to(tl.float32), 1)
        mean = mean / LENGTH
    variance = tl.zeros((BLOCK_ROWS,), tl.float32)
    for begin in range(0, LENGTH, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        keep = held & (column < LENGTH)[None, :]
        value = tl.load(x + start[:, None] + column[None, :], mask=keep, other=0.0).to(tl.float32)
        value = tl.where(keep, value - mean[:, None], 0.0)
        variance += tl.sum(value * value, 1)
    root = tl.sqrt_rn(variance / LENGTH + EPSILON)
    for begin in range(0, LENGTH, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        inside = column < LENGTH
        keep = held & inside[None, :]
        place = start[:, None] + column[None, :]
        made = tl.load(x + place, mask=keep, other=0.0).to(tl.float32) - mean[:, None]
        made = made / root[:, None]
        made *= tl.load(scale + column, mask=inside, other=0.0).to(tl.float32)[None, :]
        if BIASED:
            made += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
        tl.store(y + place, made.to(y.dtype.element_ty), mask=keep)


@triton.jit
def reduced(
    x,
    y,
    ROWS: tl.constexpr,
    LENGTH: tl.constexpr,
    INNER: tl.constexpr,
    KIND: tl.constexpr,
    NOTHING: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Each row to one number. KIND is the ONNX operator without its ``Reduce``, NOTHING what changes no
    result."""
    row, start = starts(LENGTH, INNER, BLOCK_ROWS)
    # Lanes keep partial results of their own: one reduction across them, after the last step.
    total = tl.full((BLOCK_ROWS, BLOCK), NOTHING, tl.float32)
    for begin in range(0, LENGTH, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        keep = (row < ROWS)[:, None] & (column < LENGTH)[None, :]
        value = tl.load(x + start[:, None] + column[None, :] * INNER, mask=keep, other=NOTHING)
        value = value.to(tl.float32)
        if KIND == "Max":
            total = tl.maximum(total, value)
        elif KIND == "Min":
            total = tl.minimum(total, value)
        elif KIND == "L1":
            total += tl.abs(value)
        elif KIND == "L2" or KIND == "SumSquare":
            total += value * value
        else:
            total += value
    if KIND == "Max":
        made = tl.max(total, 1)
    elif KIND == "Min":
        made = tl.min(total, 1)
    else:
        made = tl.sum(total, 1)
    if KIND == "Mean":
        made = made / LENGTH
    if KIND == "L2":
        made = tl.sqrt_rn(made)
    tl.store(y + row, made.to(y.dtype.element_ty), mask=row < ROWS)
