"""Element types as torch dtypes, and arrays as tensors without a copy."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from opatlas.load.dtypes import EXTENSION_TYPES, numpy_dtype
from opatlas.load.torch.ops.site import TorchSite, Unsupported

TORCH_TYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        *("float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "bool"),
        *("uint8", "uint16", "uint32", "uint64", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    )
}


def float_type(site: TorchSite, name: str) -> torch.dtype:
    """The torch dtype of a value that a node makes from nothing: widened where the graph is."""
    if name not in TORCH_TYPES:
        raise Unsupported(f"element type {name}")
    made = TORCH_TYPES[name]
    return site.widen if site.widen is not None and made.is_floating_point else made


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """The array's own memory as a tensor, extension types included."""
    name = array.dtype.name
    with warnings.catch_warnings():
        # Inputs may be read-only maps; nothing here writes to them.
        warnings.filterwarnings("ignore", message=".*not writable.*")
        if name in EXTENSION_TYPES:
            return torch.from_numpy(array.view(_carrier(array.itemsize))).view(TORCH_TYPES[name])
        return torch.from_numpy(array)


def to_array(tensor: torch.Tensor, name: str) -> np.ndarray:
    """The tensor's own memory as an array of the type called ``name``."""
    if name in EXTENSION_TYPES:
        carrier = torch.int16 if tensor.element_size() == 2 else torch.uint8
        return tensor.view(carrier).numpy().view(numpy_dtype(name))
    return tensor.numpy()


def _carrier(itemsize: int) -> np.dtype:
    return np.dtype(np.int16 if itemsize == 2 else np.uint8)
