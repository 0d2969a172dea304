"""Calls of oneDNN and MKL that eager PyTorch does not make: own operators, packed weights, fused endings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from opatlas.load.torch.graph import Unsupported
from opatlas.load.torch.ops.convolution import pad_argument
from opatlas.load.torch.ops.endings import NONE, Ending
from opatlas.load.torch.ops.site import TorchSite

Known = dict[int, torch.Tensor]
Function = Callable[..., Any]


def onednn_call(site: TorchSite, kept: Known, packed: bool, end: Ending | None = None) -> Function:
    """oneDNN's own operator for a Conv, MatMul or Gemm: (x, weights, bias, added tensor) → result."""
    build = _conv if site.node.op == "Conv" else _product
    return build(site, kept, packed, end or Ending())


def _weight(site: TorchSite, kept: Known) -> torch.Tensor:
    """The constant second operand; Unsupported where it comes with every run."""
    number = site.node.inputs[1]
    if number not in kept:
        raise Unsupported(f"packed weights for a {site.node.op} whose weights come with every run")
    return kept[number]


def _pointwise(call: Any, end: Ending) -> Function:
    """(x, weights, bias, other, geometry) → the operator in the form that its ending needs."""
    name, numbers, formula = end.activation
    if end.other is None:
        return lambda x, w, b, other, *geometry: call(x, w, b, *geometry, name, numbers, formula)
    further: list[Any] = []  # a convolution's sum takes a factor and an activation, a product's neither
    if call is torch.ops.mkldnn._convolution_pointwise:
        further = [1.0, *((None, [], None) if end.activation is NONE else (name, numbers, formula))]
    return lambda x, w, b, other, *geometry: call.binary(x, other, w, b, *geometry, "add", *further)


def _conv(site: TorchSite, kept: Known, packed: bool, end: Ending) -> Function:
    strides, dilations, groups = (site.attrs[name] for name in ("strides", "dilations", "group"))
    begins, ends = site.pads()
    spatial = len(begins)
    uneven = pad_argument(begins, ends) if begins != ends else None
    shape = list(site.shape(0))
    if uneven is not None:
        shape = [*shape[:2], *(s + b + e for s, b, e in zip(shape[2:], begins, ends, strict=True))]
        begins = (0,) * spatial
    lift = spatial == 1  # oneDNN's packing knows two and three dimensions: a line is a map of height 1
    if lift:
        shape, strides, dilations = [*shape[:2], 1, shape[2]], [1, *strides], [1, *dilations]
        begins = (0, *begins)
    stored = None
    if packed:
        weight = _weight(site, kept)
        weight = weight.unsqueeze(2) if lift else weight
        reorder = torch.ops.mkldnn._reorder_convolution_weight
        stored = reorder(weight.contiguous(), begins, strides, dilations, groups, shape)
    call = _pointwise(torch.ops.mkldnn._convolution_pointwise, end)

    def run(x: torch.Tensor, w: Any = None, b: Any = None, other: Any = None) -> torch.Tensor:
        if uneven is not None:
            x = F.pad(x, uneven)
        if stored is not None:
            w = stored
        elif lift:
            w = w.unsqueeze(2)
        if lift:
            x, other = x.unsqueeze(2), None if other is None else other.unsqueeze(2)
        made: torch.Tensor = call(x, w, b, other, begins, strides, dilations, groups)
        return made.squeeze(2) if lift else made

    return run


def _product_parts(site: TorchSite) -> tuple[bool, bool, bool, float, float]:
    """transA, transB, whether C is a plain bias of oneDNN's kind, alpha and beta; checks the ranks."""
    if site.rank(1) != 2 or site.rank(0) < 2:
        raise Unsupported(f"{site.node.op} whose second operand is not a matrix")
    alpha, beta = (site.attrs.get(name, 1.0) for name in ("alpha", "beta"))
    width = site.output().shape[-1]
    bias = site.has(2) and site.shape(2) in ((width,), (1, width)) and alpha == 1 and beta == 1
    return site.flag("transA"), site.flag("transB"), bias, alpha, beta


def _finish(site: TorchSite, product: Callable[..., torch.Tensor]) -> Function:
    """The rest of a Gemm after the product: alpha, and a C that could not be its bias."""
    turn_a, _, bias, alpha, beta = _product_parts(site)
    bias = bias or site.node.op == "MatMul"  # what a MatMul's call is given is the bias fused into it

    def run(a: torch.Tensor, b: Any = None, c: Any = None, other: Any = None) -> torch.Tensor:
        a = a.t().contiguous() if turn_a else a
        if bias and c is not None:
            return product(a, b, c.reshape(-1), other)
        made = product(a, b, None, other)
        if alpha != 1:
            made = made * alpha
        return made if c is None else torch.add(made, c, alpha=beta)

    return run


def _rows(site: TorchSite) -> int:
    """The number of rows of the product: leading dimensions together."""
    return math.prod(site.output().shape[:-1])


def _product(site: TorchSite, kept: Known, packed: bool, end: Ending) -> Function:
    _, turn_b, *_ = _product_parts(site)
    call = _pointwise(torch.ops.mkldnn._linear_pointwise, end)
    if packed:
        weight = _weight(site, kept)
        rows = (weight if turn_b else weight.t()).contiguous()
        stored = torch.ops.mkldnn._reorder_linear_weight(rows, _rows(site))
        return _finish(site, lambda a, b, bias, other: call(a, stored, bias, other))
    return _finish(site, lambda a, b, bias, other: call(a, b if turn_b else b.t(), bias, other))


def mkl_product(site: TorchSite, kept: Known) -> Function:
    """MKL's packed product of a constant matrix."""
    _, turn_b, *_ = _product_parts(site)
    weight = _weight(site, kept)
    rows = (weight if turn_b else weight.t()).contiguous()
    count = _rows(site)
    stored = torch.ops.mkl._mkl_reorder_linear_weight(rows, count)
    call = torch.ops.mkl._mkl_linear
    return _finish(site, lambda a, b, bias, other: call(a, stored, rows, bias, count))


OWN: Mapping[str, frozenset[str]] = {
    "onednn": frozenset(("Conv", "MatMul", "Gemm")),
    "mkl": frozenset(("MatMul", "Gemm")),
}
"""Recipe call → operator types that have it."""
