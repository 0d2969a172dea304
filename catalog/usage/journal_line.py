"""A line of the journal: one lookup, what it was served and what it missed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from catalog.best.served import Hit


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

    @classmethod
    def of(cls, hit: Hit, calls: float) -> Self:
        told = {name: getattr(hit, name) for name in cls._fields if name != "calls"}
        return cls(**told, calls=calls)

    @property
    def saved_us(self) -> float:
        return self.calls * (self.default_us - self.median_us)


class JournalMiss(NamedTuple):
    operator_id: int
    calls: float


@dataclass(frozen=True)
class JournalLine:
    """``offset`` is where it begins in its segment. A hit's place in ``hits`` is its number for ever: what
    must be left out is None."""

    offset: int
    at: datetime
    organisation_id: int
    job: str
    hits: Sequence[JournalHit | None]
    misses: Sequence[JournalMiss]

    @classmethod
    def of_entry(cls, offset: int, entry: Mapping[str, Any]) -> Self:
        """From the JSON of a line; raises KeyError, TypeError or ValueError where it is none."""
        return cls(
            offset,
            datetime.fromtimestamp(entry["at"], UTC),
            entry["org"],
            entry["job"],
            [JournalHit(*hit) for hit in entry["hits"]],
            [JournalMiss._make(miss) for miss in entry["misses"]],
        )

    def numbered_hits(self) -> Iterator[tuple[int, JournalHit]]:
        """(number, hit) of those that are not left out."""
        return ((number, hit) for number, hit in enumerate(self.hits) if hit is not None)
