"""What arithmetic loses on the way: nothing in the reference, drawn at random in the runs beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tuning.measure.judging.tolerance import FUNCTION, STEP, SUM


class Loss:
    """``step`` and ``total``: the spacing around one of the type that single results are kept in, and of the
    one that sums are. Outside of :meth:`drawn` every value passes unchanged."""

    def __init__(self, step: float, total: float) -> None:
        self.step, self.total = step, total
        self._random: np.random.Generator | None = None
        self._share = 0.0

    @contextmanager
    def drawn(self, random: np.random.Generator, share: float) -> Iterator[None]:
        """Within, each value is off by ``share`` of what it may be, up or down."""
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
        signs = self._random.integers(0, 2, np.shape(value), np.int8) * 2.0 - 1.0
        moved: np.ndarray = value + signs * (self._share * size)
        return moved
