"""How many dimensions the inputs of an operator type may have, where not any number will do."""

from __future__ import annotations

_MANY = frozenset(range(3, 9))
_ONE_UP = frozenset(range(1, 9))
_TWO_UP = frozenset(range(2, 9))
RANKS: dict[str, dict[int, frozenset[int]]] = {
    "AffineGrid": {0: frozenset({3})},
    "Attention": {
        **dict.fromkeys(range(3), frozenset({3, 4})),
        **dict.fromkeys((4, 5), frozenset({4})),
    },
    "AveragePool": {0: _MANY},
    "BatchNormalization": {0: _TWO_UP},
    "Col2Im": {0: frozenset({3})},
    "Conv": {0: _MANY, 1: _MANY},
    "ConvInteger": {0: _MANY, 1: _MANY},
    "ConvTranspose": {0: _MANY, 1: _MANY},
    "CumSum": {0: _ONE_UP},
    "DFT": {0: _TWO_UP},
    "DeformConv": {0: _MANY, 1: _MANY, 2: _MANY},
    "DepthToSpace": {0: frozenset({4})},
    "Det": {0: _TWO_UP},
    "GRU": {0: frozenset({3}), 1: frozenset({3}), 2: frozenset({3})},
    "Gemm": {0: frozenset({2}), 1: frozenset({2}), 2: frozenset({0, 1, 2})},
    "GlobalAveragePool": {0: _MANY},
    "GlobalLpPool": {0: _MANY},
    "GlobalMaxPool": {0: _MANY},
    "GridSample": {0: frozenset({4, 5}), 1: frozenset({4, 5})},
    "GroupNormalization": {0: _TWO_UP},
    "InstanceNormalization": {0: _TWO_UP},
    "LRN": {0: _TWO_UP},
    "LSTM": {0: frozenset({3}), 1: frozenset({3}), 2: frozenset({3})},
    "LpPool": {0: _MANY},
    "MatMul": {0: _ONE_UP, 1: _ONE_UP},
    "MatMulInteger": {0: _ONE_UP, 1: _ONE_UP},
    "MaxPool": {0: _MANY},
    "MaxRoiPool": {0: frozenset({4}), 1: frozenset({2})},
    "MaxUnpool": {0: _MANY, 1: _MANY},
    "NegativeLogLikelihoodLoss": {0: _TWO_UP, 1: _ONE_UP},
    "QLinearConv": {0: _MANY, 3: _MANY},
    "QLinearMatMul": {0: _ONE_UP, 3: _ONE_UP},
    "RNN": {0: frozenset({3}), 1: frozenset({3}), 2: frozenset({3})},
    "Resize": {0: _ONE_UP},
    "ReverseSequence": {0: _TWO_UP, 1: frozenset({1})},
    "RoiAlign": {0: frozenset({4}), 1: frozenset({2}), 2: frozenset({1})},
    "RotaryEmbedding": {0: frozenset({3, 4})},
    "STFT": {0: frozenset({2, 3}), 2: frozenset({1})},
    "ScatterND": {0: _ONE_UP, 1: _ONE_UP},
    "SoftmaxCrossEntropyLoss": {0: _TWO_UP, 1: _ONE_UP},
    "SpaceToDepth": {0: frozenset({4})},
    "TopK": {0: _ONE_UP},
    "Trilu": {0: _TWO_UP},
}
"""Operator type → position of an input → the numbers of dimensions it may have."""
