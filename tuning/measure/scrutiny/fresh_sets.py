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
from tuning.measure.judging.drawing.dealing import Dealer
from tuning.measure.judging.inputs import make_runtime
from tuning.measure.judging.parts import OutputPart, part_of
from tuning.measure.shared_tensors import span
from tuning.measure.specimen import FURTHER, how_many_further, is_dear

EVERYDAY = ("normal", "uniform", "sparse", "magnitudes")
"""Distributions on which a call takes the time that a job's does; all are used before one is used again."""
WIDE = 2
"""Sets of all kinds of values for one process, at least; one of what is dear."""
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


References = Callable[[Sequence[Mapping[int, np.ndarray]], OutputPart | None], Sequence[Sequence[Reference]]]
"""Computes the references of such sets, or of a part of them, in a trusted child; raises ChildFailed where it
cannot."""


class FreshSets:
    """A growing row of sets of one operator, in two kinds: *everyday* ones, on which a call takes the time
    that a job's does, in batches; and *wide* ones, which hold all kinds of values: a few for each process,
    and of what costs much only a part of their results is looked at."""

    def __init__(self, operator: Operator, references: References, dealer: Dealer | None = None) -> None:
        self.operator = operator
        self.batch = Batch.of(operator)
        self._references = references
        self._rng = np.random.default_rng(secrets.randbits(128))
        self._dealer = dealer or Dealer(self._rng.spawn(1)[0])
        self._names: list[str] = []
        self._everyday: list[FreshSet] = []
        self._wide: list[FreshSet] = []
        self._batches_used = self._wide_used = 0
        further = how_many_further(operator)
        self.wide_sets = WIDE if further == FURTHER and not is_dear(operator) else further
        if self.batch.heavy and part_of(operator, self._rng) is None:
            self.wide_sets = 0

    def forget_used(self) -> None:
        """What was handed out so far is never handed out again."""
        del self._everyday[: self._batches_used * self.batch.calls], self._wide[: self._wide_used]
        self._batches_used = self._wide_used = 0

    def forget_all(self) -> None:
        """Their references are of other constants."""
        self._everyday.clear()
        self._wide.clear()
        self._batches_used = self._wide_used = 0

    def draw_ahead(self, processes: int) -> None:
        """Where not one batch, or not one process's wide sets, are left: for so many, at once."""
        short = len(self._everyday) < self.batch.calls
        narrow = len(self._wide) < self.wide_sets
        if short or narrow:
            # What is dear takes room, too.
            wide = self.wide_sets * (1 if is_dear(self.operator) else processes)
            self._draw(self.batch.rounds * short, wide * narrow)

    def everyday(self, number: int) -> list[FreshSet]:
        """The batch ``number``, from 0."""
        self._batches_used = max(self._batches_used, number + 1)
        while len(self._everyday) < self._batches_used * self.batch.calls:
            self._draw(self.batch.rounds, 0)
        return self._everyday[number * self.batch.calls :][: self.batch.calls]

    def wide(self) -> list[FreshSet]:
        """One process's; drawn ahead."""
        self._wide_used = min(self.wide_sets, len(self._wide))
        return self._wide[: self._wide_used]

    def _draw(self, batches: int, wide: int) -> None:
        """All at once: references cost a process of their own."""
        everyday = batches * self.batch.calls
        drawn = [make_runtime(self.operator, self._name(), self._rng) for _ in range(everyday)]
        hands = [self._dealer.hand(self._rng) for _ in range(wide)]
        drawn += [make_runtime(self.operator, "strata", self._rng, hand) for hand in hands]
        part = part_of(self.operator, self._rng, hands) if wide else None
        if part is None:
            found = list(self._references(drawn, None))
        else:
            found = list(self._references(drawn[:everyday], None)) if everyday else []
            found += self._references(drawn[everyday:], part)
        sets = [FreshSet(spans, known) for spans, known in zip(drawn, found, strict=True)]
        self._everyday += sets[:everyday]
        self._wide += sets[everyday:]

    def _name(self) -> str:
        """By lot, and each in its turn."""
        if not self._names:
            self._names = list(EVERYDAY)
            secrets.SystemRandom().shuffle(self._names)
        return self._names.pop()
