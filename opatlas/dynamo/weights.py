"""Packed weights that may be changed by their owner at any time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from opatlas.client.loading.function import KernelFunction

_running = threading.local()


@contextlib.contextmanager
def inputs_of_graph(inputs: Sequence[object]) -> Iterator[None]:
    """What this thread's graph was called with. Kernels read weights through views, which Inductor makes
    without a version: only the tensors that the model holds can be watched."""
    before = getattr(_running, "inputs", None)
    _running.inputs = inputs
    try:
        yield
    finally:
        _running.inputs = before


@dataclass(frozen=True)
class _SeenWeight:
    """A weight as it was packed. ``memory`` is held, so that no other weight comes to lie at its address."""

    owner: torch.Tensor
    memory: torch.Tensor
    version: int

    @classmethod
    def of(cls, owner: torch.Tensor) -> _SeenWeight:
        return cls(owner, owner.detach(), owner._version)

    def is_still(self, owner: object) -> bool:
        return (
            owner is self.owner
            and self.owner.data_ptr() == self.memory.data_ptr()
            and self.owner._version == self.version
        )


class WatchedWeights:
    """Weights of one kernel. A change is seen by the tensor that the model holds: whether it is another one,
    lies elsewhere, or has another version, which every write through PyTorch moves on. What is written past
    PyTorch's versions (``tensor.data.add_``, a NumPy view) is not seen.

    ``owners``: the number of the graph's input that each of the kernel's weights is, or is a view of;
    ``numbers``: constants that nobody can change, by their number.
    """

    def __init__(self, owners: Mapping[int, int], numbers: Mapping[int, np.ndarray]) -> None:
        self.owners = owners
        self.packed = 0
        self._numbers = numbers
        self._seen: dict[int, _SeenWeight] | None = None

    def pack_if_changed(self, function: KernelFunction, tensors: Mapping[int, torch.Tensor]) -> bool:
        """Give the kernel its constants out of ``tensors``, unless they are those that it has: whether it
        was given any."""
        inputs = getattr(_running, "inputs", None)
        owners = {number: inputs[at] for number, at in self.owners.items()} if inputs is not None else {}
        if self._seen is not None and all(
            number in owners and seen.is_still(owners[number]) for number, seen in self._seen.items()
        ):
            return False
        self._seen, seen = None, dict[int, _SeenWeight]()
        watched = len(owners) == len(self.owners) and not any(one.is_inference() for one in owners.values())
        if watched:  # before they are read: whoever writes meanwhile is noticed at the next call
            seen = {number: _SeenWeight.of(one) for number, one in owners.items()}
        function.prepare({**self._numbers, **{number: tensors[number] for number in self.owners}})
        self.packed += 1
        self._seen = seen if watched else None
        return True
