"""Arithmetic, comparison, logic, casts and other functions of one element at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from opatlas.identity.dtypes import long_float
from opatlas.load.torch.ops.site import TorchSite, Unsupported
from opatlas.load.torch.ops.types import TORCH_TYPES, float_type

Builder = Callable[[TorchSite], Callable[..., torch.Tensor]]


def _plain(function: Callable[..., torch.Tensor]) -> Builder:
    return lambda site: function


def _div(site: TorchSite) -> Callable[..., torch.Tensor]:
    if site.output().dtype.startswith(("int", "uint")):
        return functools.partial(torch.div, rounding_mode="trunc")
    return torch.div


def _mod(site: TorchSite) -> Callable[..., torch.Tensor]:
    return torch.fmod if site.flag("fmod") else torch.remainder


def _pow(site: TorchSite) -> Callable[..., torch.Tensor]:
    exponent = site.scalar(1)
    base_type = site.input(0).dtype
    if exponent is not None and base_type.startswith(("float", "bfloat")):
        # A user writes x ** 2, which PyTorch turns into a product.
        return lambda x, y=None: torch.pow(x, exponent)
    if base_type == site.input(1).dtype:
        return torch.pow
    return lambda x, y: torch.pow(x, y).to(x.dtype)


def _bit_shift(site: TorchSite) -> Callable[..., torch.Tensor]:
    left = site.attrs["direction"] in ("LEFT", b"LEFT")
    return torch.bitwise_left_shift if left else torch.bitwise_right_shift


def _variadic(function: Callable[..., torch.Tensor]) -> Builder:
    def build(site: TorchSite) -> Callable[..., torch.Tensor]:
        if len(site.node.inputs) == 2:
            return function
        return lambda *tensors: functools.reduce(function, tensors)

    return build


def _mean(site: TorchSite) -> Callable[..., torch.Tensor]:
    count = len(site.node.inputs)
    return lambda *tensors: functools.reduce(torch.add, tensors) / count


def _clip(site: TorchSite) -> Callable[..., torch.Tensor]:
    if "min" in site.attrs or "max" in site.attrs:
        low, high = site.attrs.get("min"), site.attrs.get("max")
        return lambda x: torch.clamp(x, low, high)
    low, high = site.scalar(1), site.scalar(2)
    if (low is None) == site.has(1) or (high is None) == site.has(2):
        raise Unsupported("Clip with bounds known only at run time")
    if low is None and high is None:
        return lambda x, *_: x
    return lambda x, *_: torch.clamp(x, low, high)


def _cast(site: TorchSite) -> Callable[..., torch.Tensor]:
    wanted = TORCH_TYPES.get(site.output().dtype)
    if wanted is None:
        raise Unsupported(f"Cast to {site.output().dtype}")
    if site.widen is not None and wanted.is_floating_point:
        wanted = site.widen
    return lambda x, *_: x.to(wanted)


def _constant_of_shape(site: TorchSite) -> Callable[..., torch.Tensor]:
    value = site.output()
    _, _, (fill,) = site.attrs["value"]  # a tensor attribute: element type, shape, values
    number = long_float(fill) if isinstance(fill, str) else fill
    return lambda *_: torch.full(value.shape, number, dtype=float_type(site, value.dtype))


def _eye_like(site: TorchSite) -> Callable[..., torch.Tensor]:
    value, diagonal = site.output(), int(site.attrs.get("k", 0))
    dtype = float_type(site, value.dtype)
    # Made anew in every run: the shape is all that is read of the input.
    return lambda *_: torch.ones(value.shape, dtype=dtype).triu(diagonal).tril(diagonal)


def _is_inf(site: TorchSite) -> Callable[..., torch.Tensor]:
    positive, negative = site.flag("detect_positive", 1), site.flag("detect_negative", 1)
    if positive and negative:
        return torch.isinf
    if positive:
        return torch.isposinf
    return torch.isneginf if negative else lambda x: torch.zeros_like(x, dtype=torch.bool)


def _round(x: torch.Tensor) -> torch.Tensor:
    return torch.round(x)  # half to even, as ONNX has it


def _identity(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    return x


def _dropout(site: TorchSite) -> Callable[..., object]:
    if site.has(2) and site.scalar(2) not in (0, False):
        raise Unsupported("Dropout in training mode")
    return _identity


def _where(condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(condition, x, y)


def _erf(site: TorchSite) -> Callable[..., torch.Tensor]:
    return torch.erf


BUILDERS: dict[str, Callable[[TorchSite], Callable[..., object]]] = {
    "Abs": _plain(torch.abs),
    "Acos": _plain(torch.acos),
    "Acosh": _plain(torch.acosh),
    "Add": _plain(torch.add),
    "And": _plain(torch.logical_and),
    "Asin": _plain(torch.asin),
    "Asinh": _plain(torch.asinh),
    "Atan": _plain(torch.atan),
    "Atanh": _plain(torch.atanh),
    "BitShift": _bit_shift,
    "BitwiseAnd": _plain(torch.bitwise_and),
    "BitwiseNot": _plain(torch.bitwise_not),
    "BitwiseOr": _plain(torch.bitwise_or),
    "BitwiseXor": _plain(torch.bitwise_xor),
    "Cast": _cast,
    "Ceil": _plain(torch.ceil),
    "Clip": _clip,
    "ConstantOfShape": _constant_of_shape,
    "Cos": _plain(torch.cos),
    "Cosh": _plain(torch.cosh),
    "Div": _div,
    "Dropout": _dropout,
    "Equal": _plain(torch.eq),
    "Erf": _erf,
    "Exp": _plain(torch.exp),
    "EyeLike": _eye_like,
    "Floor": _plain(torch.floor),
    "Greater": _plain(torch.gt),
    "GreaterOrEqual": _plain(torch.ge),
    "Identity": _plain(_identity),
    "IsInf": _is_inf,
    "IsNaN": _plain(torch.isnan),
    "Less": _plain(torch.lt),
    "LessOrEqual": _plain(torch.le),
    "Log": _plain(torch.log),
    "Max": _variadic(torch.maximum),
    "Mean": _mean,
    "Min": _variadic(torch.minimum),
    "Mod": _mod,
    "Mul": _plain(torch.mul),
    "Neg": _plain(torch.neg),
    "Not": _plain(torch.logical_not),
    "Or": _plain(torch.logical_or),
    "Pow": _pow,
    "Reciprocal": _plain(torch.reciprocal),
    "Round": _plain(_round),
    "Sign": _plain(torch.sign),
    "Sin": _plain(torch.sin),
    "Sinh": _plain(torch.sinh),
    "Sqrt": _plain(torch.sqrt),
    "Sub": _plain(torch.sub),
    "Sum": _variadic(torch.add),
    "Tan": _plain(torch.tan),
    "Where": _plain(_where),
    "Xor": _plain(torch.logical_xor),
}
