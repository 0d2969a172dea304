"""Weights beside the model: read from files in its folder, and left out of a model that is too large for
protobuf to write.

A model may come from anywhere, and names these files itself: nothing is opened but regular files under the
model's own folder, by no link, and as much is read as the tensors' shapes need. Whoever reads a file of its
own (:func:`opatlas.graph.given_model.read_model`) may name folders into which links lead.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

import onnx

from opatlas.errors import InvalidModel
from opatlas.memory import lacking

MOST_SERIALISED = (2 << 30) - (1 << 20)
"""Bytes: protobuf writes no more, whatever the model."""
SMALL = 1024
"""Bytes of a constant that stays in a model without its weights: shapes are made of those."""


def read_external(
    tensors: Iterable[onnx.TensorProto],
    folder: Path,
    needed_bytes: Callable[[onnx.TensorProto], int],
    links: Sequence[Path] = (),
) -> None:
    """Put the data that lies in other files into these tensors. ``links``: folders into which links may lead;
    without any none is followed. Raises :class:`InvalidModel` for what is not under ``folder`` or these, or
    not as large as its shape needs, and where memory does not suffice."""
    outside = [one for one in tensors if is_external(one)]
    total = sum(map(needed_bytes, outside))
    # Here, where they are handed over, and as the framework that runs them lays them out.
    if outside and (reason := lacking(3 * total)):
        raise InvalidModel(f"The model's weights do not fit: {reason}.")
    for tensor in outside:
        tensor.raw_data = _read(tensor, needed_bytes(tensor), folder, links)
        tensor.ClearField("external_data")
        tensor.data_location = onnx.TensorProto.DEFAULT


def is_external(tensor: onnx.TensorProto) -> bool:
    """Whether its data lies in another file."""
    return tensor.data_location == onnx.TensorProto.EXTERNAL or bool(tensor.external_data)


def serialisable(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model itself; without its larger weights, which it then says to lie elsewhere, where protobuf could
    not write it."""
    return model if weight_bytes(model) < MOST_SERIALISED else without_weights(model)


def weight_bytes(model: onnx.ModelProto) -> int:
    """Of the model's weights as they are stored."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer)


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with weights as names and shapes only; nothing large is copied."""
    light = onnx.ModelProto()
    _copy_fields(model, light, without="graph")
    _copy_fields(model.graph, light.graph, without="initializer")
    for tensor in model.graph.initializer:
        copy = light.graph.initializer.add()
        if len(tensor.raw_data) <= SMALL:
            copy.CopyFrom(tensor)
            continue
        copy.name, copy.data_type, copy.data_location = tensor.name, tensor.data_type, tensor.EXTERNAL
        copy.dims.extend(tensor.dims)
        entry = copy.external_data.add()
        entry.key, entry.value = "location", "weights"
    return light


def _copy_fields(source: onnx.ModelProto | onnx.GraphProto, target: object, without: str) -> None:
    for field, value in source.ListFields():
        if field.name == without:
            continue
        if isinstance(value, str | int | bytes):
            setattr(target, field.name, value)
        else:
            getattr(target, field.name).MergeFrom(value)


def _read(tensor: onnx.TensorProto, needed: int, folder: Path, links: Sequence[Path]) -> bytes:
    told = {entry.key: entry.value for entry in tensor.external_data}
    name, location = tensor.name or "(unnamed)", told.get("location", "")
    offset, length = _number(name, told.get("offset", "0")), _number(name, told.get("length", str(needed)))
    if length != needed:
        raise InvalidModel(f"Tensor '{name}' needs {needed} bytes; it names {length} of '{location[:80]}'.")
    try:
        with open(_opened(folder, location, links), "rb") as file:
            file.seek(offset)
            data = file.read(needed)
    except (OSError, ValueError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidModel(
            f"The data of tensor '{name}' in '{location[:80]}' cannot be read: {why}."
        ) from None
    if len(data) < needed:
        raise InvalidModel(f"Tensor '{name}' needs {needed} bytes; '{location[:80]}' has {len(data)} there.")
    return data


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidModel(f"Tensor '{name}' names a place in another file that is no number: {text[:40]!r}.")
    return int(text)


def _opened(folder: Path, location: str, links: Sequence[Path]) -> int:
    """A descriptor of the file; ValueError for what is no regular file under the folder, or under one into
    which links may lead."""
    named = PurePosixPath(location)
    if not named.parts or named.is_absolute() or ".." in named.parts:
        raise ValueError("it does not lie in the model's folder")
    if not links:
        return _opened_without_links(folder, named.parts)
    real = Path(os.path.realpath(folder / named))  # resolve() raises RuntimeError for a link to itself
    root = next((one for one in map(Path.resolve, links) if real.is_relative_to(one)), None)
    if root is None:
        raise ValueError("a link leads out of the model's folder")
    return _opened_without_links(root, real.relative_to(root).parts)


def _opened_without_links(folder: Path, parts: Sequence[str]) -> int:
    """Each part of the way is opened in the one before, so that no link is followed, whoever makes one
    meanwhile."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = inner
        # Without waiting: a pipe that nobody writes to would be opened for ever.
        found = os.open(
            parts[-1] if parts else ".", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory
        )
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise ValueError("it is no file")
    return found
