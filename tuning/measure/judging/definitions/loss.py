"""What arithmetic loses on the way: nothing in the reference, drawn at random in the runs beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tuning.measure.judging.tolerance import FUNCTION, STEP, SUM

RUNS = 8
"""Beside the reference: two in which all errors have one sign, and others."""


class Loss:
    """``step`` and ``total``: the spacing around one of the type that single results are kept in, and of the
    one that sums are. Outside of :meth:`drawn` every value passes unchanged."""

    def __init__(self, step: float, total: float) -> None:
        self.step, self.total = step, total
        self._random: np.random.Generator | None = None
        self._share, self._runs = 0.0, 0

    @contextmanager
    def drawn(self, random: np.random.Generator, share: float) -> Iterator[None]:
        """Within, each value is off by about ``share`` of what it may be: upwards all of them in the first
        run, downwards in the second, either way in those after. Two errors of one size, one after the
        other, would often cancel and pass for none.
        """
        self._runs += 1
        self._random, self._share = random, share
        try:
            yield
        finally:
            self._random = None

    def of_sum(self, value: np.ndarray, size: np.ndarray) -> np.ndarray:
        """A sum of products: ``size`` is the product of the two factors' norms, which is the root of the
        number of terms times what these are (the root of the mean square)."""
        return self._moved(value, SUM * self.total * size)

    def of_function(self, value: np.ndarray, inner: float = 0.0, coarsest: float = 0.0) -> np.ndarray:
        """A transcendental function; ``inner``: the largest number on the way to it; ``coarsest``: the
        spacing of the type that it is computed in, where that may be coarser than the operator's."""
        step = max(self.step, coarsest)
        return self._moved(value, FUNCTION * step * np.abs(value) + STEP * step * inner)

    def of_step(self, value: np.ndarray, size: np.ndarray) -> np.ndarray:
        """One multiplication and addition of terms that are together so large."""
        return self._moved(value, STEP * self.step * size)

    def _moved(self, value: np.ndarray, size: np.ndarray) -> np.ndarray:
        if self._random is None:
            return value
        moved: np.ndarray = value + self._shares(np.shape(value)) * size
        return moved

    def _shares(self, shape: tuple[int, ...]) -> np.ndarray:
        assert self._random is not None
        sizes = self._random.uniform(0.5, 1.5, shape)
        if self._runs % RUNS == 1:
            return sizes * self._share
        if self._runs % RUNS == 2:
            return sizes * -self._share
        signs = self._random.integers(0, 2, shape, np.int8) * 2.0 - 1.0
        shares: np.ndarray = sizes * signs * self._share
        return shares
