"""Arithmetic, comparison, logic, casts and what else works on one element at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from opatlas.identity.dtypes import long_float
from opatlas.load.torch.ops.site import TorchSite, Unsupported

Built = Callable[..., object]
Builder = Callable[[TorchSite], Built]


def plain(function: Built) -> Builder:
    return lambda site: function


def _div(site: TorchSite) -> Built:
    if site.output().dtype.startswith(("int", "uint")):
        return lambda x, y: lax.div(*jnp.broadcast_arrays(x, y))  # rounds towards zero
    return jnp.divide


def _mod(site: TorchSite) -> Built:
    return jnp.fmod if site.flag("fmod") else jnp.remainder


def _pow(site: TorchSite) -> Built:
    exponent = site.scalar(1)
    if exponent is not None:
        if float(exponent).is_integer() and abs(exponent) <= 4:
            whole = int(exponent)
            return lambda x, *_: lax.integer_pow(x, whole)
        if exponent == 0.5:
            return lambda x, *_: jnp.sqrt(x)
        return lambda x, *_: jnp.power(x, jnp.asarray(exponent, x.dtype))

    def run(x, y):
        wide = jnp.promote_types(x.dtype, y.dtype)
        return jnp.power(x.astype(wide), y.astype(wide)).astype(x.dtype)

    return run


def _bit_shift(site: TorchSite) -> Built:
    left = site.attrs["direction"] in ("LEFT", b"LEFT")
    return jnp.left_shift if left else jnp.right_shift


def _variadic(function: Built) -> Builder:
    return lambda site: lambda *tensors: functools.reduce(function, tensors)


def _mean(site: TorchSite) -> Built:
    count = len(site.node.inputs)
    return lambda *tensors: functools.reduce(jnp.add, tensors) / count


def _clip(site: TorchSite) -> Built:
    if (site.has(1) and site.scalar(1) is None) or (site.has(2) and site.scalar(2) is None):
        raise Unsupported("Clip with bounds known only at run time")
    low = site.attrs.get("min", site.scalar(1))
    high = site.attrs.get("max", site.scalar(2))

    def run(x, *_):
        if low is not None:
            x = jnp.maximum(x, jnp.asarray(low, x.dtype))
        return x if high is None else jnp.minimum(x, jnp.asarray(high, x.dtype))

    return run


def _cast(site: TorchSite) -> Built:
    wanted = jnp.dtype(site.output().dtype)
    if wanted == jnp.bool_:
        return lambda x, *_: x != 0
    return lambda x, *_: x.astype(wanted)


def _constant_of_shape(site: TorchSite) -> Built:
    value = site.output()
    _, _, (fill,) = site.attrs["value"]  # a tensor attribute: element type, shape, values
    number = long_float(fill) if isinstance(fill, str) else fill
    return lambda *_: jnp.full(value.shape, number, dtype=value.dtype)


def _eye_like(site: TorchSite) -> Built:
    value, diagonal = site.output(), int(site.attrs.get("k", 0))
    rows, columns = value.shape
    return lambda *_: jnp.eye(rows, columns, k=diagonal, dtype=value.dtype)


def _is_inf(site: TorchSite) -> Built:
    positive, negative = site.flag("detect_positive", 1), site.flag("detect_negative", 1)
    if positive and negative:
        return jnp.isinf
    if positive:
        return jnp.isposinf
    return jnp.isneginf if negative else lambda x: jnp.zeros(x.shape, bool)


def _dropout(site: TorchSite) -> Built:
    if site.has(2) and site.scalar(2) not in (0, False):
        raise Unsupported("Dropout in training mode")
    return lambda x, *_: x


BUILDERS: dict[str, Builder] = {
    "Abs": plain(jnp.abs),
    "Acos": plain(jnp.arccos),
    "Acosh": plain(jnp.arccosh),
    "Add": plain(jnp.add),
    "And": plain(jnp.logical_and),
    "Asin": plain(jnp.arcsin),
    "Asinh": plain(jnp.arcsinh),
    "Atan": plain(jnp.arctan),
    "Atanh": plain(jnp.arctanh),
    "BitShift": _bit_shift,
    "BitwiseAnd": plain(jnp.bitwise_and),
    "BitwiseNot": plain(jnp.bitwise_not),
    "BitwiseOr": plain(jnp.bitwise_or),
    "BitwiseXor": plain(jnp.bitwise_xor),
    "Cast": _cast,
    "Ceil": plain(jnp.ceil),
    "Clip": _clip,
    "ConstantOfShape": _constant_of_shape,
    "Cos": plain(jnp.cos),
    "Cosh": plain(jnp.cosh),
    "Div": _div,
    "Dropout": _dropout,
    "Equal": plain(jnp.equal),
    "Erf": plain(jax.scipy.special.erf),
    "Exp": plain(jnp.exp),
    "EyeLike": _eye_like,
    "Floor": plain(jnp.floor),
    "Greater": plain(jnp.greater),
    "GreaterOrEqual": plain(jnp.greater_equal),
    "Identity": plain(lambda x: x),
    "IsInf": _is_inf,
    "IsNaN": plain(jnp.isnan),
    "Less": plain(jnp.less),
    "LessOrEqual": plain(jnp.less_equal),
    "Log": plain(jnp.log),
    "Max": _variadic(jnp.maximum),
    "Mean": _mean,
    "Min": _variadic(jnp.minimum),
    "Mod": _mod,
    "Mul": plain(jnp.multiply),
    "Neg": plain(jnp.negative),
    "Not": plain(jnp.logical_not),
    "Or": plain(jnp.logical_or),
    "Pow": _pow,
    "Reciprocal": plain(lambda x: 1 / x),
    "Round": plain(jnp.round),  # half to even, as ONNX has it
    "Sign": plain(jnp.sign),
    "Sin": plain(jnp.sin),
    "Sinh": plain(jnp.sinh),
    "Sqrt": plain(jnp.sqrt),
    "Sub": plain(jnp.subtract),
    "Sum": _variadic(jnp.add),
    "Tan": plain(jnp.tan),
    "Where": plain(jnp.where),
    "Xor": plain(jnp.logical_xor),
}
