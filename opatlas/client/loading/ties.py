"""What a bound kernel lacks of what a caller wants of it, put around its runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from opatlas.load.kernel import Bound


def brought_first(bound: Bound) -> Bound:
    """Where it computes on a device's copies, each run brings them."""
    return BroughtFirst(bound) if hasattr(bound, "upload") else bound


def overlap(outputs: Sequence[np.ndarray], inputs: Iterable[np.ndarray]) -> bool:
    """Whether writing an output may change an input: then a kernel that fails would leave nothing to begin
    anew from."""
    return any(np.may_share_memory(output, one) for one in inputs for output in outputs)


class BroughtFirst:
    """Bound to a device's copies of the caller's arrays: each run brings them as they are then."""

    def __init__(self, bound: Any) -> None:
        self._bound = bound

    def __call__(self) -> None:
        self._bound.upload()
        self._bound()

    def outputs(self) -> Sequence[np.ndarray]:
        return self._bound.outputs()

    def poison(self) -> None:
        self._bound.poison()


class CopiedOut:
    """Bound to outputs of the caller's, where the kernel has its own."""

    def __init__(self, bound: Bound, outputs: Sequence[np.ndarray]) -> None:
        self._bound, self._taken = bound, outputs

    def __call__(self) -> None:
        self._bound()
        for taken, made in zip(self._taken, self._bound.outputs(), strict=True):
            taken[...] = made

    def outputs(self) -> Sequence[np.ndarray]:
        return self._taken

    def poison(self) -> None:
        self._bound.poison()


class GivenOutputs:
    """Bound to tensors of the caller's, which it gives back as they were given."""

    def __init__(self, bound: Bound, outputs: Any) -> None:
        self.bound, self._given = bound, outputs

    def __call__(self) -> None:
        self.bound()

    def outputs(self) -> Any:
        return self._given

    def poison(self) -> None:
        self.bound.poison()
