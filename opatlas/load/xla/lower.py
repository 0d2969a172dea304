"""A canonical operator as one JAX function of its stored tensor inputs."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from opatlas.identity import Operator
from opatlas.identity.operator import Node, Value
from opatlas.load.dtypes import EXTENSION_TYPES
from opatlas.load.package_stablehlo import carrier
from opatlas.load.storage import Storage, storage_of
from opatlas.load.torch.ops.site import TorchSite
from opatlas.load.xla.table import FAMILY_OF

_DROPPED = -1


def import_families() -> None:
    """Import every family's module: what a zygote does once before it forks."""
    for family in sorted(set(FAMILY_OF.values())):
        importlib.import_module(f"opatlas.load.xla.{family}")


def arguments(operator: Operator) -> list[jax.ShapeDtypeStruct]:
    """The function's arguments: the tensor inputs in order, as stored."""
    values = [operator.inputs[number] for number in operator.tensor_inputs]
    return [
        jax.ShapeDtypeStruct(storage_of(value).shape, jnp.dtype(carrier(value.dtype))) for value in values
    ]


def lowered(operator: Operator, variant: str) -> Callable[..., list[jax.Array]]:
    """The function; raises :class:`Unsupported` for what the table cannot express. Needs 64-bit types
    enabled."""
    steps = [(node, _build(operator, node, variant)) for node in operator.nodes]

    def run(*stored: jax.Array) -> list[jax.Array]:
        values: dict[int, Any] = {}
        for number, array in zip(operator.tensor_inputs, stored, strict=True):
            values[number] = _logical(array, operator.inputs[number])
        for node, function in steps:
            made = function(*[values.get(number) for number in node.inputs])
            results = made if isinstance(made, tuple | list) else (made,)
            for number, result in zip(node.outputs, results, strict=False):
                if number != _DROPPED:
                    values[number] = _exact(result, operator.value(number))
        return [_leaving(values[number], operator.value(number)) for number in operator.outputs]

    return run


def _build(operator: Operator, node: Node, variant: str) -> Callable[..., Any]:
    if node.op == "Conv" and variant != "plain":
        from opatlas.load.xla.convolution import VARIANTS

        return VARIANTS[variant](TorchSite(operator, node, {}))
    if variant == "shifted" and node.op in ("MaxPool", "AveragePool"):
        from opatlas.load.xla.pooling import SHIFTED

        return SHIFTED[node.op](TorchSite(operator, node, {}))
    module = importlib.import_module(f"opatlas.load.xla.{FAMILY_OF[node.op]}")
    function: Callable[..., Any] = module.BUILDERS[node.op](TorchSite(operator, node, {}))
    return function


def _logical(array: jax.Array, value: Value) -> jax.Array:
    """The value, from its stored form."""
    storage = storage_of(value)
    if value.dtype in EXTENSION_TYPES:
        array = lax.bitcast_convert_type(array, jnp.dtype(value.dtype))
    if storage.form == "turned":
        return array.transpose(storage.order)
    return _cut(array, storage, value.shape) if storage.form == "span" else array


def _cut(span: jax.Array, storage: Storage, shape: Sequence[int]) -> jax.Array:
    """The nested cut of its span that a strided value is."""
    strides = [stride for _, _, stride in storage.pitches]
    if not strides:
        return jnp.broadcast_to(span.reshape((1,) * len(shape)), shape)
    sizes = [size for _, size, _ in storage.pitches]
    pitches = [wide // narrow for wide, narrow in itertools.pairwise(strides)] + [strides[-1]]
    padded = jnp.pad(span, (0, sizes[0] * strides[0] - span.size))
    whole = padded.reshape(sizes[0], *pitches)
    cut = lax.slice(whole, (0,) * whole.ndim, (*sizes, 1))[..., 0]
    axes = [axis for axis, _, _ in storage.pitches]
    order = sorted(range(len(axes)), key=lambda index: axes[index])
    cut = cut.transpose(order)
    return jnp.broadcast_to(
        cut.reshape([size if axis in axes else 1 for axis, size in enumerate(shape)]), shape
    )


def _exact(result: Any, value: Value) -> jax.Array:
    """The result in ONNX's type and shape."""
    made = jnp.asarray(result)
    made = made if made.dtype == jnp.dtype(value.dtype) else made.astype(value.dtype)
    return made if made.shape == value.shape else jnp.reshape(made, value.shape)


def _leaving(array: jax.Array, value: Value) -> jax.Array:
    """As the result is stored; strides that no dense array has are made after the call."""
    storage = storage_of(value)
    if storage.form != "turned":
        return array
    back = sorted(range(len(storage.order)), key=lambda axis: storage.order[axis])
    return array.transpose(back)
