"""What a torch recipe's call and parameters do to an operator's plan: layouts, stored and packed weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from opatlas.identity.operator import Operator
from opatlas.load.torch_graph import Plan, Unsupported
from opatlas.load.torch_ops.convolution import explicit_pads, pad_argument, spatial_attribute
from opatlas.load.torch_ops.site import Site
from opatlas.load.torch_patterns import whole_call

CHANNELS_LAST = frozenset(
    ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "BatchNormalization", "Resize")
)
"""Nodes whose activation is turned to channels-last (4 and 5 dimensions only)."""

Known = dict[int, torch.Tensor]
Function = Callable[..., Any]


def plan(operator: Operator, known: Mapping[int, torch.Tensor], recipe: Mapping[str, Any]) -> Plan:
    """The operator's plan with the recipe's layout and weights. To be called in inference mode."""
    kept: Known = dict(known)
    replace: dict[int, Function] = {}
    for position, node in enumerate(operator.nodes):
        site = Site(operator, node, kept)
        if recipe["call"] == "onednn" and node.op in ("Conv", "MatMul", "Gemm"):
            replace[position] = _ONEDNN[node.op](site, kept, recipe["weights"] == "packed")
        elif recipe["call"] == "mkl" and node.op in ("MatMul", "Gemm"):
            replace[position] = _mkl_product(site, kept)
        elif recipe.get("weights") == "transposed" and node.op in ("MatMul", "Gemm"):
            _store_transposed(site, kept)
    if recipe["call"] != "eager" and not replace:
        raise Unsupported(f"{' + '.join(operator.op_types)} has no call of {recipe['call']}")
    if recipe.get("layout") == "channels_last":
        _turn_to_channels_last(operator, kept, replace)
    if recipe["call"] == "onednn" and recipe["weights"] == "packed":
        _forget_packed(operator, kept, replace)
    made = Plan(operator, kept, replace=replace)
    if not replace and (whole := whole_call(operator)) is not None:
        made.use_whole_call(*whole)
    return made


def _forget_packed(operator: Operator, kept: Known, replace: Mapping[int, Function]) -> None:
    """Drop weights that live on in packed form only, so that they do not take memory twice."""
    packed = {
        operator.nodes[position].inputs[1]
        for position in replace
        if operator.nodes[position].op in _ONEDNN and operator.nodes[position].inputs[1] in kept
    }
    for number in packed:
        uses = [node for node in operator.nodes if number in node.inputs]
        if len(uses) == 1 and uses[0].inputs.count(number) == 1:
            del kept[number]


def _weight(site: Site, kept: Known) -> torch.Tensor:
    """The constant second operand; Unsupported where it comes with every run."""
    number = site.node.inputs[1]
    if number not in kept:
        raise Unsupported(f"packed weights for a {site.node.op} whose weights come with every run")
    return kept[number]


def _store_transposed(site: Site, kept: Known) -> None:
    weight = _weight(site, kept)
    if weight.ndim > 1:
        turned = weight.transpose(-1, -2)
        # The same values and the same meaning; only the memory runs the other way.
        other = weight.is_contiguous()
        kept[site.node.inputs[1]] = turned.contiguous().transpose(-1, -2) if other else weight.contiguous()


def _turn_to_channels_last(operator: Operator, kept: Known, replace: dict[int, Function]) -> None:
    """Constant weights once, now; activations in every run, where they do not lie so already."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    plain = Plan(operator, kept, replace=replace)
    for position, node in enumerate(operator.nodes):
        memory = formats.get(len(operator.value(node.inputs[0]).shape))
        if node.op not in CHANNELS_LAST or memory is None:
            continue
        if node.op in ("Conv", "ConvTranspose") and node.inputs[1] in kept and position not in replace:
            kept[node.inputs[1]] = kept[node.inputs[1]].contiguous(memory_format=memory)
        replace[position] = _on_turned_activation(plain.steps[position][0], memory)


def _on_turned_activation(function: Function, memory: torch.memory_format) -> Function:
    def run(x: torch.Tensor, *others: Any) -> Any:
        return function(x.contiguous(memory_format=memory), *others)

    return run


# oneDNN's own operators, as torch.compile calls them: ("none", [], "") is no fused activation.
_NO_ACTIVATION: tuple[Any, ...] = ("none", [], "")


