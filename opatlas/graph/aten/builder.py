"""Builds the small ONNX graph that one recorded call comes to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from opatlas.graph.aten.record import TensorArgument
from opatlas.identity import OPSET

Scalar = int | float | bool

MAX_FILLED_ELEMENTS = 1 << 22


class CannotMap(Exception):
    """The call has no canonical form; ``str()`` is the reason it is counted under."""


@dataclass(frozen=True)
class Ref:
    """A value in the graph being built. ``shape`` is what PyTorch's own rules give it."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    def resized(self, axis: int, *sizes: int) -> tuple[int, ...]:
        """The shape with these sizes, any number of them, in the place of the one at ``axis``."""
        return (*self.shape[:axis], *sizes, *self.shape[axis + 1 :])


@dataclass(frozen=True)
class Mapped:
    """A call's graph. ``feeds`` names its graph inputs, in order, with the record's tensors."""

    model: onnx.ModelProto
    feeds: Mapping[str, TensorArgument]

    @property
    def constants(self) -> list[str]:
        return [name for name, tensor in self.feeds.items() if tensor.const]

    @property
    def strides(self) -> dict[str, tuple[int, ...]]:
        return {name: tensor.strides for name, tensor in self.feeds.items() if tensor.strides is not None}


def numpy_dtype(name: str) -> np.dtype:
    """NumPy's dtype of a name, ``bfloat16`` included. Raises CannotMap for complex and 8-bit floats."""
    if name == "bfloat16":
        return np.dtype(ml_dtypes.bfloat16)
    if name.startswith(("complex", "float8")):
        raise CannotMap(f"{name} tensors")
    return np.dtype(name)


def is_float(dtype: str) -> bool:
    return "float" in dtype


class Builder:
    """Collects nodes; every method returns what it made."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.feeds: dict[str, TensorArgument] = {}

    def feed(self, tensor: TensorArgument) -> Ref:
        """A tensor of the record as a graph input, or as an initializer where its values are known."""
        shape = tuple(int(dim) for dim in tensor.shape)
        if tensor.value is not None:
            return self.constant(tensor.value, tensor.dtype, shape)
        numpy_dtype(tensor.dtype)
        name = f"x{len(self.feeds)}"
        self.feeds[name] = tensor
        return Ref(name, tensor.dtype, shape)

    def constant(self, value: Any, dtype: str = "int64", shape: Sequence[int] | None = None) -> Ref:
        try:
            with np.errstate(
                over="ignore", invalid="ignore"
            ):  # what does not fit is infinite, in PyTorch too
                array = np.asarray(value).astype(numpy_dtype(dtype))
            array = array.reshape(tuple(array.shape if shape is None else shape))
        except (ValueError, TypeError, OverflowError) as error:
            raise CannotMap(f"a value that does not fit its type: {error}") from None
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        return Ref(name, dtype, tuple(array.shape))

    def filled(self, number: Scalar, dtype: str, shape: Sequence[int]) -> Ref:
        """A small constant tensor that PyTorch lets callers leave out (a norm's weight of ones)."""
        if size_of(shape) > MAX_FILLED_ELEMENTS:
            raise CannotMap("a parameter of more elements than any layer has")
        return self.constant(np.full(tuple(shape), number), dtype)

    def node(
        self,
        op: str,
        *inputs: Ref | None,
        shape: Sequence[int] | None = None,
        dtype: str | None = None,
        **attrs: Any,
    ) -> Ref:
        """Add a node with one output. Its dtype and shape are its first input's where not said otherwise."""
        return self.nodes_of(op, inputs, [(dtype, shape)], **attrs)[0]

    def nodes_of(
        self,
        op: str,
        inputs: Sequence[Ref | None],
        outputs: Sequence[tuple[str | None, Sequence[int] | None]],
        **attrs: Any,
    ) -> list[Ref]:
        """Add a node with several outputs, each given as (dtype, shape)."""
        first = next((ref for ref in inputs if ref is not None), None)
        refs: list[Ref] = []
        for dtype, shape in outputs:
            name = f"v{len(self.nodes)}_{len(refs)}"
            refs.append(Ref(name, dtype or first.dtype, tuple(first.shape if shape is None else shape)))  # type: ignore[union-attr]
        attrs = {key: value for key, value in attrs.items() if value is not None}
        self.nodes.append(
            helper.make_node(
                op, [ref.name if ref else "" for ref in inputs], [ref.name for ref in refs], **attrs
            )
        )
        return refs

    def cast(self, value: Ref, dtype: str) -> Ref:
        if value.dtype == dtype:
            return value
        return self.node("Cast", value, dtype=dtype, to=helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)))

    def reshaped(self, value: Ref, shape: Sequence[int], op: str = "Reshape") -> Ref:
        """The value in another shape; by Expand, its elements repeated."""
        return self.node(op, value, self.constant(list(shape)), shape=shape)

    def finish(self, outputs: Sequence[Ref]) -> Mapped:
        if not self.feeds:
            raise CannotMap("makes a constant: nothing is computed from an input")
        graph = helper.make_graph(
            self.nodes,
            "call",
            [_info(name, tensor.dtype, tensor.shape) for name, tensor in self.feeds.items()],
            [_info(ref.name, ref.dtype, ref.shape) for ref in outputs],
            self.initializers,
        )
        return Mapped(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)]), dict(self.feeds)
        )


