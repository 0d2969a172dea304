"""Whose turn it is: the workers' seconds, shared out by organisation. PURE.

Weighted fair queueing. Recent seconds of each organisation are counted and decay by halves. The organisation
with the least for its weight after its next piece of work goes first. So a lone organisation has everything,
a new one has its turn after the present piece, and nobody saves turns up. Within an organisation the shortest
work goes first: a first result before all else, tuning last.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Work(StrEnum):
    """A piece of work as it is claimed."""

    FIRST = "first result"
    UPLOAD = "upload"
    RECHECK = "recheck"
    EVALUATION = "kernel evaluation"
    CONTEST = "contest"
    TUNE = "tuning"


EXPECTED_S: Mapping[Work, float] = {
    Work.FIRST: 1.0,
    Work.UPLOAD: 2.0,
    Work.RECHECK: 4.0,
    Work.EVALUATION: 6.0,
    Work.CONTEST: 10.0,
    Work.TUNE: 15.0,
}
"""About how many worker seconds a piece takes: charged at its beginning, corrected at its end. It also orders
one organisation's own work."""


@dataclass(frozen=True)
class Share:
    """What an organisation has had lately, in worker seconds, and its weight."""

    recent_s: float = 0.0
    weight: float = 1.0

    def after(self, more_s: float) -> float:
        """Its seconds for its weight after so much more: the least goes first."""
        return (self.recent_s + more_s) / self.weight


class WorkTurn(NamedTuple):
    """An organisation (its row's number) with work of this kind waiting."""

    organisation: int
    work: Work


def place_of(waiting: WorkTurn, shares: Mapping[int, Share]) -> float:
    """The place in the queue: the least goes first."""
    return shares.get(waiting.organisation, Share()).after(EXPECTED_S[waiting.work])


def next_turn(waiting: Collection[WorkTurn], shares: Mapping[int, Share]) -> WorkTurn | None:
    """Whose turn it is, and with which kind of work; None if nothing waits."""
    return min(waiting, key=lambda one: (place_of(one, shares), one), default=None)


def decayed(seconds: float, age_s: float, half_life_s: float) -> float:
    """The rest of seconds that were counted so long ago."""
    return seconds * math.exp2(-max(0.0, age_s) / half_life_s)


def others_before(
    own_s: float, organisation: int, waiting_s: Mapping[int, float], shares: Mapping[int, Share]
) -> dict[int, float]:
    """The seconds that others, of whom so many wait, will have had by the time an organisation has had so
    many of its own: all take turns, so each with work left will have had as much for its weight."""
    level = shares.get(organisation, Share()).after(own_s)
    due = {
        number: level * shares.get(number, Share()).weight - shares.get(number, Share()).recent_s
        for number in waiting_s.keys() - {organisation}
    }
    return {number: min(waiting_s[number], max(0.0, seconds)) for number, seconds in due.items()}


def portions(shares: Mapping[int, Share]) -> dict[int, float]:
    """The share of each in what all had lately."""
    whole = sum(share.recent_s for share in shares.values())
    return {number: share.recent_s / whole if whole else 0.0 for number, share in shares.items()}
