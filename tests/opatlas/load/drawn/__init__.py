"""Random operators of every type, with random attributes: ``DRAWS`` has a function for each."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from opatlas.errors import OpatlasError
from opatlas.identity import Operator
from opatlas.load.torch.graph import missing
from tests.opatlas.load.drawn import elements, moves, rows, windows
from tests.opatlas.load.drawn.draw import Draw
from tests.opatlas.load.operators import Case, operator_of

DRAWS: dict[str, Callable[[Draw], Case]] = {**elements.DRAWS, **moves.DRAWS, **rows.DRAWS, **windows.DRAWS}


def drawn(op: str, number: int) -> tuple[Operator, dict[int, np.ndarray]] | None:
    """The random operator of this type and number, and its inputs; None for one that nobody can look up, that
    PyTorch has no call for, or that nobody else computes."""
    case = DRAWS[op](Draw(zlib.crc32(op.encode()), number))
    if op == "LRN" and case.attrs["size"] % 2 == 0:
        return None  # ONNX Runtime has odd windows only, and the evaluator mixes up batch and channels
    try:
        operator, inputs = operator_of(case)
    except OpatlasError:
        return None
    return None if missing(operator) else (operator, inputs)


__all__ = ["DRAWS", "Draw", "drawn"]
