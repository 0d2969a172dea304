"""Which operator runs in which stream, by whom it follows. PURE.

A stream and the thread that launches into it are one here: rules of the document for either say the same. Its
rules, with the claim that each is in:

- asynchronous operators go to one stream, synchronous ones to another (claims 3 and 4);
- after a synchronous operator a single synchronous successor stays; of several one stays, and each other goes
  to another, "fourth", one (claim 1);
- after a synchronous operator an asynchronous one goes to a "fifth", neither the current nor a fourth
  (claim 1);
- after an asynchronous operator an asynchronous one stays, and a synchronous one goes to another (claim 5).

Where it is silent, these are ours. Of mixed successors only synchronous ones are counted. What several
operators must come before follows the last of them. What follows nothing follows the one that feeds the model
([0031]), which is synchronous. Who stays has the longest way to the end before it; who goes, goes where it is
expected to wait least.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from opatlas.streams.manners import Manner

FEED = -1
"""The operator that feeds the model, as a predecessor."""
FEED_STREAM = 0


@dataclass(frozen=True, slots=True)
class Placeable:
    """An operator that is to be placed. ``after``: the numbers of those whose outputs it reads, all smaller
    than its own; ``cost_us``: what it takes, of which only the share of all counts."""

    manner: Manner
    after: frozenset[int] = frozenset()
    cost_us: float = 1.0


def place_in_streams(operators: Sequence[Placeable], sync_streams: int) -> list[int]:
    """The stream of each: synchronous ones in 0 … ``sync_streams`` - 1, asynchronous ones in the next.

    With one synchronous stream this is the document's plain rule: one stream of each kind. Raises
    :class:`ValueError` for an operator that reads what is not before it.
    """
    if sync_streams < 1:
        raise ValueError(f"There is at least one synchronous stream, not {sync_streams}.")
    for number, one in enumerate(operators):
        if any(not 0 <= before < number for before in one.after):
            raise ValueError(f"Operator {number} reads what an operator makes that is not before it.")
    placing = _Placing(operators, sync_streams)
    for current in range(FEED, len(operators)):
        placing.place_successors(current)
    return placing.streams


def longest_ways(operators: Sequence[Placeable]) -> list[float]:
    """Of each, microseconds from its begin to the end of the longest chain that begins with it."""
    ways = [0.0] * len(operators)
    for number in reversed(range(len(operators))):
        one = operators[number]
        ways[number] += one.cost_us  # what its successors have left there, and its own
        for before in one.after:
            ways[before] = max(ways[before], ways[number])
    return ways


class _Placing:
    """Operators one after the other, each placing those that it lets begin."""

    def __init__(self, operators: Sequence[Placeable], sync_streams: int) -> None:
        self.streams = [FEED_STREAM] * len(operators)
        self._operators, self._asynchronous = operators, sync_streams
        self._ways = longest_ways(operators)
        self._free_us = [0.0] * (sync_streams + 1)
        self._end_us = [0.0] * len(operators)
        self._lets_begin: dict[int, list[int]] = defaultdict(list)
        for number, one in enumerate(operators):
            self._lets_begin[max(one.after, default=FEED)].append(number)

    def place_successors(self, current: int) -> None:
        here = FEED_STREAM if current == FEED else self.streams[current]
        stays = here != self._asynchronous  # the first synchronous one does
        for number in sorted(self._lets_begin[current], key=lambda number: -self._ways[number]):
            if self._operators[number].manner is Manner.ASYNC:
                self._put(number, self._asynchronous)
            else:
                self._put(number, here if stays else self._least_waiting(here))
                stays = False

    def _least_waiting(self, here: int) -> int:
        """A synchronous stream other than this one, if there is another."""
        others = [stream for stream in range(self._asynchronous) if stream != here]
        return min(others, key=lambda stream: self._free_us[stream], default=FEED_STREAM)

    def _put(self, number: int, stream: int) -> None:
        one = self._operators[number]
        begin = max((self._end_us[before] for before in one.after), default=0.0)
        self._end_us[number] = max(begin, self._free_us[stream]) + one.cost_us
        self._free_us[stream] = self._end_us[number]
        self.streams[number] = stream
