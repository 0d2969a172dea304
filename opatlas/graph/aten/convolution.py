"""Convolutions of one to three dimensions, transposed and grouped ones too."""

from __future__ import annotations

from typing import Any

from opatlas.graph.aten.builder import CannotMap, Ref
from opatlas.graph.aten.call import AtenRule, Call, rule


def convolution(call: Call) -> Ref:
    """Only a transposed convolution has padding of its output."""
    x, weight, bias = call.tensor("input"), call.tensor("weight"), call.optional("bias")
    space = weight.rank - 2
    if x.rank != weight.rank or space < 1:
        raise CannotMap("a convolution whose input has no batch dimension")
    if isinstance(call.get("padding"), str):
        raise CannotMap("a convolution whose padding is given by name")
    stride, padding = call.numbers("stride", space), call.numbers("padding", space)
    dilation, groups = call.numbers("dilation", space), int(call.number("groups"))
    kernel = weight.shape[2:]
    attrs: dict[str, Any] = {"kernel_shape": list(kernel), "strides": stride, "pads": padding * 2}
    attrs |= {"dilations": dilation, "group": groups}
    if call.arguments.get("transposed", "output_padding" in call.arguments):
        extra = call.numbers("output_padding", space)
        sizes = [
            (size - 1) * s - 2 * p + d * (k - 1) + e + 1
            for size, s, p, d, k, e in zip(x.shape[2:], stride, padding, dilation, kernel, extra, strict=True)
        ]
        shape = (x.shape[0], weight.shape[1] * groups, *sizes)
        return call.node("ConvTranspose", x, weight, bias, shape=shape, output_padding=extra, **attrs)
    sizes = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, s, p, d, k in zip(x.shape[2:], stride, padding, dilation, kernel, strict=True)
    ]
    return call.node("Conv", x, weight, bias, shape=(x.shape[0], weight.shape[0], *sizes), **attrs)


_CONV = rule("input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1", convolution)
_TURNED = rule(
    "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1", convolution
)

RULES: dict[str, AtenRule] = {
    "convolution": rule(
        "input, weight, bias=None, stride=1, padding=0, dilation=1, transposed=False, output_padding=0, "
        "groups=1",
        convolution,
    ),
    "conv1d": _CONV,
    "conv2d": _CONV,
    "conv3d": _CONV,
    "conv_transpose1d": _TURNED,
    "conv_transpose2d.input": _TURNED,
    "conv_transpose3d.input": _TURNED,
}
