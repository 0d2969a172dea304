"""What setting an operator up found, kept for the next slice of its contest.

References in float64 take longer than anything else of setting a bench up, and a contest comes back to its
operator slice after slice. Only what our own code ran on is kept: what somebody submitted has seen the
inputs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from opatlas.memory import total_bytes
from tuning.measure.outcome import Outcome
from tuning.measure.specimen import Specimen

KEPT_SHARE, MOST_KEPT, KEPT_S = 1 / 32, 256, 900.0
"""Of the machine's memory for all that is kept, how many (each holds a file), and how long after its use."""


@dataclass
class KeptSetUp:
    """Inputs with their references, how these are computed, and the default's own check and time."""

    specimen: Specimen
    method: str
    default: Outcome
    since: float = field(default_factory=time.monotonic)

    @property
    def nbytes(self) -> int:
        specimen = self.specimen
        arrays: list[np.ndarray] = [span for one in specimen.own for span in one.values()]
        for reference in (reference for one in specimen.references for reference in one):
            arrays.append(reference.value)
            if reference.allowed is not None:
                arrays.append(reference.allowed)
        return specimen.inputs.nbytes + sum(one.nbytes for one in arrays)


class KeptSetUps:
    """By the artifact of the default (its manifest names operator and setting); who was used longest ago goes
    first. Each is taken out for its use and given back after it."""

    def __init__(self, nbytes: int | None = None) -> None:
        self.room = int(KEPT_SHARE * total_bytes()) if nbytes is None else nbytes
        self._kept: dict[str, KeptSetUp] = {}

    def take(self, default: str) -> KeptSetUp | None:
        self._forget(name for name, one in self._kept.items() if one.since < time.monotonic() - KEPT_S)
        return self._kept.pop(default, None)

    def give(self, default: str, one: KeptSetUp) -> None:
        self._forget([default])
        self._kept[default] = one
        sizes = {name: kept.nbytes for name, kept in self._kept.items()}
        while sizes and (sum(sizes.values()) > self.room or len(sizes) > MOST_KEPT):
            oldest = next(iter(sizes))
            del sizes[oldest]
            self._forget([oldest])

    def close(self) -> None:
        self._forget(self._kept)

    def _forget(self, names: Iterable[str]) -> None:
        for name in list(names):
            if (one := self._kept.pop(name, None)) is not None:
                one.specimen.close()
