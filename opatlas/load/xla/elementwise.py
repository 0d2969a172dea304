"""Arithmetic, comparison, logic, casts and what else works on one element at a time."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax

from opatlas.identity.dtypes import long_float
from opatlas.load.numpy_arrays import BINARY, UNARY
from opatlas.load.torch.ops.site import Builder, Built, TorchSite, plain
from opatlas.load.xla.table import FAMILY_OF


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
    left = site.attrs["direction"] == "LEFT"
    return jnp.left_shift if left else jnp.right_shift


def _variadic(function: Built) -> Builder:
    return lambda site: lambda *tensors: functools.reduce(function, tensors)


def _mean(site: TorchSite) -> Built:
    count = len(site.node.inputs)
    return lambda *tensors: functools.reduce(jnp.add, tensors) / count


def _clip(site: TorchSite) -> Built:
    low, high = site.scalar(1), site.scalar(2)

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
    value, diagonal = site.output(), site.attrs["k"]
    rows, columns = value.shape
    return lambda *_: jnp.eye(rows, columns, k=diagonal, dtype=value.dtype)


def _is_inf(site: TorchSite) -> Built:
    positive, negative = site.flag("detect_positive"), site.flag("detect_negative")
    if positive and negative:
        return jnp.isinf
    if positive:
        return jnp.isposinf
    return jnp.isneginf if negative else lambda x: jnp.zeros(x.shape, bool)


_NUMPY_NAMES = {
    **UNARY,
    **BINARY,
    "Acos": "arccos",
    "Acosh": "arccosh",
    "Asin": "arcsin",
    "Asinh": "arcsinh",
    "Atan": "arctan",
    "Atanh": "arctanh",
    "Cosh": "cosh",
    "IsNaN": "isnan",
    "Sinh": "sinh",
    "Where": "where",
    **{f"Bitwise{name}": f"bitwise_{name.lower()}" for name in ("And", "Not", "Or", "Xor")},
}

BUILDERS: dict[str, Builder] = {
    **{op: plain(getattr(jnp, name)) for op, name in _NUMPY_NAMES.items() if FAMILY_OF[op] == "elementwise"},
    "BitShift": _bit_shift,
    "Cast": _cast,
    "Clip": _clip,
    "ConstantOfShape": _constant_of_shape,
    "Div": _div,
    "Erf": plain(jax.scipy.special.erf),
    "EyeLike": _eye_like,
    "Identity": plain(lambda x: x),
    "IsInf": _is_inf,
    "Max": _variadic(jnp.maximum),
    "Mean": _mean,
    "Min": _variadic(jnp.minimum),
    "Mod": _mod,
    "Pow": _pow,
    "Reciprocal": plain(lambda x: 1 / x),
    "Round": plain(jnp.round),  # half to even, as ONNX has it
    "Sum": _variadic(jnp.add),
}
