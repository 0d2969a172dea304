"""Operators by their definition, in NumPy and float64: for types that PyTorch has no call for, and of which
ONNX's own evaluator leaves parts out (lengths, clipping, other activations).

Each says where honest arithmetic of the operator's own type rounds, and by how much (:class:`Loss`): run
again with these roundings drawn at random, the results move as far as honest results may lie apart. So what
is a small difference of large terms may differ by what the terms are rounded by.
"""

from __future__ import annotations

from opatlas.identity import Operator
from opatlas.identity.operator_types import TYPES
from tuning.measure.judging.definitions.loss import Loss

DEFINED = frozenset(
    {
        *("AffineGrid", "BlackmanWindow", "DFT", "DeformConv", "GRU", "HammingWindow", "HannWindow", "LSTM"),
        *("MaxRoiPool", "RNN", "STFT"),
    }
)
_EXACT = frozenset({"MaxUnpool"})
"""Known to ONNX's evaluator: they move values only."""


def is_defined(operator: Operator) -> bool:
    """Whether every rounding of the operator is said by a definition: its other nodes only move values."""
    return all(op in DEFINED or op in _EXACT or _moves(op) for op in operator.op_types)


def _moves(op: str) -> bool:
    return op in TYPES and TYPES[op].family == "movement"


def implementations(loss: Loss) -> list[type]:
    """The classes that ONNX's evaluator uses in place of its own; their roundings are ``loss``'s."""
    from tuning.measure.judging.definitions import recurrent, regions, signal

    return [
        type(one.__name__, (one,), {"loss": loss})
        for one in (*recurrent.OPERATORS, *signal.OPERATORS, *regions.OPERATORS)
    ]
