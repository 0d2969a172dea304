"""A lookup's result for one operator."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal, NamedTuple, Self

from catalog.best.served import Hit
from catalog.charging import Terms
from catalog.lookup.neighbours import NeighbourHit

Status = Literal["hit", "miss", "need_graph", "need_lookup"]


class Result(NamedTuple):
    key: str
    status: Status
    best: Hit | None = None
    state: str = ""
    reason: str = ""
    terms: Terms | None = None  # what a hit cost; or, of a miss with a best, why that is withheld
    neighbour: NeighbourHit | None = None  # whose best it is, where it is another target's

    def to_json(self) -> dict[str, Any]:
        """The stored form that :meth:`from_json` reads; never shown."""
        near = self.neighbour and self.neighbour._asdict() | {"hit": _to_json(self.neighbour.hit)}
        best, terms = self.best and _to_json(self.best), self.terms and asdict(self.terms)
        return self._asdict() | {"best": best, "terms": terms, "neighbour": near}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        best, terms, near = (document[name] for name in ("best", "terms", "neighbour"))
        return cls(
            **document
            | {
                "best": best and _hit(best),
                "terms": terms and Terms.from_json(terms),
                "neighbour": near and NeighbourHit(**near | {"hit": _hit(near["hit"])}),
            }
        )


def _to_json(hit: Hit) -> dict[str, Any]:
    return hit._asdict() | {"measured_at": hit.measured_at.isoformat()}


def _hit(document: dict[str, Any]) -> Hit:
    return Hit(**document | {"measured_at": datetime.fromisoformat(document["measured_at"])})
