"""Adapters around a bound kernel's runs, for what a caller wants and the kernel lacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from opatlas.load.kernel import Bound


def brought_first(bound: Bound) -> Bound:
    """If it computes on copies on a device, each run copies the inputs there first."""
    return BroughtFirst(bound) if hasattr(bound, "upload") else bound


def overlap(outputs: Sequence[np.ndarray], inputs: Iterable[np.ndarray]) -> bool:
    """Whether writing an output may change an input: a kernel that fails would then leave nothing to repeat
    the call from."""
    return any(np.may_share_memory(output, one) for one in inputs for output in outputs)


class BroughtFirst:
    """Bound to copies of the caller's arrays on a device: each run copies their current values."""

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
    """Bound to the caller's outputs, when the kernel has its own."""

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
    """Bound to the caller's tensors, which it returns as given."""

    def __init__(self, bound: Bound, outputs: Any) -> None:
        self.bound, self._given = bound, outputs

    def __call__(self) -> None:
        self.bound()

    def outputs(self) -> Any:
        return self._given

    def poison(self) -> None:
        self.bound.poison()
