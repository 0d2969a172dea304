"""Matrix products: mm, bmm, addmm, baddbmm, matmul, linear, attention."""

from __future__ import annotations

import math

from opatlas.graph.aten.builder import CannotMap, Ref, broadcast
from opatlas.graph.aten.call import AtenRule, Call, rule


def product(call: Call, a: Ref, b: Ref) -> Ref:
    """NumPy's matmul, as both PyTorch and ONNX define it."""
    if not a.shape or not b.shape:
        raise CannotMap("a matrix product with a scalar")
    rows = () if a.rank == 1 else a.shape[-2:-1]
    columns = () if b.rank == 1 else b.shape[-1:]
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    return call.node("MatMul", a, b, shape=(*batch, *rows, *columns))


def _product_with(second: str) -> AtenRule:
    return rule(f"self, {second}", lambda call: product(call, call.tensor("self"), call.tensor(second)))


def addmm(call: Call) -> Ref:
    bias, a, b = call.tensor("self"), call.tensor("mat1"), call.tensor("mat2")
    return call.node(
        "Gemm", a, b, bias, shape=(a.shape[0], b.shape[-1]),
        alpha=float(call.number("alpha")), beta=float(call.number("beta")),
    )  # fmt: skip


def baddbmm(call: Call) -> Ref:
    bias, out = call.tensor("self"), product(call, call.tensor("batch1"), call.tensor("batch2"))
    for name, value in (("alpha", out), ("beta", bias)):
        if call.number(name) != 1:
            value = call.node("Mul", value, call.constant(call.number(name), value.dtype))
        out, bias = (value, bias) if name == "alpha" else (out, value)
    return call.node("Add", out, bias)


def linear(call: Call) -> Ref:
    """x·Wᵀ + b: a Gemm for matrices, a MatMul and an Add for more dimensions."""
    x, weight, bias = call.tensor("input"), call.tensor("weight"), call.optional("bias")
    shape = (*x.shape[:-1], weight.shape[0])
    if x.rank == 2:
        return call.node("Gemm", x, weight, bias, shape=shape, transB=1)
    turned = call.node("Transpose", weight, shape=weight.shape[::-1], perm=[1, 0])
    out = call.node("MatMul", x, turned, shape=shape)
    return out if bias is None else call.node("Add", out, bias)


def attention(call: Call) -> Ref:
    """softmax(q·kᵀ·scale + mask)·v, written out."""
    q, k, v, mask = call.tensor("query"), call.tensor("key"), call.tensor("value"), call.optional("attn_mask")
    if call.number("dropout_p") or call.flag("is_causal") or call.flag("enable_gqa"):
        raise CannotMap("attention with dropout, a causal mask or grouped heads")
    if mask is not None and mask.dtype == "bool":
        raise CannotMap("attention with a mask of truth values")
    scale = call.get("scale") or 1 / math.sqrt(q.shape[-1])
    rank = k.rank
    perm = [*range(rank - 2), rank - 1, rank - 2]
    turned = call.node("Transpose", k, shape=(*k.shape[:-2], k.shape[-1], k.shape[-2]), perm=perm)
    scores = call.node("Mul", product(call, q, turned), call.constant(scale, q.dtype))
    if mask is not None:
        scores = call.node("Add", scores, mask)
    return product(call, call.node("Softmax", scores, axis=-1), v)


RULES: dict[str, AtenRule] = {
    "mm": _product_with("mat2"),
    "bmm": _product_with("mat2"),
    "addmm": rule("self, mat1, mat2, beta=1, alpha=1", addmm),
    "baddbmm": rule("self, batch1, batch2, beta=1, alpha=1", baddbmm),
    "matmul": _product_with("other"),
    "mv": _product_with("vec"),
    "dot": _product_with("tensor"),
    "linear": rule("input, weight, bias=None", linear),
    "scaled_dot_product_attention": rule(
        "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False",
        attention,
    ),
}
