"""Input sets that no child has ever seen: drawn when they are needed, in the parent's memory only.

A process is given each of them once. What decides whether a kernel computes, and how long it takes when it
must, are runs on these.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from opatlas.identity import Operator, describe
from tuning.measure.judging.check import Reference
from tuning.measure.judging.inputs import DISTRIBUTIONS, make_runtime
from tuning.measure.shared_tensors import span

EVERYDAY = ("normal", "uniform", "sparse", "magnitudes")
"""Distributions on which a call takes the time that a job's does."""
OTHERS = tuple(name for name in DISTRIBUTIONS if name not in EVERYDAY)
WARM_BYTES = 512 << 10
"""Inputs and outputs of one batch together: within a core's second cache, as the timed calls' are."""
MOST_CALLS, MOST_ROUNDS = 16, 8
MOST_ELEMENTS = 800_000
"""drawn at once: 10 ms of random numbers."""
HEAVY_FLOPS, HEAVY_BYTES = 4e9, 128e6
"""Above it one call is a batch, further ones are drawn only where the first decides nothing, and references
come from the device where there is one (``referees``)."""


def is_heavy(operator: Operator) -> bool:
    """Whether each call of it costs more than the machinery around it."""
    described = describe(operator)
    return described.flops > HEAVY_FLOPS or described.bytes_moved > HEAVY_BYTES


@dataclass(frozen=True)
class FreshSet:
    """One set of runtime inputs (flat spans by input number) with the outputs' references."""

    spans: Mapping[int, np.ndarray]
    references: Sequence[Reference]


@dataclass(frozen=True)
class Batch:
    """How many sets one run takes, and how many runs are drawn for at once."""

    calls: int
    rounds: int
    heavy: bool = False

    @classmethod
    def of(cls, operator: Operator) -> Batch:
        if is_heavy(operator):
            return cls(1, 1, heavy=True)
        elements = sum(
            span(operator.inputs[n].shape, operator.inputs[n].strides) for n in operator.runtime_inputs
        )
        # As float32, each also as it was handed in, or is handed back.
        nbytes = 8 * (elements + sum(prod(value.shape) for value in operator.output_values))
        calls = min(MOST_CALLS, max(1, WARM_BYTES // max(1, nbytes)))
        return cls(calls, min(MOST_ROUNDS, max(1, MOST_ELEMENTS // max(1, calls * elements))))


References = Callable[[Sequence[Mapping[int, np.ndarray]]], Sequence[Sequence[Reference]]]
"""Computes the references of such sets in a trusted child; raises ChildFailed where it cannot."""


class FreshSets:
    """A growing row of sets of one operator, in two kinds: *everyday* ones, on which a call takes the time
    that a job's does, in batches; and *wide* ones, one of every other distribution, of values of all
    magnitudes (none of heavy operators)."""

    def __init__(self, operator: Operator, references: References) -> None:
        self.operator = operator
        self.batch = Batch.of(operator)
        self._references = references
        self._rng = np.random.default_rng(secrets.randbits(128))
        self._everyday: list[FreshSet] = []
        self._wide: list[FreshSet] = []
        self._batches_used = self._wide_used = 0

    def forget_used(self) -> None:
        """What was handed out so far is never handed out again."""
        del self._everyday[: self._batches_used * self.batch.calls], self._wide[: self._wide_used]
        self._batches_used = self._wide_used = 0

    def draw_ahead(self, processes: int) -> None:
        """Where not one batch, or not one process's wide sets, are left: for so many, at once."""
        short = len(self._everyday) < self.batch.calls
        narrow = not self.batch.heavy and len(self._wide) < len(OTHERS)
        if short or narrow:
            self._draw(self.batch.rounds * short, processes * narrow)

    def everyday(self, number: int) -> list[FreshSet]:
        """The batch ``number``, from 0."""
        self._batches_used = max(self._batches_used, number + 1)
        while len(self._everyday) < self._batches_used * self.batch.calls:
            self._draw(self.batch.rounds, 0)
        return self._everyday[number * self.batch.calls :][: self.batch.calls]

    def wide(self) -> list[FreshSet]:
        """One process's; drawn ahead."""
        self._wide_used = min(len(OTHERS), len(self._wide))
        return self._wide[: self._wide_used]

    def _draw(self, batches: int, processes: int) -> None:
        """All at once: references cost a process of their own."""
        everyday = batches * self.batch.calls
        names = [secrets.choice(EVERYDAY) for _ in range(everyday)] + list(OTHERS) * processes
        drawn = [make_runtime(self.operator, name, self._rng) for name in names]
        found = self._references(drawn)
        sets = [FreshSet(spans, known) for spans, known in zip(drawn, found, strict=True)]
        self._everyday += sets[:everyday]
        self._wide += sets[everyday:]
