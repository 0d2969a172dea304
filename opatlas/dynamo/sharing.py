"""Inputs of a graph that lie in one memory. Where a graph writes to one of them, whoever compiled it for
other tensors reads or writes the wrong numbers: Inductor guards what it saw, not what it did not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from opatlas.dynamo.outcome import Call

Groups = frozenset[tuple[int, ...]]


def shared_with_written(args: Sequence[Any], tensors: Sequence[int], written: frozenset[int]) -> Groups:
    """Numbers of the inputs that share memory with each other, of groups in which one is written to.
    ``tensors``: the inputs' numbers that are tensors."""
    spans = []
    for at in tensors:
        memory = args[at].untyped_storage()
        start = memory.data_ptr()
        spans.append((start, start + memory.nbytes(), at))
    spans.sort()
    groups, end = list[list[int]](), -1
    for start, stop, at in spans:
        if start < end:
            groups[-1].append(at)
        else:
            groups.append([at])
        end = max(end, stop)
    return frozenset(tuple(sorted(one)) for one in groups if len(one) > 1 and not written.isdisjoint(one))


def tensors_among(inputs: Sequence[Any]) -> list[int]:
    return [at for at, one in enumerate(inputs) if isinstance(one, torch.Tensor)]


def lies_in_several(inputs: Sequence[Any], written: frozenset[int]) -> bool:
    """Whether memory that is written to is several storages of PyTorch's, as arrays of NumPy's become: copies
    would no longer share it."""
    groups = shared_with_written(inputs, tensors_among(inputs), written)
    return any(len({inputs[at].untyped_storage()._cdata for at in group}) > 1 for group in groups)


class AsShared:
    """Runs a graph that writes to its inputs as it was compiled, as long as they share memory as they did
    then, and by PyTorch eager where they do not."""

    def __init__(self, call: Call, eager: Call, inputs: Sequence[Any], written: frozenset[int]) -> None:
        self._call, self._eager, self._written = call, eager, written
        self._tensors = tensors_among(inputs)
        self._groups = shared_with_written(inputs, self._tensors, written)

    def __call__(self, *args: Any) -> Any:
        if shared_with_written(args, self._tensors, self._written) == self._groups:
            return self._call(*args)
        return self._eager(*args)
