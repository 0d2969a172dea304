"""Pooling, resizing and sampling of images."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from opatlas.graph.aten.builder import CannotMap, Ref
from opatlas.graph.aten.call import AtenRule, Call, rule


def _sizes(
    x: Ref, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int], ceil: bool
) -> tuple[int, ...]:
    """Output sizes as in PyTorch: rounded up, but no window starts in the padding behind the input."""
    sizes = []
    for size, k, s, p, d in zip(x.shape[-len(kernel) :], kernel, stride, padding, dilation, strict=True):
        room = size + 2 * p - d * (k - 1) - 1
        count = (math.ceil(room / s) if ceil else room // s) + 1
        if ceil and (count - 1) * s >= size + p:
            count -= 1
        sizes.append(count)
    return (*x.shape[: -len(kernel)], *sizes)


def _pool(call: Call, space: int, op: str) -> Ref:
    x = call.tensor("self")
    if x.rank != space + 2:
        raise CannotMap("pooling of an input that has no batch dimension")
    kernel = call.numbers("kernel_size", space)
    stride = kernel if call.get("stride") in (None, []) else call.numbers("stride", space)
    padding, ceil = call.numbers("padding", space), call.flag("ceil_mode")
    dilation = call.numbers("dilation", space) if "dilation" in call.arguments else [1] * space
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": stride, "pads": padding * 2}
    if op == "AveragePool":
        if call.arguments.get("divisor_override"):
            raise CannotMap("an average pool with its own divisor")
        attrs["count_include_pad"] = int(call.flag("count_include_pad"))
    else:
        attrs["dilations"] = dilation
    return call.node(
        op, x, shape=_sizes(x, kernel, stride, padding, dilation, ceil), ceil_mode=int(ceil), **attrs
    )


def adaptive_average_pool(call: Call) -> Ref:
    """Windows of one size, where the input's size is a multiple of the output's."""
    x = call.tensor("self")
    space = 2
    wanted = call.numbers("output_size", space)
    sizes = x.shape[-space:]
    if x.rank != space + 2 or any(n % m for n, m in zip(sizes, wanted, strict=True)):
        raise CannotMap("adaptive pooling with windows of several sizes")
    shape = (*x.shape[:-space], *wanted)
    if all(m == 1 for m in wanted):
        return call.node("GlobalAveragePool", x, shape=shape)
    kernel = [n // m for n, m in zip(sizes, wanted, strict=True)]
    return call.node("AveragePool", x, shape=shape, kernel_shape=kernel, strides=kernel)


def upsample(call: Call, mode: str = "linear") -> Ref:
    """Nearest or linear resizing of the last two dimensions, to a size or by factors."""
    x = call.tensor("input" if "input" in call.arguments else "self")
    aligned = bool(call.arguments.get("align_corners"))
    attrs = {"mode": mode, "coordinate_transformation_mode": "align_corners" if aligned else "half_pixel"}
    if mode == "nearest":
        attrs |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    factors = call.arguments.get("scale_factors")
    if call.get("output_size") is not None:
        sizes = [*x.shape[:-2], *call.numbers("output_size", 2)]
        return call.node("Resize", x, None, None, call.constant(sizes), shape=sizes, **attrs)
    if not isinstance(factors, list) or len(factors) != 2:
        raise CannotMap("resizing without a size or factors")
    scales = [1.0] * (x.rank - 2) + [float(factor) for factor in factors]
    shape = tuple(math.floor(dim * scale) for dim, scale in zip(x.shape, scales, strict=True))
    return call.node("Resize", x, None, call.constant(scales, "float32"), shape=shape, **attrs)


def grid_sample(call: Call) -> Ref:
    x, grid = call.tensor("input"), call.tensor("grid")
    mode = ("linear", "nearest", "cubic")[int(call.number("interpolation_mode"))]
    border = ("zeros", "border", "reflection")[int(call.number("padding_mode"))]
    return call.node(
        "GridSample", x, grid, shape=(*x.shape[:2], *grid.shape[1:-1]),
        mode=mode, padding_mode=border, align_corners=int(call.flag("align_corners")),
    )  # fmt: skip


def col2im(call: Call) -> Ref:
    x, size, kernel = call.tensor("self"), call.numbers("output_size", 2), call.numbers("kernel_size", 2)
    padding = call.numbers("padding", 2)
    return call.node(
        "Col2Im", x, call.constant(size), call.constant(kernel),
        shape=(x.shape[0], x.shape[1] // (kernel[0] * kernel[1]), *size),
        dilations=call.numbers("dilation", 2), pads=padding * 2, strides=call.numbers("stride", 2),
    )  # fmt: skip


def _max_rule(space: int) -> AtenRule:
    """Values only: where they stood is read by the backward pass alone."""
    text = "self, kernel_size, stride=[], padding=0, dilation=1, ceil_mode=False"
    return rule(text, partial(_pool, space=space, op="MaxPool"))


def _average_rule(space: int) -> AtenRule:
    end = "" if space == 1 else ", divisor_override=None"
    text = f"self, kernel_size, stride=[], padding=0, ceil_mode=False, count_include_pad=True{end}"
    return rule(text, partial(_pool, space=space, op="AveragePool"))


nearest = partial(upsample, mode="nearest")
_SCALED = "input, output_size=None, scale_factors=None"
RULES: dict[str, AtenRule] = {
    "max_pool1d": _max_rule(1),
    "max_pool2d": _max_rule(2),
    "max_pool3d": _max_rule(3),
    "max_pool2d_with_indices": _max_rule(2),
    "max_pool3d_with_indices": _max_rule(3),
    "avg_pool1d": _average_rule(1),
    "avg_pool2d": _average_rule(2),
    "avg_pool3d": _average_rule(3),
    "adaptive_avg_pool2d": rule("self, output_size", adaptive_average_pool),
    "_adaptive_avg_pool2d": rule("self, output_size", adaptive_average_pool),
    "upsample_nearest2d.vec": rule(_SCALED, nearest),
    "upsample_nearest2d": rule("self, output_size, scales_h=None, scales_w=None", nearest),
    "upsample_bilinear2d.vec": rule(
        "input, output_size=None, align_corners=False, scale_factors=None", upsample
    ),
    "upsample_bilinear2d": rule(
        "self, output_size, align_corners=False, scales_h=None, scales_w=None", upsample
    ),
    "grid_sampler_2d": rule("input, grid, interpolation_mode, padding_mode, align_corners", grid_sample),
    "col2im": rule("self, output_size, kernel_size, dilation, padding, stride", col2im),
}
