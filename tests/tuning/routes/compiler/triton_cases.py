"""Operators for the Triton templates: each form, each way that shapes can be awkward."""

from __future__ import annotations

from typing import Any


def tensor(*shape: int, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": dtype, **more}


def axes(*which: int) -> dict[str, Any]:
    return {"shape": [len(which)], "dtype": "int64", "data": list(which)}


def number(value: float) -> dict[str, Any]:
    return {"shape": [], "dtype": "float32", "data": [value]}


def half(*shape: int) -> dict[str, Any]:
    return tensor(*shape, dtype="float16")


def pointwise(op: str, **attrs: Any) -> dict[str, Any]:
    return {"op": op, "attrs": attrs, "inputs": [tensor(3, 70)]}


SILU_TIMES = {
    "inputs": [tensor(5, 1, 33), tensor(4, 33), number(6.0)],
    "nodes": [
        {"op": "Sigmoid", "inputs": [0], "outputs": [3]},
        {"op": "Mul", "inputs": [0, 3], "outputs": [4]},
        {"op": "Add", "inputs": [4, 1], "outputs": [5]},
        {"op": "Min", "inputs": [5, 2], "outputs": [6]},
    ],
    "outputs": [6],
}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "product": ("product", {"op": "MatMul", "inputs": [tensor(37, 50), tensor(50, 41, const=True)]}),
    "product of halves": ("product", {"op": "MatMul", "inputs": [half(20, 33), half(33, 17)]}),
    "product, a batch spread": (
        "product",
        {"op": "MatMul", "inputs": [tensor(2, 3, 20, 18), tensor(3, 18, 21)]},
    ),
    "product, strided": (
        "product",
        {"op": "MatMul", "inputs": [tensor(20, 18, strides=[1, 20]), tensor(18, 21, strides=[30, 1])]},
    ),
    "gemm": (
        "product",
        {
            "op": "Gemm",
            "attrs": {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
            "inputs": [tensor(40, 18), tensor(21, 40, const=True), tensor(21, const=True)],
        },
    ),
    "product, deep": ("product", {"op": "MatMul", "inputs": [half(2, 9, 520), half(520, 40)]}),
    "product, deep, turned": (
        "product",
        {
            "op": "Gemm",
            "attrs": {"transA": 1, "transB": 1, "beta": 0.5},
            "inputs": [half(513, 24), half(40, 513), half(40)],
        },
    ),
    "product, deep, rows that begin evenly": (
        "product",
        {"op": "Gemm", "attrs": {"transA": 1, "transB": 1}, "inputs": [half(520, 24), half(37, 520)]},
    ),
    "product, deep batches": ("product", {"op": "MatMul", "inputs": [tensor(3, 5, 700), tensor(3, 700, 9)]}),
    "softmax": ("softmax", {"op": "Softmax", "inputs": [tensor(5, 70)]}),
    "softmax, long": ("softmax", {"op": "Softmax", "inputs": [tensor(2, 20000)]}),
    "log softmax, middle": (
        "softmax",
        {"op": "LogSoftmax", "attrs": {"axis": 1}, "inputs": [tensor(3, 17, 6)]},
    ),
    "layer norm": ("norm", {"op": "LayerNormalization", "inputs": [tensor(6, 70), tensor(70), tensor(70)]}),
    "layer norm, long": (
        "norm",
        {"op": "LayerNormalization", "inputs": [tensor(2, 20001), tensor(20001), tensor(20001)]},
    ),
    "rms norm of halves": ("norm", {"op": "RMSNormalization", "inputs": [half(3, 70), half(70)]}),
    "sum of all": ("reduction", {"op": "ReduceSum", "inputs": [tensor(3, 5, 7)]}),
    "mean, middle": ("reduction", {"op": "ReduceMean", "inputs": [tensor(3, 40, 6), axes(1)]}),
    "greatest": ("reduction", {"op": "ReduceMax", "inputs": [tensor(9, 70), axes(1)]}),
    "length": ("reduction", {"op": "ReduceL2", "inputs": [tensor(9, 4, 70), axes(1, 2)]}),
    "attention": (
        "attention",
        {
            "op": "Attention",
            "attrs": {"is_causal": 1},
            "inputs": [tensor(1, 4, 19, 20), tensor(1, 2, 33, 20), tensor(1, 2, 33, 24)],
        },
    ),
    "attention of halves, masked": (
        "attention",
        {"op": "Attention", "inputs": [half(2, 2, 18, 16)] * 3 + [tensor(2, 1, 18, 18, dtype="bool")]},
    ),
    "attention, one query": (
        "attention",
        {"op": "Attention", "inputs": [half(2, 6, 1, 40), half(2, 2, 700, 40), half(2, 2, 700, 24)]},
    ),
    "attention, few queries, added to": (
        "attention",
        {
            "op": "Attention",
            "attrs": {"is_causal": 1, "scale": 0.3},
            "inputs": [tensor(1, 4, 40, 20), *[tensor(1, 2, 300, 20)] * 2, tensor(4, 40, 300)],
        },
    ),
    "chain, spread": ("chain", SILU_TIMES),
    "choice": ("chain", {"op": "Where", "inputs": [tensor(4, 1, dtype="bool"), tensor(4, 8), tensor(8)]}),
    "read where it lies": (
        "chain",
        {"op": "Sub", "inputs": [tensor(6, 9, strides=[1, 6]), tensor(6, 9)]},
    ),
    "to halves": ("chain", {"op": "Cast", "attrs": {"to": 10}, "inputs": [tensor(70)]}),
    "gelu": ("chain", pointwise("Gelu")),
    "gelu by tanh": ("chain", pointwise("Gelu", approximate="tanh")),
    **{
        op: ("chain", pointwise(op))
        for op in ("Elu", "HardSwish", "LeakyRelu", "Mish", "Selu", "Softplus", "Softsign", "Tanh", "Abs")
    },
}
"""Name → (the template that is meant, the operator)."""