def _info(name: str, dtype: str, shape: Sequence[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)), list(shape)
    )


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape several shapes broadcast to. Raises CannotMap where they do not."""
    try:
        return tuple(np.broadcast_shapes(*[tuple(shape) for shape in shapes]))
    except ValueError:
        raise CannotMap("shapes that do not broadcast") from None


def number(value: Any) -> Scalar:
    """A scalar argument; operator lists write infinities as strings."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise CannotMap(f"the argument {value!r} is no number") from None
    if not isinstance(value, int | float):
        raise CannotMap(f"the argument {value!r} is no number")
    return value


_ORDER = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def promoted(*operands: Ref | Scalar) -> str:
    """PyTorch's result type: the widest among tensors; 0-d tensors and numbers count by category only."""
    levels: list[list[str]] = [[], [], []]
    for operand in operands:
        if isinstance(operand, Ref):
            levels[0 if operand.shape else 1].append(operand.dtype)
        else:
            levels[2].append(
                "bool" if isinstance(operand, bool) else "int64" if isinstance(operand, int) else "float32"
            )
    result = ""
    for dtypes in levels:
        if not dtypes:
            continue
        widest = _widest(dtypes)
        if not result or _category(widest) > _category(result):
            result = widest
    return result


def _category(dtype: str) -> int:
    return 2 if is_float(dtype) else 0 if dtype == "bool" else 1


def _widest(dtypes: Sequence[str]) -> str:
    if unknown := [dtype for dtype in dtypes if dtype not in _ORDER]:
        raise CannotMap(f"{unknown[0]} tensors")
    if {"float16", "bfloat16"} <= set(dtypes):
        return max("float32", *dtypes, key=_ORDER.index)
    if "uint8" in dtypes and "int8" in dtypes:
        return max("int16", *dtypes, key=_ORDER.index)
    return max(dtypes, key=_ORDER.index)


def normal_axis(axis: Any, rank: int) -> int:
    """An axis counted from the front. Raises CannotMap where the tensor has none such."""
    if isinstance(axis, bool) or not isinstance(axis, int) or not -max(rank, 1) <= axis < max(rank, 1):
        raise CannotMap(f"axis {axis!r} of a tensor of {rank} dimensions")
    return axis + max(rank, 1) if axis < 0 else axis


def size_of(shape: Sequence[int]) -> int:
    return math.prod(shape)
