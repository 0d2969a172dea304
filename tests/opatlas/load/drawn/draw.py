"""A seeded source of shapes, arrays and choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

Choice = TypeVar("Choice")
WHOLE = ("int8", "int16", "int32", "int64", "uint8")


class Draw:
    """Everything random in a case comes from here, so that its seed brings it back."""

    def __init__(self, *seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.float = np.dtype(self.pick("float32", "float64"))

    def pick(self, *options: Choice) -> Choice:
        return options[int(self.rng.integers(len(options)))]

    def flag(self) -> int:
        return int(self.rng.integers(2))

    def whole(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both included."""
        return int(self.rng.integers(low, high + 1))

    def number(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def shape(self, low: int = 1, high: int = 4, longest: int = 5) -> tuple[int, ...]:
        return tuple(self.whole(1, longest) for _ in range(self.whole(low, high)))

    def normal(self, *shape: int, dtype: Any = None) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(dtype or self.float)

    def positive(self, *shape: int, dtype: Any = None) -> np.ndarray:
        return self.rng.uniform(0.3, 2.0, shape).astype(dtype or self.float)

    def inside(self, *shape: int, reach: float = 0.9) -> np.ndarray:
        return self.rng.uniform(-reach, reach, shape).astype(self.float)

    def integers(self, *shape: int, low: int = -9, high: int = 9, dtype: Any = "int64") -> np.ndarray:
        least = 0 if np.dtype(dtype).kind == "u" else low
        return self.rng.integers(max(low, least), high + 1, shape).astype(dtype)

    def bools(self, *shape: int) -> np.ndarray:
        return self.rng.integers(0, 2, shape).astype(bool)

    def distinct(self, *shape: int) -> np.ndarray:
        """No two elements alike: which is the largest is no question of rounding."""
        return (self.rng.permutation(int(np.prod(shape))) - 3.0).reshape(shape).astype(self.float)

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to ``shape``."""
        kept = tuple(shape)[self.whole(0, len(shape)) :]
        return tuple(1 if self.rng.random() < 0.3 else size for size in kept)

    def axis(self, rank: int) -> int:
        return self.whole(-rank, rank - 1)

    def axes(self, rank: int, least: int = 0) -> np.ndarray:
        chosen = self.rng.permutation(rank)[: self.whole(least, rank)]
        signs = [int(one) - rank * self.flag() for one in chosen]
        return np.array(signs, np.int64)


def scalar(value: float, dtype: Any) -> np.ndarray:
    return np.array(value, dtype)


def int64s(numbers: Sequence[int]) -> np.ndarray:
    return np.array(list(numbers), np.int64)
