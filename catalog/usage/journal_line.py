"""A line of the journal: one lookup, what it was served and what it missed."""

from __future__ import annotations

import json
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


def hit_text(hit: Hit, calls: float) -> str:
    """A hit as a line has it: in the order of :class:`JournalHit`, times rounded to what anybody reads."""
    told = (
        hit.operator_id,
        hit.implementation_id,
        hit.route,
        hit.method,
        round(counted_us(hit), 3),
        round(hit.default_us, 3),
        calls,
        hit.is_default,
        *([True] if hit.from_neighbour else []),  # who drains may be of before it was noted
    )
    return json.dumps(told, separators=(",", ":"))


def line_text(
    at: float, organisation_id: int, job: str, hits: Sequence[str], misses: str = "[]", asked: str = ""
) -> str:
    """A line, without its end, of parts that are JSON already. ``at`` is in seconds; ``asked`` is left out
    where it says no more than hits and misses do."""
    return f'{{"at":{at:.3f}{said_text(organisation_id, job, hits, misses, asked)}'


def said_text(
    organisation_id: int, job: str, hits: Sequence[str], misses: str = "[]", asked: str = ""
) -> str:
    """What follows the time in such a line."""
    more = f',"asked":{asked}' if asked else ""
    return f',"org":{organisation_id},"job":{job},"hits":[{",".join(hits)}],"misses":{misses}{more}}}'


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