def _onednn_conv(site: Site, kept: Known, packed: bool) -> Function:
    kernel = list(site.shape(1)[2:])
    spatial = len(kernel)
    strides, dilations = (spatial_attribute(site, name, spatial) for name in ("strides", "dilations"))
    groups = int(site.attrs.get("group", 1))
    begins, ends = explicit_pads(site, kernel, strides, dilations)
    uneven = pad_argument(begins, ends) if begins != ends else None
    shape = list(site.shape(0))
    if uneven is not None:
        shape = [*shape[:2], *(s + b + e for s, b, e in zip(shape[2:], begins, ends, strict=True))]
        begins = [0] * spatial
    lift = spatial == 1  # oneDNN's packing knows two and three dimensions: a line is a map of height 1
    if lift:
        shape, strides, dilations = [*shape[:2], 1, shape[2]], [1, *strides], [1, *dilations]
        begins = [0, *begins]
    stored = None
    if packed:
        weight = _weight(site, kept)
        weight = weight.unsqueeze(2) if lift else weight
        reorder = torch.ops.mkldnn._reorder_convolution_weight
        stored = reorder(weight.contiguous(), begins, strides, dilations, groups, shape)
    call = torch.ops.mkldnn._convolution_pointwise

    def run(x: torch.Tensor, w: Any = None, b: Any = None) -> torch.Tensor:
        if uneven is not None:
            x = F.pad(x, uneven)
        if stored is not None:
            w = stored
        elif lift:
            w = w.unsqueeze(2)
        x = x.unsqueeze(2) if lift else x
        made = call(x, w, b, begins, strides, dilations, groups, *_NO_ACTIVATION)
        return made.squeeze(2) if lift else made

    return run


def _product_parts(site: Site) -> tuple[bool, bool, bool, float, float]:
    """transA, transB, whether C is a plain bias of oneDNN's kind, alpha and beta; checks the ranks."""
    if site.rank(1) != 2 or site.rank(0) < 2:
        raise Unsupported(f"{site.node.op} whose second operand is not a matrix")
    alpha, beta = float(site.attrs.get("alpha", 1.0)), float(site.attrs.get("beta", 1.0))
    width = site.output().shape[-1]
    bias = site.has(2) and site.shape(2) in ((width,), (1, width)) and alpha == 1 and beta == 1
    return site.flag("transA"), site.flag("transB"), bias, alpha, beta


def _finish(site: Site, product: Callable[..., torch.Tensor]) -> Function:
    """What is left of a Gemm after the product: alpha, and a C that could not be its bias."""
    turn_a, _, bias, alpha, beta = _product_parts(site)

    def run(a: torch.Tensor, b: Any = None, c: Any = None) -> torch.Tensor:
        a = a.t().contiguous() if turn_a else a
        if bias and c is not None:
            return product(a, b, c.reshape(-1))
        made = product(a, b, None)
        if alpha != 1:
            made = made * alpha
        return made if c is None else torch.add(made, c, alpha=beta)

    return run


def _rows(site: Site) -> int:
    """How many rows the product has: leading dimensions together."""
    return math.prod(site.output().shape[:-1])


def _onednn_product(site: Site, kept: Known, packed: bool) -> Function:
    _, turn_b, *_ = _product_parts(site)
    call = torch.ops.mkldnn._linear_pointwise
    if packed:
        weight = _weight(site, kept)
        rows = (weight if turn_b else weight.t()).contiguous()
        stored = torch.ops.mkldnn._reorder_linear_weight(rows, _rows(site))
        return _finish(site, lambda a, b, bias: call(a, stored, bias, *_NO_ACTIVATION))
    return _finish(site, lambda a, b, bias: call(a, b if turn_b else b.t(), bias, *_NO_ACTIVATION))


def _mkl_product(site: Site, kept: Known) -> Function:
    _, turn_b, *_ = _product_parts(site)
    weight = _weight(site, kept)
    rows = (weight if turn_b else weight.t()).contiguous()
    count = _rows(site)
    stored = torch.ops.mkl._mkl_reorder_linear_weight(rows, count)
    call = torch.ops.mkl._mkl_linear
    return _finish(site, lambda a, b, bias: call(a, stored, rows, bias, count))


_ONEDNN: dict[str, Callable[[Site, Known, bool], Function]] = {
    "Conv": _onednn_conv,
    "MatMul": _onednn_product,
    "Gemm": _onednn_product,
}
