"""Tensor types of a graph's values: a dtype and a concrete shape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from opatlas.errors import InvalidModel


@dataclass(frozen=True, slots=True)
class TensorType:
    """``element`` is ONNX's number of the element type; ``shape`` is in elements."""

    element: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def to_proto(self) -> onnx.TypeProto:
        return helper.make_tensor_type_proto(self.element, list(self.shape))

    @classmethod
    def of_tensor(cls, tensor: onnx.TensorProto) -> TensorType:
        return cls(tensor.data_type, tuple(tensor.dims))

    @classmethod
    def of_array(cls, array: np.ndarray) -> TensorType:
        return cls(helper.np_dtype_to_tensor_dtype(array.dtype), tuple(array.shape))


class MissingSizes(InvalidModel):
    """Dimensions of a model's inputs are symbolic. ``named``: what each input's are called."""

    named: Mapping[str, Sequence[str]] = {}

    def sizes_of(self, example: Mapping[str, np.ndarray]) -> dict[str, int]:
        """Those that an example of the inputs has."""
        shapes = {name: np.shape(array) for name, array in example.items()}
        return {
            dim: size
            for name, dims in self.named.items()
            if len(shapes.get(name, ())) == len(dims)
            for dim, size in zip(dims, shapes.get(name, ()), strict=True)
        }


def concrete(proto: onnx.TypeProto | None, dims: Mapping[str, int] | None = None) -> TensorType | None:
    """The type, if it is a tensor's whose every dimension is known (``dims`` gives symbolic ones)."""
    if proto is None or not proto.HasField("tensor_type"):
        return None
    tensor = proto.tensor_type
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    shape: list[int] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            shape.append(dim.dim_value)
        elif dims and dim.dim_param in dims:
            shape.append(dims[dim.dim_param])
        else:
            return None
    return TensorType(tensor.elem_type, tuple(shape))


def input_types(graph: onnx.GraphProto, dims: Mapping[str, int]) -> dict[str, TensorType | None]:
    """Types of what the model is fed (initializers left out); None for what is no tensor.

    Raises :class:`MissingSizes` that names every dimension which must be given and is not. A dimension
    without a name is called ``input[axis]``.
    """
    constants = {tensor.name for tensor in graph.initializer}
    types: dict[str, TensorType | None] = {}
    missing: list[str] = []
    named: dict[str, list[str]] = {}
    for value in graph.input:
        if value.name in constants:
            continue
        if not value.type.HasField("tensor_type"):
            types[value.name] = None
            continue
        tensor = value.type.tensor_type
        if not tensor.elem_type or not tensor.HasField("shape"):
            raise InvalidModel(
                f"Input '{value.name}' has no element type or no shape; export the model with both."
            )
        shape: list[int] = []
        named[value.name] = []
        for axis, dim in enumerate(tensor.shape.dim):
            name = dim.dim_param or f"{value.name}[{axis}]"
            named[value.name].append(name)
            is_known = dim.HasField("dim_value") and dim.dim_value >= 0  # some exporters say -1 for unknown
            size = dim.dim_value if is_known else dims.get(name)
            if size is None:
                missing.append(name)
            elif not 0 <= size < 2**31:
                raise InvalidModel(
                    f"Dimension '{name}' of input '{value.name}' is {size}, which no tensor can have."
                )
            shape.append(size or 0)
        types[value.name] = TensorType(tensor.elem_type, tuple(shape))
    if missing:
        names = list(dict.fromkeys(missing))
        example = " ".join(f"{name}=1" for name in names)
        error = MissingSizes(
            f"The model's dimensions {', '.join(names)} are symbolic: give each a size, as in dims {example}."
        )
        error.named = named
        raise error
    return types
