"""A line of the journal: one lookup, what it was served and what it missed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from catalog.best.served import Hit

MOST_LOOKUPS = 1 << 40
"""That anybody's report may stand for: sums of very many still fit."""


_OWN = ("calls", "median_us", "lookups")  # what a line says beside the hit


class JournalHit(NamedTuple):
    """One hit, as a line has it: a list in this order. Times in µs of one call."""

    operator_id: int
    implementation_id: int | None  # None: deleted since
    route: str
    method: str
    median_us: float
    default_us: float
    calls: float
    is_default: bool = False  # lines from before it was noted do not have it
    from_neighbour: bool = False  # measured on another target: what it gains here nobody knows
    lookups: int = 1  # of a client's report: how many its caches answered so

    @classmethod
    def of(cls, hit: Hit, calls: float) -> Self:
        told = {name: getattr(hit, name) for name in cls._fields if name not in _OWN}
        return cls(**told, median_us=counted_us(hit), calls=calls)

    @property
    def saved_us(self) -> float:
        return self.calls * (self.default_us - self.median_us)


def counted_us(hit: Hit) -> float:
    """What a call is counted with: another target's times are no gain here, so then it is the default's."""
    return hit.default_us if hit.from_neighbour else hit.median_us


class JournalMiss(NamedTuple):
    operator_id: int
    calls: float
    lookups: int = 1  # of a client's report: how many it answered so by itself


@dataclass(frozen=True)
class JournalLine:
    """``offset`` is where it begins in its segment. A hit's place in ``hits`` is its number for ever: what
    must be left out is None. ``asked``: ids of all operators that were asked for, in order where it is known,
    charged ones too."""

    offset: int
    at: datetime
    organisation_id: int
    job: str
    hits: Sequence[JournalHit | None]
    misses: Sequence[JournalMiss]
    asked: Sequence[int] = ()

    @classmethod
    def of_entry(cls, offset: int, entry: Mapping[str, Any]) -> Self:
        """From the JSON of a line; raises KeyError, TypeError or ValueError where it is none."""
        hits = [JournalHit(*hit) for hit in entry["hits"]]
        misses = [JournalMiss(*miss) for miss in entry["misses"]]
        asked = entry.get("asked") or [hit.operator_id for hit in hits] + [
            miss.operator_id for miss in misses
        ]
        at = datetime.fromtimestamp(entry["at"], UTC)
        return cls(offset, at, entry["org"], entry["job"], hits, misses, [int(one) for one in asked])

    def numbered_hits(self) -> Iterator[tuple[int, JournalHit]]:
        """(number, hit) of those that are not left out."""
        return ((number, hit) for number, hit in enumerate(self.hits) if hit is not None)
