"""What a session is given: a model as a file or bytes, and arrays to run it on."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from opatlas.errors import CallerError, InvalidModel
from opatlas.graph.normal import ModelGraph
from opatlas.graph.types import MissingSizes, TensorType
from opatlas.identity.dtypes import CODES
from opatlas.identity.operator import Operator
from opatlas.load.dtypes import ONNX_NUMBER, numpy_dtype
from opatlas.memory import lacking

_NAMES = {code: name for name, code in CODES.items() if name in ONNX_NUMBER}


def read_model(
    model: str | PathLike[str] | bytes,
    dims: Mapping[str, int] | None,
    example: Mapping[str, np.ndarray] | None = None,
) -> ModelGraph:
    """A file, whose weights may lie in others under its folder; or its bytes, which must hold them all. Links
    are followed as ONNX Runtime follows them: as far as they stay in the folder, or lead to where the model's
    own file really lies, as in a Hugging Face cache. ``example``: inputs, whose sizes the symbolic dimensions
    have that ``dims`` leaves out."""
    data, where = (model, dict[str, Any]()) if isinstance(model, bytes) else _read(Path(model))
    try:
        return ModelGraph(data, dims, **where)
    except MissingSizes as error:
        if not example:
            raise
        return ModelGraph(data, {**error.sizes_of(example), **(dims or {})}, **where)


def _read(path: Path) -> tuple[bytes, dict[str, Any]]:
    try:
        return path.read_bytes(), {"folder": path.parent, "links": (path.parent, path.resolve().parent)}
    except OSError as error:
        raise InvalidModel(f"{path} cannot be read: {error.strerror}.") from None


def operators_of(model: str | Path | bytes, dims: Mapping[str, int] | None = None) -> list[Operator]:
    """Its operators in order, each once; raises :class:`opatlas.errors.InvalidModel`."""
    found = [canonical.operator for canonical, _ in read_model(model, dims).operators().values()]
    return list({operator.key: operator for operator in found}.values())


def random_inputs(graph: ModelGraph, seed: int = 0) -> dict[str, np.ndarray]:
    """Of a model's types: normal floats, small whole numbers, true."""
    random = np.random.default_rng(seed)
    return {name: _random(name, graph.walk.types.get(name), random) for name in graph.input_names}


def _random(name: str, kind: TensorType | None, random: np.random.Generator) -> np.ndarray:
    if kind is None or kind.element not in _NAMES:
        raise InvalidModel(f"Input '{name}' is no tensor of numbers: give the session an example of it.")
    dtype = numpy_dtype(_NAMES[kind.element])
    if reason := lacking(8 * kind.size + kind.size * dtype.itemsize):
        raise InvalidModel(f"Input '{name}' of {list(kind.shape)} does not fit: {reason}.")
    if dtype.kind == "b":
        return np.ones(kind.shape, dtype)
    if dtype.kind in "iu":
        return random.integers(0, 2, kind.shape).astype(dtype)
    return random.standard_normal(kind.shape).astype(dtype)


def read_inputs(path: Path) -> dict[str, np.ndarray]:
    """Arrays by name out of a ``.npz`` file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise CallerError(f"{path} has no arrays by name, as numpy.savez writes them: {error}.") from error
