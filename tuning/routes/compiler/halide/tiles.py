"""How large the register tiles of products are."""

from __future__ import annotations


def tile(shape: tuple[int, ...], row_axis: int, lanes: int, *, whole: bool = False) -> tuple[int, int, int]:
    """(rows, vectors, lanes) of a tile: sums fill the registers that the factors leave free. ``whole``: tiles
    have to cover the vector axis without a rest."""
    registers = 32 if lanes == 16 else 16
    wide = shape[-1]
    while lanes > wide and lanes > 1:
        lanes //= 2
    across = -(-wide // lanes)
    rows = shape[row_axis] if row_axis >= 0 else 1
    best, best_cost = (1, 1), float("inf")
    for vectors in range(1, min(across, 8) + 1):
        if vectors * lanes > wide or (whole and wide % (vectors * lanes)):
            continue
        for high in range(1, min(rows, 14) + 1):
            if high * vectors + vectors + 1 > registers:
                continue
            waste = (-(-rows // high) * high / rows) * (-(-across // vectors) * vectors / across)
            # Loads per multiply-add: one vector is shared by the rows, one element by the vectors. And a
            # few sums at a time cannot hide how long one takes.
            cost = waste * (1 + 1 / high + 0.5 / vectors) * max(1.0, 8 / (high * vectors))
            if cost < best_cost:
                best, best_cost = (high, vectors), cost
    return (*best, lanes)
