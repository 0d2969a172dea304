"""What folds, orders, normalises or multiplies whole rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.opatlas.load.drawn.draw import Draw, scalar
from tests.opatlas.load.drawn.elements import Drawn
from tests.opatlas.load.operators import Case


def _reduce(op: str, whole: bool = True) -> Drawn:
    def draw(d: Draw) -> Case:
        shape = d.shape()
        x = d.positive(*shape)
        if op not in ("ReduceLogSum", "ReduceProd"):
            x = d.normal(*shape)
        if whole and d.flag():
            x = d.integers(*shape, dtype=d.pick("int32", "int64"))
        attrs = {name: d.flag() for name in ("keepdims", "noop_with_empty_axes") if d.flag()}
        given = [d.axes(len(shape))] if d.flag() else []
        return Case(op, [x, *given], attrs, fixed=[1])

    return draw


def _arg(op: str) -> Drawn:
    def draw(d: Draw) -> Case:
        shape = d.shape()
        x = d.integers(*shape, low=-2, high=2, dtype=d.pick("int32", "float32", "float64", "int8"))
        attrs: dict[str, Any] = {name: d.flag() for name in ("keepdims", "select_last_index") if d.flag()}
        return Case(op, [x], attrs | ({"axis": d.axis(len(shape))} if d.flag() else {}))

    return draw


def _cumsum(d: Draw) -> Case:
    shape = d.shape()
    x = d.integers(*shape, dtype=d.pick("int32", "int64")) if d.flag() else d.normal(*shape)
    attrs = {name: d.flag() for name in ("exclusive", "reverse")}
    return Case("CumSum", [x, scalar(d.axis(len(shape)), d.pick(np.int32, np.int64))], attrs, fixed=[1])


def _top(d: Draw) -> Case:
    shape = d.shape()
    axis = d.axis(len(shape))
    attrs = {"axis": axis, "largest": d.flag(), "sorted": 1}
    return Case(
        "TopK", [d.distinct(*shape), np.array([d.whole(1, shape[axis])])], attrs, fixed=[1], outputs=2
    )


def _along(op: str) -> Drawn:
    """Before opset 13 everything behind the axis is one row."""

    def draw(d: Draw) -> Case:
        shape = d.shape(1, 4)
        opset = d.pick(8, 11, 13, 21)
        low = 0 if opset < 11 else -len(shape)
        axis = {"axis": d.whole(low, len(shape) - 1)} if d.flag() or len(shape) < 2 else {}
        x = d.distinct(*shape) if op == "Hardmax" else d.normal(*shape) * 3
        return Case(op, [x.astype(d.float)], axis, opset=opset)

    return draw


def _loss(op: str) -> Drawn:
    def draw(d: Draw) -> Case:
        batch, classes, rest = d.whole(1, 4), d.whole(2, 5), d.shape(0, 2, 3)
        x, labels = d.normal(batch, classes, *rest), d.integers(batch, *rest, low=0, high=classes - 1)
        attrs: dict[str, Any] = {"reduction": d.pick("mean", "sum", "none")} if d.flag() else {}
        if d.flag():
            attrs["ignore_index"] = d.pick(0, 1, -1)
            labels = np.where(d.bools(*labels.shape), labels, attrs["ignore_index"])
            labels.reshape(-1)[0] = 1 - (attrs["ignore_index"] == 1)  # all ignored is 0 ÷ 0
        weights = [d.positive(classes)] if d.flag() else []
        return Case(op, [x, labels, *weights], attrs, outputs=1 if op[0] == "N" else d.whole(1, 2))

    return draw


def _matmul(d: Draw) -> Case:
    m, k, n = (d.whole(1, 5) for _ in range(3))
    outer = d.shape(0, 2, 3)
    left, right = d.pick(((m, k), (k, n)), ((k,), (k, n)), ((m, k), (k,)), ((k,), (k,)))
    if len(left) == len(right) == 2:
        left, right = (*d.broadcast(outer), *left), (*outer, *right)
    if d.whole(0, 3) == 0:
        return Case("MatMul", [d.integers(*left, dtype="int32"), d.integers(*right, dtype="int32")])
    return Case("MatMul", [d.normal(*left), d.normal(*right)])


def _gemm(d: Draw) -> Case:
    m, k, n = (d.whole(1, 5) for _ in range(3))
    turned = {name: d.flag() for name in ("transA", "transB") if d.flag()}
    a = d.normal(*((k, m) if turned.get("transA") else (m, k)))
    b = d.normal(*((n, k) if turned.get("transB") else (k, n)))
    c = [d.normal(*d.pick((n,), (m, n), (m, 1), (1, n), (1,), ()))] if d.flag() else []
    scales = {name: d.pick(0.5, 2.0, 0.0, -1.0) for name in ("alpha", "beta") if d.flag()}
    return Case("Gemm", [a, b, *c], {**turned, **scales}, fixed=[1] if d.flag() else [])


_EQUATIONS = (
    "bij,bjk->bik", "ij->ji", "ij,ij->i", "ii->i", "ii", "...ij,...jk->...ik", "bi,oij,bj->bo", "ij,jk",
    "i,j->ij", "abc->", "b...i->b...", "ij,kj->ik", "bhid,bhjd->bhij",
)  # fmt: skip


def _einsum(d: Draw) -> Case:
    equation = d.pick(*_EQUATIONS)
    sizes = {letter: d.whole(1, 4) for letter in "abcdhijko"}
    left = equation.split("->")[0].split(",")
    inputs = []
    for part in left:
        shape: list[int] = []
        for piece in part.replace("...", "."):
            shape += [2, 3] if piece == "." else [sizes[piece]]
        inputs.append(d.normal(*shape))
    return Case("Einsum", inputs, {"equation": equation})


def _det(d: Draw) -> Case:
    size = d.whole(1, 4)
    return Case("Det", [d.normal(*d.shape(0, 2, 3), size, size)])


def _batch_norm(d: Draw) -> Case:
    shape = d.shape(2, 4)
    vectors = [d.normal(shape[1]), d.normal(shape[1]), d.normal(shape[1]), d.positive(shape[1])]
    attrs: dict[str, Any] = {"epsilon": d.pick(1e-5, 1e-2)}
    training = d.flag()
    if training:
        shape = (shape[0] + 1, *shape[1:])  # one value a channel has no variance
        attrs |= {"training_mode": 1, "momentum": d.pick(0.0, 0.9, 0.3)}
    opset = 15 if training else d.pick(7, 9, 15)
    return Case(
        "BatchNormalization", [d.normal(*shape), *vectors], attrs, outputs=3 if training else 1, opset=opset
    )


def _layer_norm(d: Draw) -> Case:
    shape = d.shape(1, 4)
    axis = d.axis(len(shape))
    rows = shape[axis:]
    bias = [d.normal(*rows)] if d.flag() else []
    attrs = {"axis": axis, "epsilon": d.pick(1e-5, 0.1)}
    scale = d.normal(*(rows if d.flag() else d.broadcast(rows)))
    return Case("LayerNormalization", [d.normal(*shape), scale, *bias], attrs, outputs=d.pick(1, 1, 3))


def _rms(d: Draw) -> Case:
    shape = d.shape(1, 4)
    axis = d.axis(len(shape))
    rows = shape[axis:]
    return Case(
        "RMSNormalization", [d.normal(*shape), d.normal(*rows)], {"axis": axis, "epsilon": d.pick(1e-5, 0.1)}
    )


def _group_norm(d: Draw) -> Case:
    groups, each = d.whole(1, 3), d.whole(1, 3)
    channels = groups * each
    x = d.normal(d.whole(1, 3), channels, *d.shape(1, 2, 4))
    old = d.flag()
    vectors = [d.normal(groups if old else channels) for _ in range(2)]
    return Case("GroupNormalization", [x, *vectors], {"num_groups": groups, "epsilon": d.pick(1e-5, 0.1)},
                opset=18 if old else 21)  # fmt: skip


def _instance_norm(d: Draw) -> Case:
    channels = d.whole(1, 4)
    x = d.normal(d.whole(1, 3), channels, *d.shape(1, 3, 4))
    vectors = [d.normal(channels), d.normal(channels)]
    return Case("InstanceNormalization", [x, *vectors], {"epsilon": d.pick(1e-5, 0.1)})


def _lrn(d: Draw) -> Case:
    attrs = {
        "size": d.whole(1, 7),
        "alpha": d.number(0, 0.5),
        "beta": d.number(0.3, 1),
        "bias": d.number(0.5, 2),
    }
    return Case(
        "LRN", [d.normal(d.whole(1, 2), d.whole(1, 7), d.whole(1, 4), d.whole(1, 4), dtype="float32")], attrs
    )


def _mean_variance(d: Draw) -> Case:
    x = d.normal(d.whole(2, 3), d.whole(1, 4), d.whole(2, 4), d.whole(2, 4))
    return Case(
        "MeanVarianceNormalization",
        [x],
        {"axes": d.pick([0, 2, 3], [1, 2], [-1], [2, 3])} if d.flag() else {},
    )


def _lp(d: Draw) -> Case:
    shape = d.shape()
    return Case("LpNormalization", [d.normal(*shape)], {"axis": d.axis(len(shape)), "p": d.pick(1, 2)})


def _attention(d: Draw) -> Case:
    batch, kv, times = d.whole(1, 2), d.whole(1, 2), d.whole(1, 2)
    heads, size, out, queries, keys = (
        kv * times,
        d.pick(2, 4, 8),
        d.pick(2, 4, 8),
        d.whole(1, 4),
        d.whole(1, 5),
    )
    flat, past = d.flag(), d.whole(0, 2) == 0
    q, k = d.inside(batch, heads, queries, size), d.inside(batch, kv, keys, size)
    v = d.normal(batch, kv, keys, out)
    attrs: dict[str, Any] = {"is_causal": d.flag()} if d.flag() else {}
    attrs |= {"softcap": d.number(0.5, 3)} if d.flag() else {}
    attrs |= {"scale": d.number(0.1, 1)} if d.flag() else {}
    rows = d.whole(0, 3) if past else 0
    past_kv = [d.inside(batch, kv, rows + 1, size), d.normal(batch, kv, rows + 1, out)] if past else []
    total = keys + (rows + 1 if past else 0)
    mask = None
    if d.flag():
        mask_shape = d.pick(
            (queries, total), (1, queries, total), (batch, 1, queries, total), (batch, heads, queries, total)
        )
        mask = d.bools(*mask_shape) if d.flag() else d.normal(*mask_shape)
    if flat:
        q, k, v = (x.transpose(0, 2, 1, 3).reshape(batch, x.shape[2], -1) for x in (q, k, v))
        attrs |= {"q_num_heads": heads, "kv_num_heads": kv}
    outputs = 3 if past else 1
    if d.whole(0, 3) == 0:
        outputs, attrs = 4 if past else 1, attrs | ({"qk_matmul_output_mode": d.whole(0, 3)} if past else {})
    return Case("Attention", [q, k, v, mask, *past_kv], attrs, outputs=outputs, opset=d.pick(23, 24))


def _rotary(d: Draw) -> Case:
    batch, heads, length, size = d.whole(1, 2), d.whole(1, 3), d.whole(1, 4), d.pick(4, 8)
    part = d.pick(0, 4) if size == 8 else 0
    attrs: dict[str, Any] = {"interleaved": d.flag()} if d.flag() else {}
    attrs |= {"rotary_embedding_dim": part} if part else {}
    width = (part or size) // 2
    placed = d.flag()
    tables = [d.normal(*((9, width) if placed else (batch, length, width))) for _ in range(2)]
    x = d.normal(batch, heads, length, size)
    if d.flag():
        x = x.transpose(0, 2, 1, 3).reshape(batch, length, -1)
        attrs["num_heads"] = heads
    positions = [d.integers(batch, length, low=0, high=8)] if placed else []
    return Case("RotaryEmbedding", [x, *tables, *positions], attrs, opset=23)


_REDUCES = ("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")

DRAWS: dict[str, Drawn] = {
    **{op: _reduce(op) for op in (*_REDUCES, "ReduceSumSquare")},
    **{op: _reduce(op, whole=False) for op in ("ReduceLogSum", "ReduceLogSumExp")},
    **{op: _arg(op) for op in ("ArgMax", "ArgMin")},
    **{op: _along(op) for op in ("Softmax", "LogSoftmax", "Hardmax")},
    **{op: _loss(op) for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")},
    "Attention": _attention,
    "BatchNormalization": _batch_norm,
    "CumSum": _cumsum,
    "Det": _det,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp,
    "MatMul": _matmul,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms,
    "RotaryEmbedding": _rotary,
    "TopK": _top,
}
