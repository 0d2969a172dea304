"""Arithmetic, comparison, logic, casts and other functions of one element at a time."""

from __future__ import annotations

import functools

import torch

from opatlas.identity.dtypes import long_float
from opatlas.load.torch.ops.site import Builder, Built, TorchSite, Unsupported, plain
from opatlas.load.torch.ops.types import TORCH_TYPES, float_type


def _div(site: TorchSite) -> Built:
    if site.output().dtype.startswith(("int", "uint")):
        return functools.partial(torch.div, rounding_mode="trunc")
    return torch.div


def _mod(site: TorchSite) -> Built:
    return torch.fmod if site.flag("fmod") else torch.remainder


def _pow(site: TorchSite) -> Built:
    exponent = site.scalar(1)
    base_type = site.input(0).dtype
    if exponent is not None and base_type.startswith(("float", "bfloat")):
        # A user writes x ** 2, which PyTorch turns into a product.
        return lambda x, y=None: torch.pow(x, exponent)
    if base_type == site.input(1).dtype:
        return torch.pow
    return lambda x, y: torch.pow(x, y).to(x.dtype)


def _bit_shift(site: TorchSite) -> Built:
    left = site.attrs["direction"] == "LEFT"
    return torch.bitwise_left_shift if left else torch.bitwise_right_shift


def _variadic(function: Built) -> Builder:
    def build(site: TorchSite) -> Built:
        if len(site.node.inputs) == 2:
            return function
        return lambda *tensors: functools.reduce(function, tensors)

    return build


def _mean(site: TorchSite) -> Built:
    count = len(site.node.inputs)
    return lambda *tensors: functools.reduce(torch.add, tensors) / count


def _clip(site: TorchSite) -> Built:
    low, high = site.scalar(1), site.scalar(2)
    if low is None and high is None:
        return _identity
    return lambda x, *_: torch.clamp(x, low, high)


def _cast(site: TorchSite) -> Built:
    wanted = TORCH_TYPES.get(site.output().dtype)
    if wanted is None:
        raise Unsupported(f"Cast to {site.output().dtype}")
    most = torch.finfo(wanted).max if site.output().dtype.startswith("float8") else None
    if site.widen is not None and wanted.is_floating_point:
        wanted = site.widen
    if most is not None:
        return lambda x, *_: x.clamp(-most, most).to(wanted)
    return lambda x, *_: x.to(wanted)


def _constant_of_shape(site: TorchSite) -> Built:
    value = site.output()
    _, _, (fill,) = site.attrs["value"]  # a tensor attribute: element type, shape, values
    number = long_float(fill) if isinstance(fill, str) else fill
    return lambda *_: torch.full(value.shape, number, dtype=float_type(site, value.dtype))


def _eye_like(site: TorchSite) -> Built:
    value, diagonal = site.output(), site.attrs["k"]
    dtype = float_type(site, value.dtype)
    # Made anew in every run: the shape is all that is read of the input.
    return lambda *_: torch.ones(value.shape, dtype=dtype).triu(diagonal).tril(diagonal)


def _is_inf(site: TorchSite) -> Built:
    positive, negative = site.flag("detect_positive"), site.flag("detect_negative")
    if positive and negative:
        return torch.isinf
    if positive:
        return torch.isposinf
    return torch.isneginf if negative else lambda x: torch.zeros_like(x, dtype=torch.bool)


def _identity(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    return x


_OWN_NAME = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Neg Reciprocal Round Sign
Sin Sinh Sqrt Tan"""  # ONNX, too, rounds half to even

PLAIN: dict[str, Built] = {
    **{op: getattr(torch, op.lower()) for op in _OWN_NAME.split()},
    "Add": torch.add,
    "And": torch.logical_and,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseNot": torch.bitwise_not,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Identity": _identity,
    "IsNaN": torch.isnan,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Mul": torch.mul,
    "Not": torch.logical_not,
    "Or": torch.logical_or,
    "Sub": torch.sub,
    "Where": torch.where,
    "Xor": torch.logical_xor,
}
"""Types that are one PyTorch function."""

BUILDERS: dict[str, Builder] = {
    **{op: plain(function) for op, function in PLAIN.items()},
    "BitShift": _bit_shift,
    "Cast": _cast,
    "Clip": _clip,
    "ConstantOfShape": _constant_of_shape,
    "Div": _div,
    "EyeLike": _eye_like,
    "IsInf": _is_inf,
    "Max": _variadic(torch.maximum),
    "Mean": _mean,
    "Min": _variadic(torch.minimum),
    "Mod": _mod,
    "Pow": _pow,
    "Sum": _variadic(torch.add),
}
